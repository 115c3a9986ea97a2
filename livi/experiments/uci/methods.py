"""The methods of the UCI benchmark: how each is fitted in a number of steps, and its candidates.

Every method has the same network, noise that does not vary with the inputs, and the same number of optimiser steps,
three times as many with minibatches. Fits on a bound start from MAP estimates that took as many steps as the bound
does; methods that consist of MAP estimates have both together. With an exact last layer every step sees all rows, so
more rows do not need more steps. Each method chooses among three candidates by validation rows: for the width of the
prior, or for MC dropout the probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from livi.family.entropy import Lanczos, SmallestSingularValue
from livi.family.last_layer.problem import ROWS
from livi.inference import Recipe, fit
from livi.model.priors import Normal, Prior, Relevance
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals import METHODS as RIVALS
from livi.sampling import polish

HIDDEN = 50
MEMBERS = 5  # of an ensemble, and components of a mixture
SAMPLES = (16, 64)  # fewest and most weight vectors a step, where all weights are sampled
OUTPUTS = 32_000  # weight vectors times rows of a step, within these limits
RESTARTS = 4
GAIN = 1.5  # of the prior of MC dropout and NUTS

MAX_FULL_BATCH = 2048  # rows; more come in minibatches
MINIBATCH_STEPS = 3  # factor of the number of steps with minibatches

Options = Callable[[int, int], dict[str, Any]]  # from the numbers of steps and of rows


@dataclass(frozen=True)
class Candidate:
    """A setting among which validation chooses.

    Args:
        gain: prior standard deviations are gain / sqrt(fan-in); the last bias has that of the weights of its layer.
        learned: whether the prior scale of each input, and of each further tensor, is learned, starting from these.
        dropout: probability before the last layer.
    """

    gain: float = GAIN
    learned: bool = False
    dropout: float = 0.0

    def __str__(self) -> str:
        width = f"gain {self.gain:g}{', learned' if self.learned else ''}"
        return f"{width}, dropout {self.dropout:g}" if self.dropout else width

    def network(self, features: int, seed: int) -> nn.Sequential:
        """One hidden layer of 50 ReLUs, initialised by torch under this seed."""
        dropped = [nn.Dropout(self.dropout)] if self.dropout else []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), *dropped, nn.Linear(HIDDEN, 1))

    def prior(self, layout: Layout) -> Prior:
        gains = {slot.name: self.gain for slot in layout.slots}
        gains[layout.slots[-1].name] /= math.sqrt(HIDDEN)  # the last bias, as targets have mean 0
        if self.learned:
            return Relevance.for_layout(layout, gain=self.gain, gains=gains)
        each = [torch.full((slot.numel,), gains[slot.name] / math.sqrt(slot.fan_in)) for slot in layout.slots]
        return Normal(torch.cat(each)).to(layout.device, layout.dtype)


@dataclass(frozen=True)
class Method:
    """How a method is used in this benchmark.

    Args:
        fit: `fit(net, data, likelihood, *, prior, seed, progress, **options)`.
        options: for a number of steps and of rows.
        noise: "learned" with the weights; or, for methods that overfit and would learn the noise of training rows, the
            best for validation rows ("validated"), or the best there for the mean of the networks ("mean"); "either"
            is "validated" if that gains more than a standard error on validation rows, else "learned".
        package: needed by the method.
    """

    title: str
    fit: Callable[..., Posterior]
    options: Options
    candidates: tuple[Candidate, ...]
    noise: str = "learned"
    package: str | None = None

    @property
    def installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None


WITH_LEARNED = (Candidate(1.5), Candidate(6.0), Candidate(3.0, learned=True))
FIXED = (Candidate(1.5), Candidate(3.0), Candidate(6.0))
DROPOUT = tuple(Candidate(dropout=p) for p in (0.01, 0.05, 0.1))
ONE = (Candidate(GAIN),)  # for a method that takes hours


def _exact(steps: int, rows: int, *, restarts: int = 1) -> dict[str, Any]:
    """As many steps after a MAP fit for each component; with more than 20,000 rows all weights are sampled."""
    if rows > ROWS:
        return _on_the_bound(steps, rows)
    return {"recipe": Recipe(steps=steps, map_steps=steps, map_restarts=restarts)}


def _on_the_bound(steps: int, rows: int) -> dict[str, Any]:
    each = _longer(steps, rows)
    return {"recipe": Recipe(steps=each, map_steps=each, map_restarts=RESTARTS, num_samples=samples_for(rows))}


def _map(steps: int, rows: int) -> dict[str, Any]:
    return {"recipe": Recipe(map_steps=2 * _longer(steps, rows), map_restarts=RESTARTS)}


def _members(steps: int, rows: int) -> dict[str, Any]:
    return {"members": MEMBERS, "steps": 2 * _longer(steps, rows)}


def _after_map(steps: int, rows: int) -> dict[str, Any]:
    each = _longer(steps, rows)
    return {"recipe": Recipe(map_steps=each, map_restarts=RESTARTS), "steps": max(200, each)}


def _chains(steps: int, rows: int) -> dict[str, Any]:  # noqa: ARG001 - all rows are one batch
    """Four chains, each with a draw for every four steps, after as many of warm-up: a draw costs many gradients."""
    draws = max(10, steps // 4)
    return {"recipe": Recipe(map_steps=steps), "chains": 4, "warmup": draws, "draws": draws, "max_tree_depth": 9}


def samples_for(rows: int) -> int:
    """Number of weight vectors a step, an even one; minibatches count as few rows.

    >>> [samples_for(rows) for rows in (300, 1000, 2000, 10_000)]
    [64, 32, 16, 64]
    """
    fewest, most = SAMPLES
    return most if rows > MAX_FULL_BATCH else 2 * (min(most, max(fewest, OUTPUTS // rows)) // 2)


def _longer(steps: int, rows: int) -> int:
    return steps if rows <= MAX_FULL_BATCH else MINIBATCH_STEPS * steps


def _livi(title: str, options: Options, **chosen: Any) -> Method:
    return Method(title, partial(fit, **chosen), options, WITH_LEARNED)


def _polished(net: nn.Module, data: Any, likelihood: Any, **options: Any) -> Posterior:
    """`livi.fit` followed by Markov chains from its draws, to which the learned noise is adapted."""
    return polish(fit(net, data, likelihood, **options), data, seed=options["seed"], progress=False)


def _rival(name: str, options: Options, candidates: tuple[Candidate, ...], **more: Any) -> Method:
    return Method(RIVALS[name].title, RIVALS[name].fit, options, candidates, **more)


_LANCZOS, _SMALLEST = Lanczos(num_probes=2, tolerance=0.1, max_iterations=40), SmallestSingularValue()
_SAMPLED: dict[str, Any] = {"last_layer": "sampled"}

METHODS: dict[str, Method] = {
    "livi": _livi("LIVI (L')", _exact),
    "livi-polished": Method("LIVI (L'), then chains", _polished, _exact, WITH_LEARNED),
    "livi-mixture": _livi("LIVI (L'), mixture of 5", partial(_exact, restarts=MEMBERS), components=MEMBERS),
    "livi-lanczos": _livi("LIVI (L', Lanczos)", _exact, entropy=_LANCZOS),
    "livi-smallest": _livi("LIVI (L'')", _exact, entropy=_SMALLEST),
    "livi-sampled": _livi("LIVI (L'), sampled last layer", _on_the_bound, **_SAMPLED),
    "livi-sampled-lanczos": _livi("LIVI (L', Lanczos), sampled", _on_the_bound, entropy=_LANCZOS, **_SAMPLED),
    "livi-sampled-smallest": _livi("LIVI (L''), sampled", _on_the_bound, entropy=_SMALLEST, **_SAMPLED),
    "map": _rival("map", _map, FIXED, noise="validated"),
    "ensemble": _rival("ensemble", _members, FIXED, noise="validated"),
    "mean_field": _rival("mean_field", _on_the_bound, WITH_LEARNED),
    "full_rank": _rival("full_rank", _on_the_bound, WITH_LEARNED),
    "mc_dropout": _rival("mc_dropout", _on_the_bound, DROPOUT, noise="validated"),
    "swag": _rival("swag", _after_map, FIXED, noise="validated"),
    "ivon": _rival("ivon", _after_map, FIXED, noise="mean", package="ivon"),
    "avb": _rival("avb", _on_the_bound, FIXED),
    "kivi": _rival("kivi", _on_the_bound, FIXED),
    "sivi": _rival("sivi", _on_the_bound, FIXED),
    "mnf": _rival("mnf", _on_the_bound, FIXED),
    "laplace_last_layer": _rival("laplace_last_layer", _map, FIXED, noise="mean", package="laplace"),
    "laplace_linearised": _rival("laplace_linearised", _map, FIXED, noise="mean", package="laplace"),
    "laplace_low_rank": _rival("laplace_low_rank", _map, FIXED, noise="validated", package="laplace"),
    "nuts": _rival("nuts", _chains, ONE, package="numpyro"),
}
OURS = "livi"
# Run only on request.
SLOW = ("livi-polished", "livi-mixture", "nuts", "avb", "kivi", "sivi", "mnf", "full_rank")


def is_livi(name: str) -> bool:
    return name == OURS or name.startswith(f"{OURS}-")


def available_methods() -> tuple[str, ...]:
    """The methods whose packages are installed."""
    return tuple(name for name, method in METHODS.items() if method.installed)


def default_methods() -> tuple[str, ...]:
    return tuple(name for name in available_methods() if name not in SLOW)


def check_installed(names: tuple[str, ...]) -> None:
    """Raise for a method whose package is missing."""
    for name in names:
        if not METHODS[name].installed:
            raise ValueError(
                f"methods: expected {METHODS[name].package} to be installed for {name}, got no such package; see "
                "docs/rivals.md, or leave the method out."
            )
