"""The command `livi compare`: several methods on a table, with equal budgets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from livi.cli.extras import load
from livi.cli.messages import note, quiet
from livi.cli.options import count, names, seed, share, widths
from livi.cli.parsing import new_command
from livi.cli.table_options import add_column_options, add_file_options

DESCRIPTION = """\
Fit several methods to the same rows of a table, with the same network and the same budget of gradients, and score them
on held-out rows: negative log likelihood with its standard error, errors, coverage, seconds. * marks methods within
two standard errors of the best. Methods that exceed the budget are named.

Methods are livi, map, ensemble, mean_field, full_rank, mc_dropout, swag and others; the error for an unknown name lists
all of them. Some need an extra: ivon (livi[ivon]), laplace_last_layer, laplace_linearised and laplace_low_rank
(livi[laplace]), nuts (livi[baselines]). A method that cannot be fitted is listed with the reason.
"""
EXAMPLES = """\
examples:
  livi compare houses.csv --target price
  livi compare houses.csv --target price --methods livi,ensemble,swag --report methods.html --out methods.csv
  livi compare houses.csv --target price --gradients 20000 --validation 0.3
"""


def add_command(commands: Any) -> None:
    parser = new_command(
        commands,
        "compare",
        _compare,
        summary="compare several methods on a CSV or Parquet file",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        allow_abbrev=False,
    )
    parser.add_argument("data", metavar="DATA", help="CSV or Parquet file")
    parser.add_argument("--target", required=True, metavar="COLUMN", help="column to predict")
    parser.add_argument("--methods", type=names, metavar="A,B", help="default: livi,ensemble,mean_field,swag,map")
    parser.add_argument("--gradients", type=count, help="gradients for each method (default: as many as livi takes)")
    parser.add_argument(
        "--out", type=_table, metavar="FILE", help="also write the table to this file: .csv, .md, .txt or .json"
    )
    parser.add_argument("--report", metavar="FILE.html", help="write a page with a figure")
    add_column_options(parser)
    parser.add_argument(
        "--validation", type=share, default=0.2, metavar="SHARE", help="share of rows held out (default %(default)s)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of the split and of the fits (default %(default)s)")
    parser.add_argument("--hidden", type=widths, metavar="50,50", help="widths of the hidden layers")
    parser.add_argument(
        "--activation", choices=("relu", "tanh", "elu", "silu", "gelu"), help="activation function (default: silu)"
    )
    parser.add_argument("--threads", type=count, help="CPU threads (default: torch's own choice)")
    add_file_options(parser)


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
    table = tables.read_table(chosen.data, delimiter=chosen.delimiter, decimal=chosen.decimal or "point")
    found = of_table.compare_table(
        table,
        chosen.target,
        options,
        methods=chosen.methods or of_table.DEFAULT_METHODS,
        gradients=chosen.gradients,
        say=quiet if chosen.quiet else note,
    )
    print(found)
    for path in (chosen.out, chosen.report):
        if path is not None:
            found.save(path)
            print(f"written: {path}")
    return 0


def _check_outputs(chosen: argparse.Namespace, tables: Any) -> None:
    """Check before any work that all outputs can be written."""
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
