"""The command `livi bench runtime`: progress to stderr, tables to stdout, a figure to a file."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from livi.cli.benches import LIMIT, OUT, given, speaker
from livi.cli.options import count, names, seeds
from livi.cli.parsing import new_command

DESCRIPTION = """\
The paper's table of training time and memory, for LeNet on MNIST. Every method is fitted with more and more gradients,
twice as many each time, until the NLL of validation images no longer falls by more than a standard error. For the
shortest fit that was long enough, prints seconds, peak memory and NLL as a Markdown table next to the paper's, writes
them to DIR/runtime.json after every method, and draws them if matplotlib is installed. Every fit is a process of its
own; nothing else should run at the same time. The same command continues an interrupted run; other methods and seeds
are added to the file.

methods   as in livi bench mnist
data      mnist, from LIVI_DATA_DIR or the cache: livi data get mnist
"""
EXAMPLES = """\
examples:
  livi bench runtime --quick
  livi bench runtime --device cuda --limit-minutes 9 --out results     repeat until all is done
  livi bench runtime --methods livi,ensemble-5,mean_field,avb,mnf      the paper's five
"""


def add_command(benches: Any) -> None:
    command = new_command(
        benches,
        "runtime",
        _run,
        summary="seconds and memory that every method needs on MNIST until it no longer improves",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--methods", type=names, metavar="NAME,...", help="default: all that can be run")
    command.add_argument("--seeds", type=seeds, metavar="SEED,...", help="default: 300")
    command.add_argument("--device", default="cpu", help="such as cuda (default %(default)s)")
    command.add_argument("--gradients", type=count, help="gradients of the first fit (default 2500; 100 with --quick)")
    command.add_argument("--doublings", type=count, help="most doublings of these (default 4; 2 with --quick)")
    command.add_argument("--samples", type=count, help="number of networks in a prediction (default 100)")
    command.add_argument("--limit-minutes", type=float, metavar="M", help=LIMIT)
    command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help=OUT)
    command.add_argument("--quick", action="store_true", help="a small trial of everything; the numbers mean nothing")


def _run(chosen: argparse.Namespace) -> int:
    runtime = importlib.import_module("livi.experiments.images.runtime")
    folder: Path = importlib.import_module("livi.experiments.datasets.pictures").data_folder()
    settings: dict[str, Any] = {"gradients": 100, "doublings": 2} if chosen.quick else {}
    settings |= given(chosen, "methods", "seeds", "gradients", "doublings", "samples")
    try:
        config = runtime.Config(quick=chosen.quick, **settings)
    except ValueError as error:
        chosen.parser.error(str(error))
    say, _ = speaker()
    document = runtime.bench(config, chosen.out, folder, device=chosen.device, minutes=chosen.limit_minutes, say=say)
    print(runtime.text(document))
    rows = [row for row in document["rows"] if row["error"] is None]
    if rows and importlib.util.find_spec("matplotlib") is not None:
        path = runtime.result_path(config, chosen.out).with_suffix(".png")
        importlib.import_module("livi.report.image_figures").draw_runtime(rows, path)
        say(f"drawn: {path}")
    return 1 if any(row["error"] is not None for row in document["rows"]) else 0
