"""The methods of the UCI benchmark: how each is fitted in a number of steps, and what it may choose from.

Every method has the same network, noise that does not vary with the inputs, and as many optimiser steps, three times
as many where rows come in minibatches: those on a bound begin at MAP estimates that took as many as the bound does, and
MAP estimates of their own take both together. Where the last layer is exact, steps see all rows, so that they are not
more where there are many. Each method chooses one of three candidates by validation rows: of the prior's width, or for
MC dropout of the probability.
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
from livi.inference import Recipe, fit, polish
from livi.model.priors import Normal, Prior, Relevance
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals import METHODS as RIVALS

HIDDEN = 50
MEMBERS = 5  # of an ensemble, and components of a mixture
SAMPLES = (16, 64)  # weight vectors a step, where all weights are sampled: so many at least and at most
OUTPUTS = 32_000  # of the network a step, where that leaves enough of them
RESTARTS = 4
GAIN = 1.5  # of MC dropout's and NUTS's prior

MANY, LONGER = 2048, 3  # rows beyond which there are minibatches, and how many times as many steps these take

Options = Callable[[int, int], dict[str, Any]]  # of the number of steps, and of rows


@dataclass(frozen=True)
class Candidate:
    """What is chosen by validation.

    Args:
        gain: prior standard deviations are gain / sqrt(fan-in), that of the last bias as that of the weights beside it.
        learned: the scale of each input, and of each further tensor, is learned from there.
        dropout: in front of the last layer.
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
        gains[layout.slots[-1].name] /= math.sqrt(HIDDEN)  # the last bias: targets have no mean
        if self.learned:
            return Relevance.for_layout(layout, gain=self.gain, gains=gains)
        each = [torch.full((slot.numel,), gains[slot.name] / math.sqrt(slot.fan_in)) for slot in layout.slots]
        return Normal(torch.cat(each)).to(layout.device, layout.dtype)


@dataclass(frozen=True)
class Method:
    """A way to a posterior, as this benchmark uses it.

    Args:
        fit: `fit(net, data, likelihood, *, prior, seed, progress, **options)`.
        options: for a number of steps and of rows.
        noise: "learned" along with the weights; for a method whose own would be that of training rows that it has
            learned by heart, the best for the validation rows ("validated"), or for the mean of its networks there
            ("mean"); or learned, unless these gain more than a standard error by another ("either").
        package: that it needs.
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


LEARNING = (Candidate(1.5), Candidate(6.0), Candidate(3.0, learned=True))
FIXED = (Candidate(1.5), Candidate(3.0), Candidate(6.0))
DROPOUT = tuple(Candidate(dropout=p) for p in (0.01, 0.05, 0.1))
ALONE = (Candidate(GAIN),)  # for a method that takes hours


def _exact(steps: int, rows: int, *, restarts: int = 1) -> dict[str, Any]:
    """From a MAP fit for each component, with livi's own number of samples; beyond 20,000 rows all is sampled."""
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


def _behind_map(steps: int, rows: int) -> dict[str, Any]:
    each = _longer(steps, rows)
    return {"recipe": Recipe(map_steps=each, map_restarts=RESTARTS), "steps": max(200, each)}


def _chains(steps: int, rows: int) -> dict[str, Any]:  # noqa: ARG001 - of one batch, whatever their number
    """Draws are not steps: 250 behind as many of warm-up for a thousand, in each of four chains."""
    draws = max(10, steps // 4)
    return {"recipe": Recipe(map_steps=steps), "chains": 4, "warmup": draws, "draws": draws, "max_tree_depth": 9}


def samples_for(rows: int) -> int:
    """Weight vectors a step, an even number; minibatches count as few rows.

    >>> [samples_for(rows) for rows in (300, 1000, 2000, 10_000)]
    [64, 32, 16, 64]
    """
    fewest, most = SAMPLES
    return most if rows > MANY else 2 * (min(most, max(fewest, OUTPUTS // rows)) // 2)


def _longer(steps: int, rows: int) -> int:
    return steps if rows <= MANY else LONGER * steps


def _livi(title: str, options: Options, **chosen: Any) -> Method:
    return Method(title, partial(fit, **chosen), options, LEARNING)


def _polished(net: nn.Module, data: Any, likelihood: Any, **options: Any) -> Posterior:
    """`livi.fit` and Markov chains from its draws, which the noise follows."""
    return polish(fit(net, data, likelihood, **options), data, seed=options["seed"], progress=False)


def _rival(name: str, options: Options, candidates: tuple[Candidate, ...], **more: Any) -> Method:
    return Method(RIVALS[name].title, RIVALS[name].fit, options, candidates, **more)


_LANCZOS, _SMALLEST = Lanczos(num_probes=2, tolerance=0.1, max_iterations=40), SmallestSingularValue()
_SAMPLED: dict[str, Any] = {"last_layer": "sampled"}

METHODS: dict[str, Method] = {
    "livi": _livi("LIVI (L')", _exact),
    "livi-polished": Method("LIVI (L'), then chains", _polished, _exact, LEARNING),
    "livi-mixture": _livi("LIVI (L'), mixture of 5", partial(_exact, restarts=MEMBERS), components=MEMBERS),
    "livi-lanczos": _livi("LIVI (L', Lanczos)", _exact, entropy=_LANCZOS),
    "livi-smallest": _livi("LIVI (L'')", _exact, entropy=_SMALLEST),
    "livi-sampled": _livi("LIVI (L'), sampled last layer", _on_the_bound, **_SAMPLED),
    "livi-sampled-lanczos": _livi("LIVI (L', Lanczos), sampled", _on_the_bound, entropy=_LANCZOS, **_SAMPLED),
    "livi-sampled-smallest": _livi("LIVI (L''), sampled", _on_the_bound, entropy=_SMALLEST, **_SAMPLED),
    "map": _rival("map", _map, FIXED, noise="validated"),
    "ensemble": _rival("ensemble", _members, FIXED, noise="validated"),
    "mean_field": _rival("mean_field", _on_the_bound, LEARNING),
    "full_rank": _rival("full_rank", _on_the_bound, LEARNING),
    "mc_dropout": _rival("mc_dropout", _on_the_bound, DROPOUT, noise="validated"),
    "swag": _rival("swag", _behind_map, FIXED, noise="validated"),
    "ivon": _rival("ivon", _behind_map, FIXED, noise="mean", package="ivon"),
    "avb": _rival("avb", _on_the_bound, FIXED),
    "kivi": _rival("kivi", _on_the_bound, FIXED),
    "sivi": _rival("sivi", _on_the_bound, FIXED),
    "mnf": _rival("mnf", _on_the_bound, FIXED),
    "laplace_last_layer": _rival("laplace_last_layer", _map, FIXED, noise="mean", package="laplace"),
    "laplace_linearised": _rival("laplace_linearised", _map, FIXED, noise="mean", package="laplace"),
    "laplace_low_rank": _rival("laplace_low_rank", _map, FIXED, noise="validated", package="laplace"),
    "nuts": _rival("nuts", _chains, ALONE, package="numpyro"),
}
OURS = "livi"
SLOW = (
    "livi-polished",
    "livi-mixture",
    "nuts",
    "avb",
    "kivi",
    "sivi",
    "mnf",
    "full_rank",
)  # only where they are asked for


def is_livi(name: str) -> bool:
    return name == OURS or name.startswith(f"{OURS}-")


def available_methods() -> tuple[str, ...]:
    """Those whose packages are installed."""
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
