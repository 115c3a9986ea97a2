"""What one mode misses of the evidence: python -m benchmarks.bench_symmetries [--units 1,2,3]

A 1-h-1 tanh network is the same function with its hidden units in another order, or with the signs in and out of a unit
turned: h! 2^h copies of every weight vector. One component of `livi.fit` is around one of them, so that the evidence by
`livi.reweight` should miss log(h! 2^h) of that of a population that begins at the prior, `livi.polish(start="prior")`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings

import torch
from torch import Tensor, nn

import livi
from livi.experiments.scoreboard import standard_error

QUICK = ["--units", "1", "--seeds", "1"]
FULL = ["--units", "1,2,3"]
OBS_STD, PRIOR_STD = 0.1, 2.0
RECIPE = livi.Recipe(steps=1500, map_steps=1000, num_samples=32)


def steps_of(units: int) -> tuple[Tensor, Tensor]:
    """So many steps up and down, each of which takes a unit of its own."""
    x = torch.linspace(-3, 3, 40)[:, None]
    centres = [0.5] if units == 1 else torch.linspace(-1.8, 1.8, units + 2)[1:-1].tolist()
    y = torch.zeros(40)
    for unit, centre in enumerate(centres):
        y += (1.5 if unit % 2 == 0 else -1.0) * torch.tanh((2.0 + 0.5 * unit) * (x[:, 0] - centre))
    return x, y + OBS_STD * torch.randn(40, generator=torch.Generator().manual_seed(units))


def row(units: int, seeds: int) -> str:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, units), nn.Tanh(), nn.Linear(units, 1))
    options = {"prior": livi.Normal(PRIOR_STD), "standardise": False, "recipe": RECIPE, "progress": False}
    posterior = livi.fit(net, steps_of(units), livi.Gaussian(OBS_STD), **options)
    one = livi.ReweightReport.of(livi.reweight(posterior, progress=False))
    population = {"chains": 256, "draws": 2048, "steps": 30, "start": "prior", "progress": False}
    every = [livi.polish(posterior, seed=seed, **population) for seed in range(seeds)]
    values = [livi.PolishReport.of(each).log_evidence or math.nan for each in every]
    error = standard_error(values)
    spread = "" if error is None else f" ± {error:.2f}"
    missing = statistics.mean(values) - one.log_evidence[0]
    copies = math.log(math.factorial(units)) + units * math.log(2.0)
    return (
        f"| {units} | {one.log_evidence[0]:.2f} ± {one.log_evidence[1]:.2f} | {one.effective:.0f} of {one.samples:,}, "
        f"{one.pareto_shape:.2f} | {statistics.mean(values):.2f}{spread} | {missing:.2f} | {copies:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", default="1,2,3")
    parser.add_argument("--seeds", type=int, default=3, help="of the population")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| units | of one mode | effective draws, Pareto shape | from the prior | missing | log(h! 2^h) |")
    print("|---" * 6 + "|")
    for units in map(int, chosen.units.split(",")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(row(units, chosen.seeds), flush=True)


if __name__ == "__main__":
    main()
