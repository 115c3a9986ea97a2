"""The command line: livi fit, predict, evaluate and compare on tables, livi demo, data and report, and livi bench.

Each command imports the modules that need torch when it runs, so that help and errors of usage appear at once.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from livi.cli import (
    comparing,
    data,
    density_bench,
    entropy_bench,
    image_bench,
    plain_bench,
    public_bench,
    reporting,
    runtime_bench,
    table_bench,
    tables,
    toy_bench,
    uci_bench,
)
from livi.cli.messages import warn
from livi.cli.options import INTERRUPTED
from livi.cli.parsing import Parser
from livi.version import __version__

EXAMPLES = """\
examples:
  livi fit houses.csv --target price                          writes houses.livi
  livi predict houses.livi new.csv --out predictions.csv
  livi evaluate houses.livi test.csv --report report.html
  livi compare houses.csv --target price --report methods.html
  livi report results                 all benchmark results in a folder, on one page
  livi demo                           four posteriors on one page, in two minutes: livi-demo/index.html
  livi bench toy --quick              try out the toy benchmark; the numbers mean nothing
  livi bench toy --out results        every method on both toy problems, 5 seeds: two to three hours on one core
  livi bench toy --data A --methods livi,full_rank --seeds 10
  livi bench tables --quick           try out the benchmark on tables; the numbers mean nothing
  livi bench tables --out results     livi and other methods on bundled and UCI tables: hours on one core
  livi bench uci --out results        the paper's UCI experiment, 20 splits: hours on one core
  livi bench plain --out results      livi and the plain network that it starts from, on seven small problems
  livi bench mnist --quick            try out the benchmark on images; also fashion-mnist, cifar10, cifar100
"""
START = """\
livi fit DATA.csv --target COLUMN                           learn to predict a column of a table from the others
livi predict DATA.livi NEW.csv --out PREDICTIONS.csv        predict other rows, with uncertainty
livi evaluate DATA.livi TEST.csv --report REPORT.html       see how good predictions are, on rows with known answers
livi demo                                                   without data: four posteriors on one page, in two minutes
livi --help                                                 all commands; livi fit --help for the options of fit
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0 if done, 1 if failed, 3 for a poor fit, 130 if interrupted. Wrong usage exits with 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the console cannot show is no error
    if not arguments:
        print(START, end="")
        return 0
    chosen, rest = _parser().parse_known_args(arguments)
    if rest and chosen.command is not _demo:
        chosen.parser.error(f"unrecognised arguments: {' '.join(rest)}")
    chosen.rest = rest
    try:
        command: Callable[[argparse.Namespace], int] = chosen.command
        return command(chosen)
    except KeyboardInterrupt:
        warn("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone: discard what is left in the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if chosen.debug:
            traceback.print_exc()
            return 1
        warn(_sentence(error) + ("" if _expected(error) else " (--debug shows where)"))
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="livi",
        description="Posteriors over the weights of PyTorch networks: models of tables, a demonstration, benchmarks.\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 fitted, but worse than the mean, 130 interrupted.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"livi {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="command")
    tables.add_commands(commands)
    comparing.add_command(commands)
    reporting.add_command(commands)
    data.add_commands(commands)
    demo = commands.add_parser("demo", help="four posteriors side by side, on one page", add_help=False)
    demo.set_defaults(command=_demo)
    benches = commands.add_parser("bench", help="run a benchmark").add_subparsers(required=True, metavar="benchmark")
    toy_bench.add_command(benches)
    table_bench.add_command(benches)
    public_bench.add_command(benches)
    plain_bench.add_command(benches)
    image_bench.add_commands(benches)
    runtime_bench.add_command(benches)
    density_bench.add_command(benches)
    uci_bench.add_command(benches)
    entropy_bench.add_command(benches)
    return parser


def _demo(chosen: argparse.Namespace) -> int:
    demo = importlib.import_module("livi.report.demo")
    return int(demo.main(chosen.rest) or 0)


def _expected(error: Exception) -> bool:
    """Whether the message says enough; other errors may be bugs, and their traceback is of use."""
    from livi.posterior.storage import StorageError
    from livi.tables import TableError

    return isinstance(error, (StorageError, TableError, ImportError, OSError))


def _sentence(error: Exception) -> str:
    """The first line of the message, or the name of the error."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
