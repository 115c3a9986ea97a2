"""Results of `livi bench uci` on chosen splits and sets, and differences from one method, as in docs/benchmarks/uci.md.

    python -m benchmarks.uci_tables results/uci
    python -m benchmarks.uci_tables results/uci --splits 0,1,2,3,4 --sets boston,concrete,energy,wine-red,yacht
    python -m benchmarks.uci_tables results/uci --splits 0 --sets kin8nm,naval,power,protein

`livi report` has the means of all splits that there are; where methods have different ones, this compares like with
like. Nothing is run.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from statistics import mean

from livi.cli.options import names, seeds
from livi.experiments.datasets import uci
from livi.experiments.scoreboard import Board, Values, differences, markdown, standard_error
from livi.experiments.uci.methods import METHODS
from livi.experiments.uci.text import KIND
from livi.report.results import joined

FROM = "livi-polished"


def scores(folders: list[Path], splits: Collection[int] | None = None) -> Board:
    """Mean log likelihoods of the test rows."""
    rows = [row for result in joined(folders) if result.kind is KIND for row in result.sound]
    return KIND.board([row for row in rows if splits is None or row["split"] in splits], "log_score")


def means_table(found: Board, sets: tuple[str, ...]) -> str:
    most = {name: max(map(len, found.get(name, {}).values()), default=0) for name in sets}
    lines = []
    for method in METHODS:
        cells = [_cell(list(found.get(name, {}).get(method, {}).values()), most[name]) for name in sets]
        lines += [[METHODS[method].title, *cells]] if any(cells) else []
    return markdown(["", *sets], lines)


def differences_table(found: Board, sets: tuple[str, ...], start: str = FROM) -> str:
    """On the splits that both have."""
    none: Values = {}
    lines = []
    for method in METHODS:
        pairs = [[found.get(name, {}).get(each, none) for each in (start, method)] for name in sets]
        cells = [_cell(differences(*pair), 0, 3) for pair in pairs]
        lines += [[METHODS[method].title, *cells]] if any(cells) and method != start else []
    return markdown([f"{METHODS[start].title}, minus", *sets], lines)


def _cell(values: list[float], most: int, digits: int = 2) -> str:
    """With its standard error, and their number where others have more."""
    if not values:
        return ""
    error = standard_error(values)
    spread = "" if error is None else f" ± {error:.{digits}f}"
    return f"{mean(values):.{digits}f}{spread}{f' ({len(values)})' if len(values) < most else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.uci_tables", description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="results of livi bench uci")
    parser.add_argument("--splits", type=seeds, help="default: all that there are")
    parser.add_argument("--sets", type=names, default=uci.NAMES)
    chosen = parser.parse_args()
    found, sets = scores(chosen.folders, chosen.splits), tuple(chosen.sets)
    print("\n\n".join([means_table(found, sets), differences_table(found, sets)]))


if __name__ == "__main__":
    main()
