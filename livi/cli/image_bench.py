"""The commands `livi bench mnist`, `fashion-mnist`, `cifar10` and `cifar100`."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, can_draw, configured, exit_code, given, run_bench
from livi.cli.messages import say
from livi.cli.options import count

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


SHARED = {
    "methods": "default: all that can be run",
    "seeds": "default: 300,301,302; 300 with --quick, 0 with --search",
    "part": None,
    "device": None,
    "jobs": None,
    "limit-minutes": None,
    "samples": None,
    "quick": None,
}


def add_commands(benches: Any) -> None:
    """Add a command for each problem."""
    for name, summary in SUMMARIES.items():
        settings = SETTINGS if name in FROM_SCRATCH else TRAINED_SETTINGS
        command = add_bench(
            benches,
            name,
            _run,
            SHARED,
            summary=summary,
            description=DESCRIPTION.format(name=name, settings=settings),
            epilog=EXAMPLES.format(name=name),
        )
        command.set_defaults(problem=name)
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


def _run(chosen: argparse.Namespace) -> int:
    if sum([chosen.ablations, chosen.search, chosen.chosen is not None]) > 1:
        chosen.parser.error("expected one of --ablations, --search and --chosen, got several")
    configure = _ablations if chosen.ablations else _search if chosen.search else _benchmark
    kind = "ablations" if chosen.ablations else "search" if chosen.search else "bench"
    bench = importlib.import_module(f"livi.experiments.images.{kind}")
    config = configured(chosen, lambda: configure(chosen, bench))
    folder: Path = importlib.import_module("livi.experiments.datasets.pictures").data_folder()
    document = run_bench(chosen, bench, config, folder, device=chosen.device)
    if document is None:
        return 0
    path: Path = bench.result_path(config, chosen.out)
    if chosen.search:
        say(f"go on with: livi bench {chosen.problem} --chosen {path}")
    elif can_draw():
        for drawn in _drawn(document, path.with_suffix("")):
            say(f"drawn: {drawn}")
    return exit_code(document)


def _settings(chosen: argparse.Namespace, seed: int = 300) -> dict[str, Any]:
    """What was given; the only seed of a search or trial if no others are."""
    options = ("methods", "seeds", "gradients", "epochs", "norm", "fit_epochs", "samples", "part", "quick")
    return ({"seeds": (seed,)} if chosen.quick or chosen.search else {}) | given(chosen, *options)


def _benchmark(chosen: argparse.Namespace, bench: Any) -> Any:
    settings = _settings(chosen)
    if chosen.chosen is not None:
        search = importlib.import_module("livi.experiments.images.search")
        settings["methods"] = search.chosen_methods(chosen.chosen, chosen.problem, chosen.methods or ())
    return bench.Config(chosen.problem, **settings)


def _search(chosen: argparse.Namespace, search: Any) -> Any:
    config = search.Config(chosen.problem, **_settings(chosen, search.SEED))
    names = chosen.methods or search.methods_to_search(config.setting, chosen.quick)
    return search.searched(replace(config, methods=names))


def _ablations(chosen: argparse.Namespace, ablations: Any) -> Any:
    settings = _settings(chosen)
    if "gradients" in settings:
        raise ValueError("--gradients: expected none beside --ablations, which have schedules of their own")
    if chosen.jobs > 1:
        raise ValueError("--jobs: expected 1 beside --ablations, which go on with one another's fits")
    return ablations.Ablations(chosen.problem, settings.pop("methods", ()), **settings)


def _drawn(document: dict[str, Any], base: Path) -> list[Path]:
    """Draw the figures of a benchmark, or of its ablations."""
    figures = importlib.import_module("livi.report.image_figures")
    rows = [row for row in document["rows"] if row["error"] is None]
    correlations = [row["correlations"] for row in rows if row.get("correlations")]
    if any("variant" in row for row in rows):
        path = base.with_suffix(".png")
        if correlations:
            figures.draw_correlations(correlations[0], path)
        return [path] if correlations else []
    problems = importlib.import_module("livi.experiments.images.problems").PROBLEMS
    return list(figures.draw(rows, problems[document["experiment"]].classes, base)) if rows else []
