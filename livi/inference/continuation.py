"""`start=posterior`: a fit that continues a fitted posterior, for more steps or with more data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import ExactLastLayer
from livi.inference.plans import Choices
from livi.inference.recipe import Recipe
from livi.model.likelihoods import Likelihood, Weighted, pass_weights
from livi.model.priors import Normal, Prior
from livi.model.problem import Choice
from livi.network import Layout
from livi.network.parameters import Forward
from livi.posterior.posterior import Posterior
from livi.posterior.storage.network import fingerprint, held, matching_layout


class Continuation:
    """What a fit takes over from a fitted posterior: copies of its generators, noises, likelihood and prior.

    Raises:
        TypeError: the start is no posterior, or one without generators, such as an ensemble.
    """

    def __init__(self, posterior: Posterior) -> None:
        sampler = posterior.sampler if isinstance(posterior, Posterior) else posterior
        if not isinstance(sampler, (ImplicitPosterior, ExactLastLayer)) or posterior.prior is None:
            raise TypeError(
                "start: expected 'map', 'net' or a posterior of livi.fit, whose sampler has a generator, got "
                f"{type(sampler).__name__}; pass start='net' with a network that has the weights to begin at."
            )
        self.original = posterior
        self.exact = isinstance(sampler, ExactLastLayer)
        self.mode = sampler.likelihood.word if isinstance(sampler, ExactLastLayer) else "sampled"
        # Copied together, so that parameters that parts share stay shared.
        earlier = sampler.earlier if isinstance(sampler, ExactLastLayer) else sampler
        last = sampler.likelihood.prior if isinstance(sampler, ExactLastLayer) else None
        own = (list(earlier.generators), list(earlier.noises), posterior.likelihood, posterior.prior, last)
        self.generators, self.noises, self.likelihood, prior, last_prior = copy.deepcopy(own)
        if isinstance(prior, Normal) and isinstance(last_prior, Normal) and prior.learned and not prior.log_scale.ndim:
            last_prior.log_scale = prior.log_scale  # one scale for all weights, which a file holds twice
        self.prior: Prior = prior if last_prior is None else _InTwoParts(prior, last_prior)
        for part in (*self.generators, *self.noises, self.likelihood, self.prior):
            part.requires_grad_(True)

    def parameters(
        self, net: nn.Module, include: str | Sequence[str], exclude: str | Sequence[str], forward: Forward | None
    ) -> list[str]:
        """The names of the parameters that the posterior is over.

        Raises:
            ValueError: the network has other parameters, or other weights where these stay fixed, or the patterns
                choose others.
        """
        # An exact last layer has the weights of the examples itself, and a network without them.
        own = None if self.exact and forward is pass_weights else forward
        try:
            layout = matching_layout(fingerprint(self.original.layout), net, own)
        except ValueError as error:
            raise ValueError(f"start: {error}".replace("parts like those saved", "options as in its fit")) from error
        if (include, exclude) != ("*", ()):
            chosen = [slot.name for slot in Layout(net, include, exclude, forward=forward).slots]
            if chosen != [slot.name for slot in layout.slots]:
                raise ValueError(
                    f"start: expected include and exclude to choose the {len(layout.slots)} parameters of the "
                    f"posterior, got {', '.join(chosen[:4])}{', ...' * (len(chosen) > 4)}; leave both out."
                )
        known = held(self.original.layout)
        for name, given in held(layout).items():
            if name not in known or not torch.equal(known[name], given.to(known[name])):
                raise ValueError(
                    f"start: expected a network whose fixed weights and buffers are those of the posterior, got others "
                    f"in {name}; give it those first: net.load_state_dict(posterior.layout.module.state_dict())."
                )
        return layout.patterns

    def likelihood_like(self, given: Likelihood) -> Likelihood:
        """The fitted likelihood, if the given one is of the same class. Behind an exact last layer it has no weights
        of examples, and is given those of the data to go on with."""
        weighted = self.exact and isinstance(given, Weighted)
        fitted = Weighted(self.likelihood) if weighted else self.likelihood
        kinds = _kinds(fitted), _kinds(given)
        if kinds[0] != kinds[1]:
            expected, got = (" of ".join(kind.__name__ for kind in each) for each in kinds)
            raise ValueError(f"likelihood: expected {expected} as in the posterior to start from, got {got}.")
        return fitted

    def prior_unless(self, asked: Choice[Prior]) -> Prior:
        """The fitted prior, unless another is asked for, which is an error."""
        if asked is not None:
            raise ValueError("prior: expected none, for the posterior to start from brings its own; leave it out.")
        return self.prior

    def last_layer(self, asked: str) -> str:
        """How the last layer was fitted: "exact", "conditional" or "sampled"."""
        if asked not in (self.mode, "exact if possible"):
            raise ValueError(f"last_layer: expected {self.mode!r} as in the posterior to start from, got {asked!r}.")
        return self.mode

    def choices(self, asked: Choices) -> Choices:
        """These choices with the posterior's parts.

        Raises:
            ValueError: one of the parts was chosen as well.
        """
        twice = [name for name in ("family", "generator", "noise") if getattr(asked, name) is not None]
        twice += ["components"] * (asked.components not in (None, len(self.generators)))
        if twice:
            raise ValueError(
                f"{twice[0]}: expected none, for the posterior to start from brings its own; leave it out."
            )
        earlier = self.original.temperature
        recipe = asked.recipe if earlier == 1.0 else asked.recipe.joined(Recipe(temperature=earlier))
        return replace(
            asked,
            recipe=recipe,
            generator=_in_turn(self.generators),
            noise=_in_turn(self.noises),
            components=len(self.generators),
        )


class _InTwoParts(Prior):
    """The priors of the earlier weights and of the last layer's weights, as they were split for the fit."""

    def __init__(self, earlier: Prior, last: Prior) -> None:
        super().__init__()
        self.earlier, self.last = earlier, last

    def log_prob(self, theta: Tensor) -> Tensor:
        raise AssertionError(f"only its parts have a density, asked for one of {tuple(theta.shape)}")

    def split(self, chosen: Tensor) -> tuple[Prior, Prior]:  # noqa: ARG002
        return self.earlier, self.last


def _kinds(likelihood: Likelihood) -> list[type[Likelihood]]:
    """The class of a likelihood, and of the one inside it if it has weights of the examples."""
    return [type(likelihood), *(_kinds(likelihood.base) if isinstance(likelihood, Weighted) else [])]


def _in_turn(parts: Sequence[nn.Module]) -> Callable[[Layout], Any]:
    """A function of the layout that returns one part after the other, moved to the layout's device."""
    remaining = iter(parts)
    return lambda layout: next(remaining).to(layout.device, layout.dtype)
