"""Where a fit starts: maximum a posteriori weights, the best of a few short runs trained side by side."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi.data import Batch, Data
from livi.latents import normal
from livi.layout import Layout, Strategy, apply_many, as_call
from livi.likelihoods import Likelihood
from livi.priors import Prior
from livi.training.capture import Stepper, adam, set_rate
from livi.training.progress import Progress
from livi.training.recipe import Recipe, cosine

TEMPERATURE = 3.0  # nats


class Starts(NamedTuple):
    """MAP estimates, best first."""

    theta: Tensor  # (R, m)
    log_likelihood: Tensor  # (R,)
    log_joint: Tensor  # (R,)

    def pick(self, count: int, seed: int) -> Tensor:  # (count, m)
        """The best row, or for a mixture so many different ones, drawn with odds exp(log joint / 3).

        The best few of many rows are often one mode found again and again. A mode's height is not its mass, from which
        it differs by a few nats, so rows within a few nats of the best have about its chance, and others none.
        """
        if count == 1 or count >= len(self.theta):
            return self.theta[:count]
        uniform = torch.rand(len(self.theta), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        gumbel = -(-uniform.log()).log()
        keys = self.log_joint.double().cpu() / TEMPERATURE + gumbel  # whose largest are draws without replacement
        return self.theta[keys.topk(count).indices.sort().values.to(self.theta.device)]


def map_weights(
    layout: Layout,
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    recipe: Recipe,
    *,
    seed: int,
    strategy: Strategy | None = None,
    progress: Progress | None = None,
    capture: bool | None = None,
) -> Starts:
    """`map_restarts` MAP fits as rows of one tensor, best first.

    Row 0 starts at the module's own weights, the others at fresh initialisations of it. Only the weights and the
    likelihood's parameters are fitted: a MAP estimate of the prior's scale would shrink it to nothing.

    Raises:
        Interrupted: by Ctrl-C; it carries the rows as they are by then.
    """
    theta = initial_weights(layout, recipe.map_restarts, seed).requires_grad_()
    climb = _Climb(layout, theta, likelihood, prior, data, recipe, strategy)
    stepper = Stepper(climb.advance, climb.changed, capture=capture)
    show = progress or Progress(recipe.map_steps, quiet=True)
    show.begin(0, max(1, recipe.map_steps), "MAP start")
    try:
        for step, batch in enumerate(_batches(data, seed, recipe.map_steps), 1):
            set_rate(climb.optimiser.param_groups[0], recipe.map_rate * cosine((step - 1) / recipe.map_steps))
            fit, penalty = stepper(batch)
            if step % 50 == 0:
                _replace_lost(theta, fit + penalty)
            if step % 100 == 0 or step == recipe.map_steps:
                best = (fit + penalty).nan_to_num(nan=float("-inf")).argmax()
                row = {"log_likelihood": float(fit[best]), "log_prior": float(penalty[best])}
                show.show(step, row | {"rate": float(climb.optimiser.param_groups[0]["lr"])})
    except KeyboardInterrupt:
        raise Interrupted(_ranked(layout, theta, likelihood, prior, data, recipe, strategy)) from None
    return _ranked(layout, theta, likelihood, prior, data, recipe, strategy)


class Interrupted(KeyboardInterrupt):
    """A start that was stopped by Ctrl-C, with the weights it had found."""

    def __init__(self, starts: Starts) -> None:
        super().__init__("interrupted while looking for a start")
        self.starts = starts


class _Climb:
    """One step towards the MAP estimate, for all rows at once."""

    def __init__(
        self,
        layout: Layout,
        theta: Tensor,
        likelihood: Likelihood,
        prior: Prior,
        data: Data,
        recipe: Recipe,
        strategy: Strategy | None,
    ) -> None:
        self.layout, self.theta, self.likelihood, self.prior = layout, theta, likelihood, prior
        self.num_data, self.strategy = data.num_data, strategy
        self.parameters = [theta, *likelihood.parameters()]
        self.optimiser = adam(self.parameters, lr=recipe.map_rate)
        self.limits = likelihood.lower_limits()

    def advance(self, batch: Batch) -> tuple[Tensor, Tensor]:  # (R,), (R,)
        fit, penalty = log_joint(
            self.layout, self.theta, self.likelihood, self.prior, *batch, self.num_data, self.strategy
        )
        self.optimiser.zero_grad()
        (-(fit + penalty).sum() / self.num_data).backward()
        _forget_non_finite(self.optimiser)
        self.optimiser.step()
        with torch.no_grad():
            for parameter, least in self.limits:
                parameter.clamp_(min=least)
        return fit.detach(), penalty.detach()

    def changed(self) -> list[Tensor]:
        moments = [value for state in self.optimiser.state.values() for value in state.values()]
        return [*self.parameters, *moments]


def measure_start(
    layout: Layout,
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    recipe: Recipe,
    strategy: Strategy | None,
) -> float:
    """Seconds of one step towards the MAP estimate. Nothing is changed."""
    theta = layout.flatten().expand(recipe.map_restarts, -1).clone().requires_grad_()
    parameters = [theta, *likelihood.parameters()]
    batch, seconds = data.first(), float("inf")
    for _ in range(3):
        synchronise(theta)
        started = time.perf_counter()
        fit, penalty = log_joint(layout, theta, likelihood, prior, *batch, data.num_data, strategy)
        torch.autograd.grad((fit + penalty).sum(), parameters, allow_unused=True)
        synchronise(theta)
        seconds = min(seconds, time.perf_counter() - started)
    return seconds


def synchronise(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def _batches(data: Data, seed: int, count: int) -> Iterator[Batch]:
    epochs = (batch for epoch in itertools.count() for batch in data.epoch(seed + epoch))
    return itertools.islice(epochs, count)


def _ranked(
    layout: Layout,
    theta: Tensor,
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    recipe: Recipe,
    strategy: Strategy | None,
) -> Starts:
    """The rows by their density over all data, best first."""
    log_likelihood, log_prior = over_data(layout, theta.detach(), likelihood, prior, data, strategy)
    score = (log_likelihood + log_prior).nan_to_num(nan=float("-inf"))
    if not bool(torch.isfinite(score).any()):
        raise ValueError(
            "start: expected a finite log joint density after the MAP fit, got none; "
            "standardise inputs and targets, or lower Recipe.map_rate."
        )
    order = score.argsort(descending=True) if recipe.map_steps else torch.arange(len(score), device=score.device)
    return Starts(theta.detach()[order], log_likelihood[order], score[order])


@torch.no_grad()
def over_data(
    layout: Layout,
    theta: Tensor,  # (R, m)
    likelihood: Likelihood,
    prior: Prior,
    data: Data,
    strategy: Strategy | None = None,
    most: int = 40,
) -> tuple[Tensor, Tensor]:  # (R,), (R,)
    """log p(D | theta) and log p(theta), the first from one epoch's batches, at most so many, the same for all rows."""
    total, seen, log_prior = torch.zeros_like(theta[:, 0]), 0, torch.zeros_like(theta[:, 0])
    for (inputs, targets), _ in zip(data.epoch(0), range(most), strict=False):
        values, log_prior = log_joint(layout, theta, likelihood, prior, inputs, targets, len(targets), strategy)
        total, seen = total + values, seen + len(targets)
    return total * (data.num_data / max(1, seen)), log_prior


def _forget_non_finite(optimiser: torch.optim.Optimizer) -> None:
    """One restart that ran away must not take the others along through what they share."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


@torch.no_grad()
def _replace_lost(theta: Tensor, joint: Tensor) -> None:
    """Rows with a non-finite density go on from the best row."""
    score = joint.nan_to_num(nan=float("-inf"))
    theta.copy_(torch.where(torch.isfinite(score)[:, None], theta, theta[score.argmax()]))


def log_joint(
    layout: Layout,
    theta: Tensor,  # (R, m)
    likelihood: Likelihood,
    prior: Prior,
    inputs: Any,
    targets: Tensor,
    num_data: int,
    strategy: Strategy | None = None,
) -> tuple[Tensor, Tensor]:  # (R,), (R,)
    """log p(D | theta), scaled up from the batch to num_data examples, and log p(theta)."""
    args, kwargs = as_call(inputs)
    outputs = apply_many(layout, theta, *args, batch_statistics=True, strategy=strategy, **kwargs)
    return num_data * likelihood.log_prob(outputs, targets).mean(1), prior.log_prob(theta)


def initial_weights(layout: Layout, count: int, seed: int) -> Tensor:  # (count, m)
    """The module's weights, then fresh draws from its layers' own initialisers (or, without one, perturbed weights)."""
    rows = [layout.flatten()]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(1_000_003 * (seed + 1))  # a user's own manual_seed(seed) made the module: draw others
        rows += [_reinitialised(layout) for _ in range(count - 1)]
    return torch.stack(rows).clone()


def _reinitialised(layout: Layout) -> Tensor:
    module = copy.deepcopy(layout.module)
    fresh: set[str] = set()
    for prefix, layer in module.named_modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
            fresh |= {f"{prefix}.{name}" if prefix else name for name, _ in layer.named_parameters(recurse=False)}
    tensors = dict(module.named_parameters())
    for slot in layout.slots:
        if slot.name not in fresh:
            kept = tensors[slot.name].detach()
            noise = normal(tuple(kept.shape), None, kept.dtype, kept.device)
            tensors[slot.name] = nn.Parameter(kept + 0.1 * kept.square().mean().sqrt().clamp_min(0.1) * noise)
    return layout.flatten(tensors)
