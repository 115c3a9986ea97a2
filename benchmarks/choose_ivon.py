"""The learning rate of `livi.rivals.fit_ivon`: the bound that it reaches on training data of a made-up problem.

    python -m benchmarks.choose_ivon

Bounds in nats, higher is better, of 240 points of sin(2 x1) x2 with known noise, beside mean field's, which has the
same family: a rate that is too large shows as a bound far below.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import livi
from livi.rivals import fit_ivon, fit_mean_field

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
RECIPE = livi.Recipe(map_steps=1000, map_restarts=2, steps=1500, num_samples=16)


def bound(problem: livi.Problem, mean: Tensor, std: Tensor, rng: torch.Generator) -> float:
    """E log p(D | theta) - KL(q || p) of independent normal weights."""
    theta = mean + std * torch.randn(500, len(mean), generator=rng)
    scale = problem.prior.scale()
    divergence = (scale.log() - std.log() + (std**2 + mean**2) / (2 * scale**2) - 0.5).sum()
    return float(problem.on_data(theta)[0].mean() - divergence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3000)
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    inputs = 4 * torch.rand(240, 2) - 2
    data = (inputs, torch.sin(2 * inputs[:, :1]) * inputs[:, 1:] + 0.2 * torch.randn(240, 1))
    net, likelihood = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1)), livi.Gaussian(0.2)
    problem, rng = livi.Problem.of(net, data, likelihood), torch.Generator().manual_seed(chosen.seed)
    same = {"recipe": RECIPE, "seed": chosen.seed, "progress": False}
    sampler = fit_mean_field(net, data, likelihood, **same).sampler
    print(f"mean field  {bound(problem, sampler.generators[0].offset, sampler.noises[0].std(), rng):12.1f}", flush=True)
    for rate in RATES:
        sampler = fit_ivon(net, data, likelihood, rate=rate, steps=chosen.steps, **same).sampler
        print(f"rate {rate:<6g} {bound(problem, sampler.mean, sampler.std, rng):12.1f}", flush=True)


if __name__ == "__main__":
    main()
