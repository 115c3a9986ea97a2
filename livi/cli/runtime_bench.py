"""The command `livi bench runtime`: progress to stderr, tables to stdout, a figure to a file."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from livi.cli.benches import speaker
from livi.cli.options import count, names, seeds

DESCRIPTION = """\
The paper's table of training times and memory, LeNet on MNIST: every method is given more and more gradients, twice as
many each time, until the NLL of validation images no longer falls by more than a standard error. Seconds, memory at
the most and NLL of the shortest fit that was long enough are printed as a Markdown table beside the paper's, written
to DIR/runtime.json after every method, and drawn where matplotlib is installed. Every fit is a process of its own; run
nothing beside it. The same command goes on with what was stopped; other methods and seeds add to it.

methods   as in livi bench mnist
data      mnist, from LIVI_DATA_DIR or the cache: livi data get mnist
"""
EXAMPLES = """\
examples:
  livi bench runtime --quick
  livi bench runtime --device cuda --limit-minutes 9 --out results     again and again, until all is done
  livi bench runtime --methods livi,ensemble-5,mean_field,avb,mnf      the paper's five
"""


def add_command(benches: argparse._SubParsersAction[Any]) -> None:
    command = benches.add_parser(
        "runtime",
        help="seconds and memory of every method on MNIST, until it no longer improves",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=_run, usage_error=command.error)
    command.add_argument("--methods", type=names, metavar="NAME,...", help="default: all that can run")
    command.add_argument("--seeds", type=seeds, metavar="SEED,...", help="default: 300")
    command.add_argument("--device", default="cpu", help="default %(default)s")
    command.add_argument("--gradients", type=count, help="of the first fit (default 2500; 100 with --quick)")
    command.add_argument("--doublings", type=count, help="of that, at most (default 4; 2 with --quick)")
    command.add_argument("--samples", type=count, help="networks that answer (default 100)")
    command.add_argument("--limit-minutes", type=float, metavar="M", help="stop after so long, ready to go on")
    command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default %(default)s")
    command.add_argument("--quick", action="store_true", help="a small trial of everything; numbers mean nothing")


def _run(chosen: argparse.Namespace) -> int:
    runtime = importlib.import_module("livi.experiments.images.runtime")
    folder: Path = importlib.import_module("livi.experiments.datasets.pictures").data_folder()
    given = {name: getattr(chosen, name) for name in ("methods", "seeds", "gradients", "doublings", "samples")}
    settings = {"gradients": 100, "doublings": 2} if chosen.quick else {}
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        config = runtime.Config(quick=chosen.quick, **settings)
    except ValueError as error:
        chosen.usage_error(str(error))
    say, _ = speaker()
    document = runtime.bench(config, chosen.out, folder, device=chosen.device, minutes=chosen.limit_minutes, say=say)
    print(runtime.text(document))
    rows = [row for row in document["rows"] if row["error"] is None]
    if rows and importlib.util.find_spec("matplotlib") is not None:
        path = runtime.result_path(config, chosen.out).with_suffix(".png")
        importlib.import_module("livi.report.image_figures").draw_runtime(rows, path)
        say(f"drawn: {path}")
    return 1 if any(row["error"] is not None for row in document["rows"]) else 0
