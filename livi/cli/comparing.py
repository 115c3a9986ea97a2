"""livi compare: several methods on a table, with equal budgets. Notes go to stderr, the result to stdout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from livi.cli.extras import load
from livi.cli.options import count, delimiter, names, seed, share, widths

WORDS = """\
Fit several methods to the same rows of a table, with the same network and the same budget of gradients, and score them
on held-out rows: negative log likelihood with its standard error, errors, coverage, seconds. * marks methods within
two standard errors of the best. Methods that exceed the budget are named.

Methods are livi, map, ensemble, mean_field, full_rank, mc_dropout, swag and others; a wrong name is answered with all
of them. Some need an extra: ivon (livi[ivon]), laplace_last_layer, laplace_linearised and laplace_low_rank
(livi[laplace]), nuts (livi[baselines]). One that cannot be fitted is listed with the reason.
"""
EXAMPLES = """\
examples:
  livi compare houses.csv --target price
  livi compare houses.csv --target price --methods livi,ensemble,swag --report methods.html --out methods.csv
  livi compare houses.csv --target price --gradients 20000 --validation 0.3
"""


def add_command(commands: Any) -> None:
    """Add compare to the parsers of the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="compare several methods on a CSV or Parquet file",
        description=WORDS,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(command=_compare)
    parser.add_argument("data", metavar="DATA", help="CSV or Parquet file")
    parser.add_argument("--target", required=True, metavar="COLUMN", help="what to predict")
    parser.add_argument("--methods", type=names, metavar="A,B", help="default: livi,ensemble,mean_field,swag,map")
    parser.add_argument("--gradients", type=count, help="the budget of each method (default: what livi would take)")
    parser.add_argument(
        "--out", type=_table, metavar="FILE", help="write the table there too: .csv, .md, .txt or .json"
    )
    parser.add_argument("--report", metavar="FILE.html", help="write a page with the figure")
    parser.add_argument("--task", choices=("regression", "classification"), help="default: by the target")
    for name, what in (
        ("drop", "columns to leave out; quote names with commas"),
        ("use", "columns to read that look like row numbers"),
        ("categorical", "columns of numbers that are codes of categories"),
        ("missing", "further words that mean missing, such as unknown,n.v."),
    ):
        parser.add_argument(f"--{name}", type=names, default=(), metavar="A,B", help=what)
    parser.add_argument(
        "--validation", type=share, default=0.2, metavar="SHARE", help="share that is held out (default %(default)s)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of the split and of the fits (default %(default)s)")
    parser.add_argument("--hidden", type=widths, metavar="50,50", help="widths of the hidden layers")
    parser.add_argument(
        "--activation", choices=("relu", "tanh", "elu", "silu", "gelu"), help="activation function (default: silu)"
    )
    parser.add_argument("--threads", type=count, help="CPU threads (default: torch's own choice)")
    parser.add_argument(
        "--delimiter", type=delimiter, help="separator in CSV files; 'tab' for a tab (default: by the header)"
    )
    parser.add_argument(
        "--decimal", choices=("point", "comma"), default="point", help="decimal separator in CSV files (default: point)"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument("--quiet", action="store_true", help="no progress and no notes on stderr")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show an error's traceback")


def _compare(chosen: argparse.Namespace) -> int:
    tables = load("livi.tables")
    load("pandas")
    _check_outputs(chosen, tables)
    of_table = load("livi.comparison.of_table")
    if chosen.methods:
        for name in chosen.methods:
            load("livi.rivals").method_named(name)  # before any work
    options = load("livi.tables.options").FitOptions(
        task=chosen.task,
        drop=chosen.drop,
        use=chosen.use,
        categorical=chosen.categorical,
        missing=chosen.missing,
        validation=chosen.validation,
        seed=chosen.seed,
        hidden=chosen.hidden,
        activation=chosen.activation,
        threads=chosen.threads,
        progress=not chosen.quiet,
    )
    table = tables.read_table(chosen.data, delimiter=chosen.delimiter, decimal=chosen.decimal)
    found = of_table.compare_table(
        table,
        chosen.target,
        options,
        methods=chosen.methods or of_table.DEFAULT_METHODS,
        gradients=chosen.gradients,
        say=_quiet if chosen.quiet else _note,
    )
    print(found)
    for path in (chosen.out, chosen.report):
        if path is not None:
            found.save(path)
            print(f"written: {path}")
    return 0


def _check_outputs(chosen: argparse.Namespace, tables: Any) -> None:
    """Before any work: can all be written that is to be written?"""
    taken = [chosen.data]
    for path in (chosen.out, chosen.report):
        if path is not None:
            tables.check_output(path, force=chosen.force, inputs=taken)
            taken.append(path)
    if chosen.report is not None:
        load("matplotlib", "plots")
        if Path(chosen.report).suffix.lower() != ".html":
            chosen.parser.error(f"argument --report: expected a name that ends in .html, got {chosen.report!r}")


def _table(text: str) -> str:
    if Path(text).suffix.lower() not in (".csv", ".md", ".txt", ".json"):
        raise argparse.ArgumentTypeError(f"expected a name that ends in .csv, .md, .txt or .json, got {text!r}")
    return text


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _quiet(_: str) -> None:
    pass
