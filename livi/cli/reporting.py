"""The command `livi report`: the results of benchmarks and comparisons on one page."""

from __future__ import annotations

import argparse
from typing import Any

from livi.cli.extras import load
from livi.cli.parsing import new_command

DESCRIPTION = """\
Join the result files of `livi bench` and `livi compare --out FILE.json` in any number of folders into one page with
tables and figures: NAME.md and NAME.html, and a figure NAME-EXPERIMENT.png for each experiment. Runs of one experiment
with the same settings become one table. (For a report on one model of a table, see `livi fit --report` and `livi
evaluate --report`.)
"""
EXAMPLES = """\
examples:
  livi report results
  livi report uci-1 uci-2 toy --out all/results
"""


def add_command(commands: Any) -> None:
    parser = new_command(
        commands,
        "report",
        _report,
        summary="the results of benchmarks on one page",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    parser.add_argument("folders", nargs="+", metavar="DIR", help="a folder with result files, or one result file")
    parser.add_argument("--out", default="results-page", metavar="NAME", help="page, without .md (default %(default)s)")


def _report(chosen: argparse.Namespace) -> int:
    load("matplotlib", "plots")
    for path in load("livi.report.results_page").write_report(chosen.folders, chosen.out):
        print(f"written: {path}")
    return 0
