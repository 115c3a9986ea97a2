"""Options that several commands on tables have."""

from __future__ import annotations

import argparse

from livi.cli.options import delimiter, names


def add_column_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fit` and `compare` that say what the columns are."""
    parser.add_argument(
        "--task", choices=("regression", "classification"), help="default: chosen by the values of the target"
    )
    for option, metavar, words in (
        ("--drop", "A,B", "columns to leave out; put names with commas in double quotes"),
        ("--use", "A,B", "columns to use although they look like row numbers"),
        ("--categorical", "A,B", "columns whose numbers are codes of categories"),
        ("--missing", "WORDS", "further words that mean missing, such as unknown,n.v., also when predicting"),
    ):
        parser.add_argument(option, type=names, default=(), metavar=metavar, help=words)


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands on tables: CSV formats, existing files, messages."""
    parser.add_argument(
        "--delimiter", type=delimiter, help="separator in CSV files; 'tab' for a tab (default: found in the header)"
    )
    parser.add_argument(
        "--decimal",
        choices=("point", "comma"),
        help="decimal separator in CSV files (default: point, or as in the fit of the model)",
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument("--quiet", action="store_true", help="no progress and no notes on stderr")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show an error's traceback")
