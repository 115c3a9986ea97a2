"""`livi report`: result folders of any benchmark as one page."""

from __future__ import annotations

import argparse
from typing import Any

from livi.cli.extras import load

WORDS = """\
Join the result files in any number of folders, of `livi bench` and of `livi compare --out FILE.json`, into one page
with tables and figures: NAME.md and NAME.html, and a figure NAME-EXPERIMENT.png for each experiment. Runs of one
experiment with the same settings are one table, wherever they were made. (The report on a model of a table is made by
`livi fit --report` and `livi evaluate --report`.)
"""
EXAMPLES = """\
examples:
  livi report results
  livi report uci-1 uci-2 toy --out all/results
"""


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="result folders of benchmarks as one page",
        description=WORDS,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_report)
    parser.add_argument("folders", nargs="+", metavar="DIR", help="a folder with result files, or one such file")
    parser.add_argument("--out", default="results-page", metavar="NAME", help="without ending (default %(default)s)")


def _report(chosen: argparse.Namespace) -> int:
    load("matplotlib", "plots")
    for path in load("livi.report.results_page").write_report(chosen.folders, chosen.out):
        print(f"written: {path}")
    return 0
