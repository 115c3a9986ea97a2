"""Which noise, latent dimension, prior and length suit `livi.fit`: held-out scores on data that no table reports.

    LIVI_DATA_DIR=... python -m benchmarks.choose_fit --group large-noise --device cuda --jobs 6 --out choices.json
    python -m benchmarks.choose_fit --group middle --jobs 8
    python -m benchmarks.choose_fit --group head --seeds 2

A network is trained plainly on part of a problem of `benchmarks/choose_problems.py`, given to
`livi.fit(..., start="net")` under each choice (`start="map"` in the group large-components), and scored on other rows.
Prints NLL by choice and problem, and the mean difference to the plain network.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import livi
from benchmarks.choose_problems import PROBLEMS, Problem
from livi.experiments.spreading import run_all
from livi.family.generators.sizing import latent_side
from livi.inference import FitError
from livi.model.defaults import default_prior
from livi.network import Layout
from livi.posterior.metrics import nll

Options = dict[str, Any]
Job = tuple[str, int, str]  # problem, seed, choice
PLAIN = "plain"  # the choice of the network itself


def relative(share: float) -> Callable[[Layout], livi.RelativeNoise]:
    return lambda layout: livi.RelativeNoise.for_layout(layout, share)


def fan_in(scale: float, last: float) -> Callable[[Layout], livi.Normal]:
    """N(0, scale^2 / fan-in), another scale in the last layer."""

    def prior(layout: Layout) -> livi.Normal:
        scales = [last if slot in layout.groups[-1].slots else scale for slot in layout.slots]
        pairs = zip(layout.slots, scales, strict=True)
        return livi.Normal(torch.cat([torch.full((slot.numel,), g / slot.fan_in**0.5) for slot, g in pairs]))

    return prior


def as_prior(prior: Any) -> Any:
    return livi.Normal(prior) if isinstance(prior, float) else prior


def large(examples_per_latent: float | None = None, noise: float = 0.1, prior: Any = 1.0, steps: int = 1000) -> Any:
    """An MMNN with one latent for so many examples, noise and start relative to each tensor."""

    def options(num_data: int) -> Options:
        dim = None if examples_per_latent is None else max(4, math.isqrt(round(num_data / examples_per_latent))) ** 2

        def generator(layout: Layout) -> livi.MMNN:
            sizes = [slot.numel for slot in layout.slots]
            usual = latent_side(layout.num_params, None) ** 2
            latents = usual if dim is None else min(dim, usual)
            return livi.MMNN.for_layout(layout, budget=4.0, latent_dim=latents, offset=True, scale_sizes=sizes)

        recipe = livi.Recipe(steps=steps, spread=0.1, relative_spread=True)
        return {"generator": generator, "noise": relative(noise), "prior": as_prior(prior), "recipe": recipe}

    return options


def middle(
    examples_per_latent: float | None = None,
    noise: float | None = 0.1,
    prior: Any = 1.0,
    steps: int = 1000,
    **recipe: Any,
) -> Any:
    """An MLP with a skip and one latent for so many examples (32 without); noise relative, or learned per weight."""

    def options(num_data: int) -> Options:
        dim = 32 if examples_per_latent is None else min(64, max(4, round(num_data / examples_per_latent)))

        def generator(layout: Layout) -> livi.MLP:
            made = livi.MLP(dim, layout.num_params, hidden=(32,), activation=nn.Tanh, skip=True, offset=True)
            return made.to(layout.device, layout.dtype)

        learned = lambda layout: livi.DiagonalNoise(layout.num_params, 0.03)  # noqa: E731
        chosen = learned if noise is None else relative(noise)
        schedule = livi.Recipe(steps=steps, **recipe)
        return {"generator": generator, "noise": chosen, "prior": as_prior(prior), "recipe": schedule}

    return options


def from_scratch(components: int, _: int) -> Options:
    """The default from MAP fits of its own, which is where components part."""
    return {"start": "map", "components": components}


def shares_of_rates(start: str) -> dict[str, Any]:
    """Short fits of all weights of a classifier at shares of the rates."""
    recipes = {"the default": livi.Recipe(steps=600)} | {
        f"rates of {share:g}": livi.Recipe(
            steps=600, affine_rate=share * 3e-3, nonlinear_rate=share * 1e-3, hyper_rate=share * 3e-2
        )
        for share in (1.0, 0.3, 0.2, 0.1)
    }
    return {
        name: lambda _, recipe=recipe: {"start": start, "last_layer": "sampled", "recipe": recipe}
        for name, recipe in recipes.items()
    }


def priors_of_a_part(layers: int, last_layer: str = "sampled") -> dict[str, Any]:
    """Fits of so many last layers of a network under different priors."""

    def before(layout: Layout) -> livi.Normal:
        """The default until now: as if the weights that are fitted were the whole network."""
        m, classes = layout.num_params, layout.module[-1].out_features > 2
        if m <= 300:
            return livi.Normal(1.0)
        least, most, last = (1.0, math.inf, 8.0 if classes else 3.0) if m <= 5000 else (0.3, 1.0, 3.0)
        scales = [
            max(least, min(most, (last if slot in layout.groups[-1].slots else 3.0) / math.sqrt(slot.fan_in)))
            for slot in layout.slots
        ]
        pairs = zip(layout.slots, scales, strict=True)
        return livi.Normal(torch.cat([torch.full((slot.numel,), scale) for slot, scale in pairs]))

    def whole(layout: Layout) -> livi.Normal:
        """What the same weights have when all of the network is fitted."""
        everything = Layout(layout.module)
        classes = layout.module[-1].out_features > 2
        scale = default_prior(everything, classes=classes).scale().expand(everything.num_params)
        names = {slot.name for slot in layout.slots}
        return livi.Normal(torch.cat([scale[s.start : s.stop] for s in everything.slots if s.name in names]))

    def by_layer(gain: float) -> Callable[[Layout], livi.Normal]:
        def prior(layout: Layout) -> livi.Normal:
            widest = {group.name: max(slot.fan_in for slot in group.slots) for group in layout.groups}
            pairs = [(group.numel, gain / math.sqrt(widest[group.name])) for group in layout.groups]
            return livi.Normal(torch.cat([torch.full((numel,), scale) for numel, scale in pairs]))

        return prior

    priors = {"by the chosen weights": before, "by the whole network": whole}
    priors |= {f"{gain:g} / sqrt(fan-in of the layer)": by_layer(gain) for gain in (0.5, 1.0, 2.0, 3.0)}
    learned = lambda _: livi.Normal(learned=True)  # noqa: E731
    quick = livi.Recipe(steps=300, num_samples=32, num_entropy_samples=2)
    return {
        name: lambda _, prior=prior: {"prior": prior, "last": layers, "last_layer": last_layer, "recipe": quick}
        for name, prior in (priors | {"learned": learned}).items()
    }


def last_layers(net: nn.Module, count: int) -> list[str]:
    """Patterns of the last linear layers."""
    names = [name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    return [f"{name}.*" for name in names[-count:]]


PARTS = ["teacher", "teacher-narrow", "teacher-wide", "rings", "friedman-1"]
LARGE = [name for name in PROBLEMS if name.startswith(("kmnist", "letters")) and not name.endswith("small")]
MNIST = ["mnist-lenet-50000"]
CNNS = ["kmnist-cnn-small", "letters-cnn-small"]
MIDDLE = [name for name in PROBLEMS if name not in (*LARGE, *MNIST, *CNNS) and not PROBLEMS[name].rate]
LABELS = [name for name in MIDDLE if PROBLEMS[name].likelihood is livi.Categorical]
GROUPS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "large-latents": (
        LARGE,
        {f"N / {share}": large(share) for share in (5, 10, 20, 40, 80)}
        | {
            "N / 20, noise 0.05": large(20, 0.05),
            "N / 20, noise 0.2": large(20, 0.2),
            "N / 20, N(0, 0.3^2)": large(20, prior=0.3),
            "N / 20, fan-in 3": large(20, prior=fan_in(3.0, 3.0)),
            "N / 20, fan-in 3, last 8": large(20, prior=fan_in(3.0, 8.0)),
        },
    ),
    "large-priors": (
        [name for name in LARGE if name != "letters-lenet-15000"],
        {
            "any": large(),
            "any, N(0, 0.5^2)": large(prior=0.5),
            "N / 5": large(5),
            "N / 5, N(0, 0.5^2)": large(5, prior=0.5),
            "N / 5, fan-in 3": large(5, prior=fan_in(3.0, 3.0)),
            "N / 10, N(0, 0.5^2)": large(10, prior=0.5),
        },
    ),
    "mnist": (
        MNIST,
        {
            "fixed 0.05, N(0, 1)": lambda _: {
                "noise": lambda _: livi.FixedNoise(0.05),
                "prior": livi.Normal(1.0),
                "recipe": livi.Recipe(steps=4000, spread=0.01, relative_spread=False),
            },
            "N(0, 1)": large(10, prior=1.0, steps=4000),
            "N(0, 0.5^2)": large(10, prior=0.5, steps=4000),
            "noise 0.2, N(0, 1)": large(10, 0.2, steps=4000),
        },
    ),
    "large-rates": (
        LARGE,
        {
            f"rates {rate:g}": lambda _, rate=rate: {"recipe": livi.Recipe(affine_rate=rate, nonlinear_rate=rate)}
            for rate in (1e-3, 3e-3, 1e-2)
        }
        | {
            f"rates {rate:g}, N(0, {prior:g}^2)": lambda _, rate=rate, prior=prior: {
                "recipe": livi.Recipe(affine_rate=rate, nonlinear_rate=rate),
                "prior": livi.Normal(prior),
            }
            for rate, prior in ((1e-3, 0.5), (3e-3, 0.5), (1e-3, 0.3), (3e-3, 0.3))
        },
    ),
    "large-noise": (
        LARGE,
        {"default": lambda _: {}}
        | {f"noise {share:g}": lambda _, share=share: {"noise": relative(share)} for share in (0.3, 0.5)}
        | {
            f"noise {share:g}, N(0, 0.5^2)": lambda _, share=share: {
                "noise": relative(share),
                "prior": livi.Normal(0.5),
            }
            for share in (0.3, 0.5)
        },
    ),
    "large-components": (LARGE, {f"{count} components": partial(from_scratch, count) for count in (1, 3, 5)}),
    "samples": (
        ["waves"],
        {
            f"{count} samples": middle(noise=None, prior=fan_in(3.0, 3.0), steps=3000, num_samples=count)
            for count in (64, 256)
        },
    ),
    "middle": (
        MIDDLE,
        {
            "d = 32, learned noise": middle(noise=None),
            "N / 10": middle(10),
            "N / 20": middle(20),
            "N / 40": middle(40),
            "N / 20, noise 0.3": middle(20, 0.3),
            "N / 20, fan-in 3": middle(20, prior=fan_in(3.0, 3.0)),
            "N / 20, fan-in 3, last 8": middle(20, prior=fan_in(3.0, 8.0)),
            "N / 20, noise 0.3, fan-in 3, last 8": middle(20, 0.3, prior=fan_in(3.0, 8.0)),
            "learned noise, fan-in 3, last 8": middle(noise=None, prior=fan_in(3.0, 8.0)),
            "N / 20, 3000 steps": middle(20, steps=3000),
        },
    ),
    "middle-rates": ([*CNNS, *LABELS], shares_of_rates("net")),
    "middle-rates-map": ([*CNNS, *LABELS], shares_of_rates("map")),
    "head": (PARTS, priors_of_a_part(1)),
    "two-layers": ([name for name in PARTS if name != "teacher-wide"], priors_of_a_part(2)),
    "two-layers-exact": (["friedman-numbers"], priors_of_a_part(2, "exact")),
    "head-of-noise": (
        ["friedman-stopped", "friedman-long"],
        {
            "last layer": lambda _: {"last": 1},
            "last layer, a tenth of the rates": lambda _: {
                "last": 1,
                "recipe": livi.Recipe(affine_rate=5e-4, nonlinear_rate=2e-4, hyper_rate=1e-3),
            },
            "last layer, chains": lambda _: {"last": 1, "polish": True},
            "last two layers": lambda _: {"last": 2},
        },
    ),
}


def train_plainly(problem: Problem, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """Adam with a cosine schedule from 1e-3 (pictures) or 1e-2, minibatches of 64, decay 1e-4 (1e-2 of noise).

    A problem may have a rate of its own.
    """
    torch.manual_seed(seed)
    net, likelihood = problem.network().to(x.device), problem.likelihood()
    rng = torch.Generator().manual_seed(seed)
    batches = -(-len(x) // 64)
    decay = 1e-4 if isinstance(likelihood, livi.Categorical) else 1e-2
    rate = problem.rate or (1e-3 if x.ndim > 2 else 1e-2)
    optimiser = torch.optim.Adam(net.parameters(), rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, problem.epochs * batches)
    net.train()
    for _ in range(problem.epochs):
        for rows in torch.randperm(len(x), generator=rng).to(x.device).tensor_split(batches):
            loss = -likelihood.log_prob(net(x[rows])[None], y[rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval()


@lru_cache(maxsize=1)
def _trained(name: str, seed: int, device: str) -> tuple[Tensor, Tensor, nn.Module]:
    """All rows of a problem, and its network trained on the first ones; choices of a problem come one after another."""
    problem = PROBLEMS[name]
    x, y = (part.to(device) for part in problem.rows(torch.Generator().manual_seed(seed)))
    return x, y, train_plainly(problem, x[: problem.count], y[: problem.count], seed)


def run(job: Job, group: str, device: str) -> dict[str, Any]:
    """The plain network's score, or that of a fit from it under this choice."""
    name, seed, choice = job
    torch.set_num_threads(1)
    problem = PROBLEMS[name]
    train, held = slice(0, problem.count), slice(-problem.held_out, None)
    x, y, net = _trained(name, seed, device)
    row: dict[str, Any] = {"choice": choice, "problem": name, "seed": seed}
    if choice == PLAIN:
        own = livi.Posterior(_Point(Layout(net)), problem.likelihood()).predict(x[held], num_samples=1)
        return row | {"nll": nll(own, y[held])}
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            options = {"start": "net"} | GROUPS[group][1][choice](problem.count)
            if "last" in options:
                options["include"] = last_layers(net, options.pop("last"))
            posterior = livi.fit(net, (x[train], y[train]), problem.likelihood(), seed=seed, progress=False, **options)
        except FitError as error:
            posterior, row["error"] = error.posterior, str(error)
    row["seconds"] = time.perf_counter() - started
    row["nll"] = nll(posterior.predict(x[held]), y[held])
    row["bound"] = float(np.mean([entry["bound"] for entry in posterior.history[-10:]]))
    row["warnings"] = [str(warning.message)[:80] for warning in caught]
    return row


class _Point:
    """A single network as a sampler."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        return self.layout.flatten().expand(num_samples, -1)


def table(rows: list[dict[str, Any]]) -> str:
    """Mean NLL by choice and problem, and how far it lies behind the best choice of a problem, on average."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    best = {
        (row["problem"], row["seed"]): min(
            other["nll"] for other in rows if (other["problem"], other["seed"]) == (row["problem"], row["seed"])
        )
        for row in rows
    }
    lines = ["| choice | " + " | ".join(problems) + " | behind the best |", "|---" * (len(problems) + 2) + "|"]
    for choice in dict.fromkeys(row["choice"] for row in rows):
        own = [row for row in rows if row["choice"] == choice]
        cells = [
            f"{np.mean([row['nll'] for row in own if row['problem'] == problem] or [np.nan]):.3f}"
            for problem in problems
        ]
        gain = np.mean([row["nll"] - best[row["problem"], row["seed"]] for row in own])
        lines.append(f"| {choice} | " + " | ".join(cells) + f" | {gain:+.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", default="middle", choices=GROUPS)
    parser.add_argument("--only", default="", help="problems, separated by commas; all of the group without")
    parser.add_argument("--choices", default="", help="some of the group's, with | between; all without")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    problems, choices = GROUPS[chosen.group]
    problems = chosen.only.split(",") if chosen.only else problems
    names = chosen.choices.split("|") if chosen.choices else list(choices)
    order = [PLAIN, *names]
    rows: list[dict[str, Any]] = []
    fit = partial(run, group=chosen.group, device=chosen.device)
    for row in run_all(fit, list(product(problems, range(chosen.seeds), order)), chosen.jobs):
        rows.append(row)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(rows, indent=1))
    print(table(sorted(rows, key=lambda row: (order.index(row["choice"]), problems.index(row["problem"])))))


if __name__ == "__main__":
    main()
