"""Results of `livi bench uci` on chosen splits and sets, and differences from one method, as in docs/benchmarks/uci.md.

    python -m benchmarks.uci_tables results/uci
    python -m benchmarks.uci_tables results/uci --splits 0,1,2,3,4 --sets boston,concrete,energy,wine-red,yacht
    python -m benchmarks.uci_tables results/uci --splits 0 --sets kin8nm,naval,power,protein

`livi report` has the means of all splits that there are; where methods have different ones, this compares like with
like. Nothing is run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import TypeAlias

from livi.cli.options import names, seeds
from livi.experiments.datasets import uci
from livi.experiments.uci.methods import METHODS
from livi.report.results import joined

FROM = "livi-polished"

Scores: TypeAlias = dict[tuple[str, str], dict[int, float]]  # of a set and a method, by split


def scores(folders: list[Path], splits: Collection[int] | None = None) -> Scores:
    """Mean log likelihoods of the test rows."""
    found: Scores = {}
    for result in joined(folders):
        for row in result.sound if result.experiment == "uci" else []:
            if splits is None or row["split"] in splits:
                found.setdefault((row["data"], row["method"]), {})[row["split"]] = row["log_score"]
    return found


def means_table(found: Scores, sets: tuple[str, ...]) -> list[str]:
    most = {name: max((len(values) for (data, _), values in found.items() if data == name), default=0) for name in sets}
    lines = _head("", sets)
    for method in METHODS:
        cells = [_cell(found.get((name, method), {}).values(), most[name]) for name in sets]
        lines += [_line(METHODS[method].title, cells)] if any(cells) else []
    return lines


def differences_table(found: Scores, sets: tuple[str, ...], start: str = FROM) -> list[str]:
    """On the splits that both have."""
    lines = _head(f"{METHODS[start].title}, minus", sets)
    for method in METHODS:
        cells = [_cell(_apart(found.get((name, start), {}), found.get((name, method), {})), 0, 3) for name in sets]
        lines += [_line(METHODS[method].title, cells)] if any(cells) and method != start else []
    return lines


def _apart(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    return [ours[split] - theirs[split] for split in ours if split in theirs]


def _cell(values: Iterable[float], most: int, digits: int = 2) -> str:
    """With its standard error, and their number where others have more."""
    known = list(values)
    if not known:
        return ""
    error = f" ± {stdev(known) / math.sqrt(len(known)):.{digits}f}" if len(known) > 1 else ""
    return f"{mean(known):.{digits}f}{error}{f' ({len(known)})' if len(known) < most else ''}"


def _head(title: str, sets: tuple[str, ...]) -> list[str]:
    return [_line(title, sets), "|" + "---|" * (len(sets) + 1)]


def _line(title: str, cells: Iterable[str]) -> str:
    return f"| {title} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.uci_tables", description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="results of livi bench uci")
    parser.add_argument("--splits", type=seeds, help="default: all that there are")
    parser.add_argument("--sets", type=names, default=uci.NAMES)
    chosen = parser.parse_args()
    found, sets = scores(chosen.folders, chosen.splits), tuple(chosen.sets)
    print("\n".join([*means_table(found, sets), "", *differences_table(found, sets)]))


if __name__ == "__main__":
    main()
