"""The commands `livi bench mnist`, `fashion-mnist`, `cifar10` and `cifar100`: progress, tables, figures."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from livi.cli.benches import speaker
from livi.cli.options import count, names, seeds

SUMMARIES = {
    "mnist": "LeNet on MNIST: out-of-distribution and rotated images",
    "fashion-mnist": "LeNet on Fashion-MNIST: out-of-distribution and rotated images",
    "cifar10": "WRN-16-4 on CIFAR-10: out-of-distribution and corrupted images",
    "cifar100": "WRN-28-10 on CIFAR-100: out-of-distribution images",
}
FROM_SCRATCH = ("mnist", "fashion-mnist")  # others start from networks that are trained
DESCRIPTION = """\
Fit every method under every seed, and score it: accuracy, NLL, ECE and Brier; confidence and AUROC on
out-of-distribution (OOD) sets; NLL and ECE on rotated (mnist, fashion-mnist) or corrupted (cifar10) images. Write
DIR/{name}.json after every fit, print Markdown tables beside the paper's numbers, and draw figures into DIR where
matplotlib is installed. The same command goes on with what was stopped; other methods and seeds add to it.

methods   map, ensemble-K, mean_field and all others of livi.rivals.METHODS; livi, livi-smallest (the paper's L''),
          livi-mixture-K (trained jointly; from scratch livi is one of five), livi-pooled-K (K fits of one component
          each); with settings as in livi@prior=0.5@noise=0.1,
          {settings}
search    --search tries four candidates for each method, by its prior or weight decay, on validation images, and
          writes DIR/{name}-validation.json; --chosen takes the best of each from there, for ensembles that of map,
          for other forms of livi that of livi
data      from LIVI_DATA_DIR or the cache: livi data list
"""
OF_LIVI = "noise, rate, offset (its rate), temperature, samples (a step), draws (that answer) and fit (epochs) for livi"
SETTINGS = f"prior for all, {OF_LIVI}"
TRAINED_SETTINGS = f"""prior, decay and epochs (of the networks that fits start from),
          {OF_LIVI}"""
EXAMPLES = """\
examples:
  livi bench {name} --quick
  livi bench {name} --search --methods map,livi --device cuda --out results
  livi bench {name} --chosen results/{name}-validation.json --methods map,livi --device cuda --out results
  livi bench {name} --device cuda --limit-minutes 9 --out results     again and again, until all is done
"""


def add_commands(benches: argparse._SubParsersAction[Any]) -> None:
    for name, summary in SUMMARIES.items():
        command = benches.add_parser(
            name,
            help=summary,
            description=DESCRIPTION.format(name=name, settings=SETTINGS if name in FROM_SCRATCH else TRAINED_SETTINGS),
            epilog=EXAMPLES.format(name=name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=_run, usage_error=command.error, problem=name)
        command.add_argument("--methods", type=names, metavar="NAME,...", help="default: all that can run")
        command.add_argument(
            "--seeds", type=seeds, metavar="SEED,...", help="default: 300,301,302; 300 with --quick, 0 with --search"
        )
        command.add_argument(
            "--part",
            choices=("validation", "test"),
            default="test",
            help="which images to score; choose settings by validation ones only (default %(default)s)",
        )
        command.add_argument("--device", default="cpu", help="default %(default)s")
        command.add_argument("--jobs", type=count, default=1, help="fits at a time, a process each, GPUs in turn")
        command.add_argument("--limit-minutes", type=float, metavar="M", help="stop after so long, ready to go on")
        command.add_argument("--samples", type=count, help="networks that answer (default: by the problem)")
        command.add_argument("--fit-epochs", type=float, metavar="E", help="of fits on the bound (default: livi's own)")
        if name in FROM_SCRATCH:
            command.add_argument("--gradients", type=count, help="the same number for every method (default: its own)")
        else:
            command.add_argument("--epochs", type=count, help="of SGD, of the networks that fits start from (60)")
            command.add_argument(
                "--norm", choices=("batch", "group", "response"), default="batch", help="of the network"
            )
        command.add_argument(
            "--ablations", action="store_true", help="what correlations, latents, samples, components buy"
        )
        command.add_argument("--search", action="store_true", help="settings of every method, by validation images")
        command.add_argument("--chosen", type=Path, metavar="FILE", help="take settings from this search")
        command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default %(default)s")
        command.add_argument("--quick", action="store_true", help="a small trial of everything; numbers mean nothing")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.images.bench")
    folder: Path = importlib.import_module("livi.experiments.datasets.pictures").data_folder()
    given = {
        "methods": chosen.methods,
        "seeds": _default_seeds(chosen) if chosen.seeds is None else chosen.seeds,
        "gradients": getattr(chosen, "gradients", None),
        "epochs": getattr(chosen, "epochs", None),
        "norm": getattr(chosen, "norm", None),
        "fit_epochs": chosen.fit_epochs,
        "samples": chosen.samples,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    settings |= {"part": chosen.part, "quick": chosen.quick}
    say, first = speaker()
    running = {"device": chosen.device, "minutes": chosen.limit_minutes, "say": say}
    if sum([chosen.ablations, chosen.search, chosen.chosen is not None]) > 1:
        chosen.usage_error("expected one of --ablations, --search and --chosen, got several")
    if chosen.ablations:
        return _ablate(chosen, settings, folder, running)
    search = importlib.import_module("livi.experiments.images.search")
    try:
        if chosen.chosen is not None:
            settings["methods"] = search.chosen_methods(chosen.chosen, chosen.problem, chosen.methods or ())
        config = bench.Config(chosen.problem, **settings)
    except ValueError as error:
        chosen.usage_error(str(error))
    if chosen.search:
        names = chosen.methods or search.methods_to_search(config.setting, chosen.quick)
        config = search.searched(replace(config, methods=names))
    document = bench.bench(config, chosen.out, folder, jobs=chosen.jobs, **running)
    if not first:
        return 0
    if chosen.search:
        print(search.search_text(document))
        say(f"go on with: livi bench {chosen.problem} --chosen {bench.result_path(config, chosen.out)}")
        return 1 if any(row["error"] is not None for row in document["rows"]) else 0
    print(bench.text(document))
    rows = [row for row in document["rows"] if row["error"] is None]
    if rows and importlib.util.find_spec("matplotlib") is not None:
        for path in importlib.import_module("livi.report.image_figures").draw(
            rows, config.setting.classes, bench.result_path(config, chosen.out).with_suffix("")
        ):
            say(f"drawn: {path}")
    return 1 if any(row["error"] is not None for row in document["rows"]) else 0


def _default_seeds(chosen: argparse.Namespace) -> tuple[int, ...] | None:
    if chosen.search:
        return (importlib.import_module("livi.experiments.images.search").SEED,)
    return (300,) if chosen.quick else None


def _ablate(chosen: argparse.Namespace, settings: dict[str, Any], folder: Path, running: dict[str, Any]) -> int:
    ablations = importlib.import_module("livi.experiments.images.ablations")
    variants = settings.pop("methods", ())
    if "gradients" in settings:
        chosen.usage_error("--gradients: expected none beside --ablations, which have schedules of their own")
    if chosen.jobs > 1:
        chosen.usage_error("--jobs: expected 1 beside --ablations, which go on with one another's fits")
    try:
        config = ablations.Ablations(chosen.problem, variants, **settings)
    except ValueError as error:
        chosen.usage_error(str(error))
    document = ablations.ablate(config, chosen.out, folder, **running)
    print(ablations.ablations_text(document))
    found = [row["correlations"] for row in document["rows"] if row.get("correlations")]
    if found and importlib.util.find_spec("matplotlib") is not None:
        path = ablations.ablations_path(config, chosen.out).with_suffix(".png")
        importlib.import_module("livi.report.image_figures").draw_correlations(found[0], path)
        running["say"](f"drawn: {path}")
    return 1 if any(row["error"] is not None for row in document["rows"]) else 0
