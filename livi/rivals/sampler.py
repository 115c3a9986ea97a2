"""What AVB, KIVI and SIVI share: livi's generator and noise, with another estimate of the entropy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from livi import checks
from livi.family.family import Family
from livi.family.generators import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import Noise
from livi.inference import fit
from livi.inference.plans import parts
from livi.inference.rules import BySize, Size
from livi.model.likelihoods import Likelihood
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.options import refuse

Make = Callable[[Layout, list[Generator], list[Noise]], ImplicitPosterior]


class Sampler(ImplicitPosterior):
    """An implicit posterior whose subclasses estimate the entropy from the draws of weights."""

    capturable = False
    entropy_apart = False  # the entropy is differentiated through the draws
    draw_share, entropy_share = Family.draw_share, Family.entropy_share


def fit_sampler(
    function: str, make: Make, net: nn.Module, data: Any, likelihood: Likelihood, options: dict[str, Any]
) -> Posterior:
    """Run `livi.fit` with the family that `make` returns, given the layout, generators and noises.

    Generators and noises are the user's, or those that `livi.fit` would take with a sampled last layer.
    """
    refuse(function, options, "entropy", "family")
    components = options.pop("components", None)
    components = 1 if components is None else checks.positive_int("components", components)
    generator, noise = copy.deepcopy((options.pop("generator", None), options.pop("noise", None)))

    def family(size: Size) -> ImplicitPosterior:
        return make(size.layout, *parts(size, components, generator, noise))

    return fit(net, data, likelihood, **({"last_layer": "sampled"} | options | {"family": BySize(family)}))
