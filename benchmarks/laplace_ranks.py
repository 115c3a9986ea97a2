"""Losses of sampled Laplace from a low rank, from leaving other curvature out, and from not being linearised.

    LIVI_DATA_DIR=... python -m benchmarks.laplace_ranks [--data yacht]

One network of 50 hidden units, trained on nine tenths of a UCI set (400 rows at most), whose Laplace approximations are
scored on the others: NLL of standardised targets, lower is better. "linearised" are predictions with the same Gaussian
by the network linearised at the MAP estimate.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

import livi
from livi.experiments.datasets import uci
from livi.experiments.datasets.pictures import data_folder
from livi.network.linearised import Linearised
from livi.rivals import fit_laplace_linearised, fit_laplace_low_rank, fit_map

RANKS = (10, 50, 200, 10_000)  # the last is all
RECIPE = livi.Recipe(map_steps=2000, map_restarts=1)

Rows = tuple[Tensor, Tensor]


def rows(name: str) -> tuple[Rows, Rows]:
    """Standardised rows to train on, and others."""
    table = uci.read(data_folder() / "uci", name)
    order = np.random.default_rng(0).permutation(len(table.targets))[:400]
    count = int(0.9 * len(order))
    x, y = (torch.tensor(part[order], dtype=torch.float32) for part in (table.inputs, table.targets))
    x = (x - x[:count].mean(0)) / x[:count].std(0).clamp_min(1e-6)
    y = (y - y[:count].mean()) / y[:count].std()
    return (x[:count], y[:count]), (x[count:], y[count:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="yacht", choices=uci.NAMES)
    train, test = rows(parser.parse_args().data)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(train[0].shape[1], 50), nn.ReLU(), nn.Linear(50, 1))

    def score(posterior: livi.Posterior) -> float:
        return livi.metrics.nll(posterior.predict(test[0]), test[1])

    same = {"recipe": RECIPE, "seed": 0, "progress": False}
    print(
        f"MAP {score(fit_map(network(), train, livi.Gaussian(), **same)):.2f}; Kronecker factors, linearised ", end=""
    )
    print(f"{score(fit_laplace_linearised(network(), train, livi.Gaussian(), **same)):.2f}\n")
    print("| rank | other curvature | precision of the prior | noise | NLL | linearised |\n|---|---|---|---|---|---|")
    for rank in RANKS:
        for rest in (False, True):
            posterior = fit_laplace_low_rank(network(), train, livi.Gaussian(), rank=rank, rest=rest, **same)
            kept, total = posterior.plan["rank"], posterior.layout.num_params
            if kept == total and rest:
                break  # there is none
            facts = f"{posterior.plan['prior_precision']:.2f} | {posterior.plan['noise']:.3f} | {score(posterior):.2f}"
            posterior.sampler.layout = Linearised(posterior.sampler.layout, posterior.sampler.centre)
            how = "" if kept == total else "its average" if rest else "left out"
            print(f"| {kept} of {total} | {how} | {facts} | {score(posterior):.2f} |", flush=True)


if __name__ == "__main__":
    main()
