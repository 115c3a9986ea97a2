"""Where Markov chains on the toy problems should start: python -m benchmarks.bench_toy_starts [--data A,B] [--out FILE]

W2 to NUTS of chains over the 94 weights before the last layer, which is integrated out, after so many gradients a
chain: from draws of `livi.fit`, from draws of a mixture of three, from MAP fits, from draws of the prior, and from
draws of the prior that are cooled down together (`livi.sampling.tempering`). Gradients of MAP fits and of the cooling
are counted; a fit's time is CPU seconds of its own. Seeds below 100, on which settings may be chosen.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from livi.experiments.toy import as_tensors, fit_toy, network
from livi.experiments.toy_data import OBS_STD, PRIOR_STD, reference, toy_data, wasserstein2
from livi.family.last_layer import ExactLastLayer
from livi.inference import Recipe, fit
from livi.model.likelihoods import Gaussian
from livi.model.priors import Normal
from livi.network import apply_many
from livi.posterior.posterior import Posterior
from livi.running import kept_memory
from livi.sampling.chain_target import ChainTarget
from livi.sampling.chains import ENERGY_ERROR, Differentiated, run_chains
from livi.sampling.convergence import effective_size, split_rhat
from livi.sampling.log_joint import differentiated_joint
from livi.sampling.tempering import anneal

QUICK = ["--data", "A", "--starts", "map,prior,cooled"]
FULL: list[str] = []
STARTS = ("livi", "livi-mixture-3", "map", "prior", "cooled")
BUDGETS = {"A": (200, 400, 1000), "B": (1000, 2000, 4000)}  # gradients a chain
MAP_STEPS, MAP_RATE = 150, 0.03
KEPT, WARM_UP = 16, 0.3  # draws of a chain, and share of its steps before them


@dataclass(frozen=True)
class Start:
    """Where chains start, CPU seconds of a fit before it, and gradients that are part of the chains' budget."""

    theta: Tensor  # (C, m)
    seconds: float = 0.0
    gradients: int = 0


def start_of(kind: str, name: str, seed: int, chains: int, target: ChainTarget, density: Differentiated) -> Start:
    rng = torch.Generator().manual_seed(seed)
    prior, count = target.moved.prior, target.moved.layout.num_params
    if kind.startswith("livi"):
        began = time.process_time()
        posterior = fit_toy(name, kind, seed).posterior
        return Start(target_of(posterior).start(posterior, chains, rng), time.process_time() - began)
    theta = prior.sample(chains, count, rng)
    if kind == "map":
        return Start(map_fits(density, theta), gradients=MAP_STEPS)
    if kind == "cooled":
        found = anneal(density, prior.log_prob, theta, energy_error=ENERGY_ERROR, rng=rng)
        return Start(found.theta, gradients=found.gradients)
    return Start(theta)


def map_fits(density: Differentiated, theta: Tensor) -> Tensor:
    """Adam on the log density of each row, its rate falling to zero over the second half."""
    weights = theta.clone().requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=MAP_RATE)
    for step in range(MAP_STEPS):
        optimiser.param_groups[0]["lr"] = MAP_RATE * min(1.0, 2.0 - 2.0 * step / MAP_STEPS)
        weights.grad = -density(weights.detach())[1]
        optimiser.step()
    return weights.detach()


def target_of(posterior: Posterior) -> ChainTarget:
    return ChainTarget.of(posterior, None, None)


def model(name: str) -> Posterior:
    """Any posterior of the problem, for what chains run on."""
    brief = Recipe(steps=1, map_steps=1, map_restarts=1, num_samples=2, num_entropy_samples=2)
    prior = Normal(PRIOR_STD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = as_tensors(toy_data(name))
        return fit(network(0), data, Gaussian(OBS_STD), prior=prior, recipe=brief, progress=False)


def measure(name: str, seed: int, target: ChainTarget, density: Differentiated, start: Start, gradients: int) -> Any:
    """One row: chains from there, until so many gradients are spent."""
    steps = max(2 * KEPT, (gradients - start.gradients) // 2)
    rng, began = torch.Generator().manual_seed(seed), time.process_time()
    with kept_memory():
        warm_up = int(WARM_UP * steps)
        run = run_chains(density, start.theta, steps=steps, warm_up=warm_up, draws=KEPT, rng=rng)
    seconds, truth = time.process_time() - began, reference(name)
    assert isinstance(target.exact, ExactLastLayer)
    places = torch.as_tensor(truth.data.grid, dtype=torch.float32)[:, None]
    networks = target.completed(run.draws, rng)
    values = apply_many(target.whole.layout, networks.flatten(0, 1), places).squeeze(-1)
    by_chain = values.unflatten(0, networks.shape[:2])
    return {
        "gradients": gradients,
        "w2_to_nuts": wasserstein2(values, truth.quantiles),
        "rhat": float(split_rhat(by_chain).max()),
        "effective": float(effective_size(by_chain).min()),
        "chain_seconds": seconds,
    }


def rows_of(name: str, kinds: list[str], seed: int, chains: int, say: Callable[[str], None]) -> list[Any]:
    target = target_of(model(name))
    density, rows = differentiated_joint(target.moved, chains), []
    for kind in kinds:
        began = time.process_time()
        start = start_of(kind, name, seed, chains, target, density)
        before = time.process_time() - began
        for gradients in BUDGETS[name]:
            if gradients - start.gradients < 4 * KEPT:
                continue
            row = {"data": name, "start": kind, "seed": seed, "chains": chains, "start_seconds": before}
            rows.append(row | measure(name, seed, target, density, start, gradients))
            say(json.dumps(rows[-1]))
    return rows


def table(rows: list[Any]) -> str:
    """W2 for each start and number of gradients, and the CPU seconds of start and chains at the most."""
    lines = []
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        budgets = sorted({row["gradients"] for row in own})
        heads = [f"{gradients:,}" for gradients in budgets]
        lines += [
            "",
            f"| {name}: W2 after so many gradients a chain | {' | '.join(heads)} | CPU s before | of chains |",
        ]
        lines += ["|---" * (len(budgets) + 3) + "|"]
        for kind in dict.fromkeys(row["start"] for row in own):
            found = [row for row in own if row["start"] == kind]
            cells = []
            for gradients in budgets:
                values = [row["w2_to_nuts"] for row in found if row["gradients"] == gradients]
                cells.append(", ".join(f"{value:.3f}" for value in values))
            mean = sum(row["start_seconds"] for row in found) / len(found)
            longest = [row["chain_seconds"] for row in found if row["gradients"] == budgets[-1]]
            last = f"{sum(longest) / len(longest):.0f}" if longest else ""
            lines.append(f"| {kind} | {' | '.join(cells)} | {mean:.0f} | {last} |")
    return "\n".join(lines[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="A,B")
    parser.add_argument("--starts", default=",".join(STARTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--out", type=Path, help="a JSON file, added to if it is there")
    parser.add_argument("--read", type=Path, help="print the table of this file, and run nothing")
    chosen = parser.parse_args()
    if chosen.read is not None:
        print(table(json.loads(chosen.read.read_text())))
        return
    torch.set_num_threads(1)
    rows = json.loads(chosen.out.read_text()) if chosen.out is not None and chosen.out.exists() else []
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        for name in chosen.data.split(","):
            for kind in chosen.starts.split(","):
                rows += rows_of(name, [kind], seed, chosen.chains, print)
                if chosen.out is not None:
                    chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
