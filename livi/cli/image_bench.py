"""The commands `livi bench mnist`, `fashion-mnist`, `cifar10` and `cifar100`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from livi.cli.benches import LIMIT, OUT, given, speaker
from livi.cli.options import count, names, seeds
from livi.cli.parsing import new_command

SUMMARIES = {
    "mnist": "LeNet on MNIST: out-of-distribution and rotated images",
    "fashion-mnist": "LeNet on Fashion-MNIST: out-of-distribution and rotated images",
    "cifar10": "WRN-16-4 on CIFAR-10: out-of-distribution and corrupted images",
    "cifar100": "WRN-28-10 on CIFAR-100: out-of-distribution images",
}
FROM_SCRATCH = ("mnist", "fashion-mnist")  # in the others, fits start from trained networks
DESCRIPTION = """\
Fits every method with every seed and scores it: accuracy, NLL, ECE and Brier score; confidence and AUROC on
out-of-distribution (OOD) sets; NLL and ECE on rotated (mnist, fashion-mnist) or corrupted (cifar10) images. Writes
DIR/{name}.json after every fit, prints Markdown tables next to the paper's numbers, and draws figures into DIR if
matplotlib is installed. The same command continues an interrupted run; other methods and seeds are added to the file.

methods   map, ensemble-K, mean_field and all others of livi.rivals.METHODS; livi, livi-smallest (the paper's L''),
          livi-mixture-K (K components trained together; on mnist and fashion-mnist, livi itself has five),
          livi-pooled-K (K separate fits of one component each). A method can have settings, as in
          livi@prior=0.5@noise=0.1:
          {settings}
search    --search tries four candidates for each method, with different priors or weight decays, on validation images,
          and writes DIR/{name}-validation.json. --chosen takes the best of each method from that file; ensembles take
          the settings of map, other forms of livi those of livi
data      from LIVI_DATA_DIR or the cache; see livi data list
"""
OF_LIVI = """for livi: noise, rate, offset (the rate of the offset), temperature, samples
          (weight vectors per step), draws (networks in a prediction), fit (epochs)"""
SETTINGS = f"for all: prior; {OF_LIVI}"
TRAINED_SETTINGS = f"""for all: prior, and decay and epochs of the networks that fits start from;
          {OF_LIVI}"""
EXAMPLES = """\
examples:
  livi bench {name} --quick
  livi bench {name} --search --methods map,livi --device cuda --out results
  livi bench {name} --chosen results/{name}-validation.json --methods map,livi --device cuda --out results
  livi bench {name} --device cuda --limit-minutes 9 --out results     repeat until all is done
"""


def add_commands(benches: Any) -> None:
    """Add a command for each problem."""
    for name, summary in SUMMARIES.items():
        command = new_command(
            benches,
            name,
            _run,
            summary=summary,
            description=DESCRIPTION.format(name=name, settings=SETTINGS if name in FROM_SCRATCH else TRAINED_SETTINGS),
            epilog=EXAMPLES.format(name=name),
        )
        command.set_defaults(problem=name)
        command.add_argument("--methods", type=names, metavar="NAME,...", help="default: all that can be run")
        command.add_argument(
            "--seeds", type=seeds, metavar="SEED,...", help="default: 300,301,302; 300 with --quick, 0 with --search"
        )
        command.add_argument(
            "--part",
            choices=("validation", "test"),
            default="test",
            help="which images to score; choose settings by validation ones only (default %(default)s)",
        )
        command.add_argument("--device", default="cpu", help="such as cuda (default %(default)s)")
        command.add_argument(
            "--jobs",
            type=count,
            default=1,
            help="fits to run at the same time, each in a process of its own; they take several GPUs in turn",
        )
        command.add_argument("--limit-minutes", type=float, metavar="M", help=LIMIT)
        command.add_argument(
            "--samples", type=count, help="number of networks in a prediction (default: by the problem)"
        )
        command.add_argument(
            "--fit-epochs", type=float, metavar="E", help="epochs of variational fits (default: livi's own choice)"
        )
        if name in FROM_SCRATCH:
            command.add_argument(
                "--gradients", type=count, help="give every method this many gradients (default: each its own)"
            )
        else:
            command.add_argument(
                "--epochs", type=count, help="epochs of SGD for the networks that fits start from (default: 60)"
            )
            command.add_argument(
                "--norm",
                choices=("batch", "group", "response"),
                default="batch",
                help="normalisation layers of the network (default %(default)s)",
            )
        command.add_argument(
            "--ablations", action="store_true", help="measure the effect of correlations, latents, samples, components"
        )
        command.add_argument(
            "--search", action="store_true", help="choose settings of every method on validation images"
        )
        command.add_argument("--chosen", type=Path, metavar="FILE", help="take the settings that a --search has chosen")
        command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help=OUT)
        command.add_argument(
            "--quick", action="store_true", help="a small trial of everything; the numbers mean nothing"
        )


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.images.bench")
    folder: Path = importlib.import_module("livi.experiments.datasets.pictures").data_folder()
    settings = _default_seeds(chosen) | given(
        chosen, "methods", "seeds", "gradients", "epochs", "norm", "fit_epochs", "samples", "part", "quick"
    )
    say, first = speaker()
    running = {"device": chosen.device, "minutes": chosen.limit_minutes, "say": say}
    if sum([chosen.ablations, chosen.search, chosen.chosen is not None]) > 1:
        chosen.parser.error("expected one of --ablations, --search and --chosen, got several")
    if chosen.ablations:
        return _ablate(chosen, settings, folder, running)
    search = importlib.import_module("livi.experiments.images.search")
    try:
        if chosen.chosen is not None:
            settings["methods"] = search.chosen_methods(chosen.chosen, chosen.problem, chosen.methods or ())
        config = bench.Config(chosen.problem, **settings)
    except ValueError as error:
        chosen.parser.error(str(error))
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


def _default_seeds(chosen: argparse.Namespace) -> dict[str, Any]:
    """The seeds of a search or trial, unless others are given."""
    if chosen.search:
        return {"seeds": (importlib.import_module("livi.experiments.images.search").SEED,)}
    return {"seeds": (300,)} if chosen.quick else {}


def _ablate(chosen: argparse.Namespace, settings: dict[str, Any], folder: Path, running: dict[str, Any]) -> int:
    ablations = importlib.import_module("livi.experiments.images.ablations")
    variants = settings.pop("methods", ())
    if "gradients" in settings:
        chosen.parser.error("--gradients: expected none beside --ablations, which have schedules of their own")
    if chosen.jobs > 1:
        chosen.parser.error("--jobs: expected 1 beside --ablations, which go on with one another's fits")
    try:
        config = ablations.Ablations(chosen.problem, variants, **settings)
    except ValueError as error:
        chosen.parser.error(str(error))
    document = ablations.ablate(config, chosen.out, folder, **running)
    print(ablations.ablations_text(document))
    found = [row["correlations"] for row in document["rows"] if row.get("correlations")]
    if found and importlib.util.find_spec("matplotlib") is not None:
        path = ablations.ablations_path(config, chosen.out).with_suffix(".png")
        importlib.import_module("livi.report.image_figures").draw_correlations(found[0], path)
        running["say"](f"drawn: {path}")
    return 1 if any(row["error"] is not None for row in document["rows"]) else 0
