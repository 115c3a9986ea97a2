"""`livi.plan`: a network, data and a likelihood as a fit that is ready to run, without running it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi import checks
from livi.family.entropy import EntropyEstimator
from livi.family.generators import Generator
from livi.family.latents import Latents
from livi.family.noise import Noise
from livi.inference.alarms import FitWarning
from livi.inference.continuation import Continuation
from livi.inference.last import exact_last_layer
from livi.inference.options import checked
from livi.inference.plan import Choice, Choices, Plan, make_plan
from livi.inference.recipe import Recipe
from livi.model.data import Data, TensorData, Unpack, as_data
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior
from livi.network import Layout, as_call, multiplications
from livi.network.parameters import Forward
from livi.posterior.posterior import Posterior

FULL_BATCH_WORK = 2e6  # multiplications of the network on all examples, up to which a step uses them all


@checked
def plan(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood,
    *,
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    forward: Forward | None = None,
    unpack: Unpack | None = None,
    num_data: int | None = None,
    batch_size: int | None = None,
    generator: Choice[Generator] = None,
    noise: Choice[Noise] = None,
    prior: Choice[Prior] = None,
    entropy: EntropyEstimator | None = None,
    latents: Latents | None = None,
    recipe: Recipe | None = None,
    steps: int | None = None,
    start: str | Posterior = "map",
    components: int = 1,
    autocast: torch.dtype | None = None,
    capture: bool | None = None,
    last_layer: str = "exact if possible",
    device: torch.device | str | None = None,
    seed: int = 0,
) -> Plan:
    """What `fit` would do with these arguments, and what a step costs: `print(livi.plan(net, data, likelihood))`.

    Args:
        include, exclude, forward: which parameters are stochastic, and how the module is called; see `Layout`.
        unpack: batch -> (inputs, targets), for batches that are neither pairs nor dicts with a usual target name.
        num_data: N, where it cannot be found from the data.
        batch_size: for (X, y) data; by default all of it, up to 2,048 examples and 2 million multiplications, or
            256.
        generator, noise, prior: an object, or a function of the layout that makes one.
        recipe, steps: the schedule, as far as it is named; `steps` alone changes its length, and shortens the start in
            proportion.
        start: "map" begins at MAP estimates; "net" at the network's own weights, for one that is trained already: no
            MAP fit, and fewer steps. A `Posterior` of an earlier fit of this network goes on from there, for more steps
            or with more data: with its generator, noise, likelihood and prior as they were learned, without a MAP fit,
            spread or KL warm-up, and at lower rates, where the recipe does not name them.
        components: K, the number of mixture components trained jointly.
        autocast: torch.bfloat16 runs the network in mixed precision.
        capture: record a step as a CUDA graph and replay it. By default on a GPU where that has been found to give
            the same in less time; False never, True raises a `CaptureError` where it cannot.
        last_layer: "sampled" by the generator like all others, or "exact": integrated out under the same prior, for a
            Gaussian likelihood, a network whose output is that of an nn.Linear, and data that are the same at every
            epoch, all of which is used at every step. "exact if possible" does so for up to 20,000 examples (256 MB
            of batches), and else samples it; the plan says why. See `livi.family.last_layer`.
        device: where to fit; by default where the network is.
    """
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood: expected one of livi's such as Gaussian() or Categorical(), got {type(likelihood).__name__}."
        )
    if not isinstance(net, nn.Module):
        raise TypeError(f"net: expected a torch.nn.Module, got {type(net).__name__}.")
    checks.positive_int("components", components)
    if isinstance(start, str) and start not in ("map", "net"):
        raise ValueError(f"start: expected 'map' or 'net', got {start!r}.")
    earlier = None if isinstance(start, str) else Continuation(start)
    module = copy.deepcopy(net) if device is None else copy.deepcopy(net).to(checks.device(device))
    if earlier is None:
        layout = Layout(module, include, exclude, forward=forward)
    else:
        layout = earlier.layout(module, include, exclude, forward)
        likelihood, last_layer = earlier.likelihood_like(likelihood), earlier.last_layer(last_layer)
    if layout.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"net: expected weights in float32 or float64, got {layout.dtype}; fit `net.float()`, with "
            "autocast=torch.bfloat16 where speed matters."
        )
    batches = as_data(
        data, device=layout.device, dtype=layout.dtype, unpack=unpack, batch_size=batch_size, num_data=num_data
    )
    chosen = copy.deepcopy(likelihood).to(layout.device, layout.dtype).started_from(batches.first()[1])
    _try_first_batch(layout, batches, chosen)
    if isinstance(batches, TensorData) and batch_size is None:
        batches = batches.within(FULL_BATCH_WORK / _work_per_example(layout, batches))
    own = (copy.deepcopy(generator), copy.deepcopy(noise), copy.deepcopy(prior))
    word = start if isinstance(start, str) else "posterior"
    choices = Choices(*own, entropy, latents, recipe or Recipe(), components, autocast, capture, word)
    choices = choices if earlier is None else earlier.choices(choices)
    exact = exact_last_layer(last_layer, layout, batches, chosen, choices, batch_size=batch_size, seed=seed)
    if isinstance(exact, Plan):
        made = exact
    else:
        made = replace(make_plan(layout, batches, chosen, choices, seed=seed), why_sampled=exact)
    return made if steps is None else replace(made, recipe=made.recipe.lasting(steps))


def _work_per_example(layout: Layout, data: TensorData) -> float:
    """Multiplications of the network, from its first few examples."""
    some = pytree.tree_map(lambda leaf: leaf[: min(8, data.num_data)], data.inputs)
    args, kwargs = as_call(some)
    return multiplications(layout, *args, **kwargs) / min(8, data.num_data)


def _try_first_batch(layout: Layout, data: Data, likelihood: Likelihood) -> None:
    """The network runs, its parameters matter, its outputs suit the targets, and a N(0, 1) prior can reach these."""
    inputs, targets = data.first()
    args, kwargs = as_call(inputs)
    try:
        unused = layout.verify(*args, **kwargs)
    except (RuntimeError, TypeError, AttributeError) as error:
        shapes = [
            f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)
        ]
        raise type(error)(f"the network failed on its first batch of inputs {', '.join(shapes)}: {error}") from error
    with torch.no_grad():  # raises where outputs and targets do not go together
        outputs = layout.apply(layout.flatten(), *args, batch_statistics=True, **kwargs)
        likelihood.log_prob(pytree.tree_map(lambda leaf: leaf[None], outputs), targets)
    if unused:
        warnings.warn(
            f"the outputs do not depend on {', '.join(unused[:4])}: their posterior will be the prior. "
            "Exclude them by pattern if that is not meant; saturated units from unstandardised inputs look the same.",
            FitWarning,
            stacklevel=4,
        )
    if targets.is_floating_point() and float(targets.abs().median()) > 20.0:
        warnings.warn(
            f"targets: expected values of order 1, got a median size of {float(targets.abs().median()):.3g}; "
            "standardise them (and the inputs), or give the prior a scale that can reach them.",
            FitWarning,
            stacklevel=4,
        )
