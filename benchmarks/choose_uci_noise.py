"""Whether the noise of `livi bench uci` is taken from the fit or from validation rows, and how (`Method.noise`).

    LIVI_DATA_DIR=... python -m benchmarks.choose_uci_noise
    LIVI_DATA_DIR=... python -m benchmarks.choose_uci_noise --sets yacht,boston --methods laplace_linearised,ivon \
        --ways learned,validated,mean

Of the training rows of published splits from 10 on a tenth is held out and scored; choices are made and fits are to the
others, as the benchmark does it with all training rows. Test rows have no part in it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from livi.cli.options import count, names, seeds
from livi.experiments.datasets import uci
from livi.experiments.datasets.pictures import data_folder
from livi.experiments.runs import check_names
from livi.experiments.uci.data import Split
from livi.experiments.uci.methods import METHODS
from livi.experiments.uci.search import choose, fitted, log_score, predicted

SETS = ("boston", "concrete", "energy", "wine-red", "yacht")
HELD = 0.1  # of the training rows
WAYS = ("learned", "either", "validated", "mean")


def scores(folder: Path, name: str, number: int, method: str, steps: int, ways: tuple[str, ...]) -> dict[str, float]:
    """Log score of the held-out rows by who says the noise."""
    table = uci.read(folder, name)
    train, _ = uci.read_split(folder, name, number, len(table.inputs))
    order = np.random.default_rng(1000 + number).permutation(train)
    held = round(HELD * len(train))
    split = Split.of(table, order[held:], order[:held], number, search_rows=2000)
    found = {}
    for way in ways:
        asked = replace(METHODS[method], noise=way)
        choice = choose(asked, split, steps=steps, seed=number)
        posterior = fitted(asked, choice.candidate, split.whole, steps=steps, seed=number, noise=choice.noise)
        found[way] = log_score(predicted(posterior, split.whole, number), split.whole)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_uci_noise", description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=names, default=SETS)
    parser.add_argument("--splits", type=seeds, default=(10, 11))
    parser.add_argument("--methods", type=names, default=("livi",))
    parser.add_argument("--steps", type=count, default=1000)
    parser.add_argument("--ways", type=names, default=WAYS[:2], help=f"of {','.join(WAYS)}")
    chosen = parser.parse_args()
    check_names("ways", chosen.ways, WAYS)
    torch.set_num_threads(1)
    folder = data_folder() / "uci"
    print(
        f"| set | method | splits | {' | '.join(chosen.ways)} |\n|---|---|---|{'---|' * len(chosen.ways)}", flush=True
    )
    for name in chosen.sets:
        for method in chosen.methods:
            found = [scores(folder, name, number, method, chosen.steps, chosen.ways) for number in chosen.splits]
            cells = [
                f"{mean(each[way] for each in found):.3f} ({', '.join(f'{each[way]:.2f}' for each in found)})"
                for way in chosen.ways
            ]
            print(f"| {name} | {method} | {len(found)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
