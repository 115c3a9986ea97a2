"""What laplace-torch needs of a problem at its MAP estimate, and the Laplace evidence that tunes prior and noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from livi.model.data import NotGatheredError, TensorData, gathered
from livi.model.likelihoods import Categorical, Gaussian
from livi.model.priors import Normal
from livi.model.problem import Problem
from livi.network import apply_many
from livi.rivals.map_start import Start, own_statistics
from livi.rivals.options import needed

INSTALL = 'pip install "livi[laplace]".'
BATCH = 512  # examples per curvature computation
TUNING_STEPS, TUNING_RATE = 300, 0.1  # of Adam, on the logarithms of prior precision and noise
LARGEST_LOG = 12.0  # limit of the absolute value of these logarithms


class Tuned(NamedTuple):
    """Prior precision and noise that maximise the evidence."""

    precision: Tensor  # ()
    noise: Tensor | None  # ()


@dataclass(frozen=True)
class Evidence:
    """Laplace's approximation of log p(D | precision, noise), with one prior precision for all weights.

    With c_i the eigenvalues of the curvature at the MAP estimate theta, for a noise of 1, it is

        log p(D | theta, noise) - precision |theta|^2 / 2 - sum_i log(1 + c_i / (noise^2 precision)) / 2.

    laplace-torch 0.3 computes it too, but without the gradient with respect to the noise for Kronecker factors.

    Args:
        theta: the weights that have a posterior; fixed ones are left out.
        values: c; zeros may be left out.
        loss: half the sum of squared residuals, or -log p(D | theta) in classification.
        num_targets: number of scalar targets, each with the noise.
    """

    theta: Tensor
    values: Tensor
    loss: Tensor
    num_targets: int

    def __call__(self, precision: Tensor, noise: Tensor | None) -> Tensor:  # ()
        factor = 1.0 if noise is None else noise**-2.0
        fit = -factor * self.loss
        if noise is not None:
            fit = fit - self.num_targets * (noise.log() + 0.5 * math.log(2.0 * math.pi))
        penalty = 0.5 * precision * self.theta.square().sum()
        return fit - penalty - 0.5 * torch.log1p(factor * self.values / precision).sum()


class Examples:
    """All examples in order, in batches, as the loader that laplace-torch expects; it also reads `len(loader.dataset)`.

    Batches are views of the tensors. A DataLoader would index each example, with two kernel launches for each on a GPU.
    """

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.dataset = TensorDataset(inputs, targets)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, targets = self.dataset.tensors
        return zip(inputs.split(BATCH), targets.split(BATCH), strict=True)


@dataclass(frozen=True)
class Model:
    """The module at the MAP estimate with all examples, from which laplace-torch computes the curvature.

    Inputs and targets are standardised if the problem is, and the noise is in units of the module's outputs.

    Args:
        likelihood: "regression" or "classification", as laplace-torch calls them.
        buffers: BatchNorm statistics of the MAP estimate, which are also in the module.
    """

    start: Start
    module: nn.Module
    loader: Examples
    likelihood: str
    num_outputs: int
    buffers: dict[str, Tensor]

    @classmethod
    def at(cls, function: str, start: Start) -> Model:
        """The model at this MAP estimate.

        Raises:
            ImportError: laplace-torch is not installed.
            TypeError, ValueError: laplace-torch does not support the network, the likelihood or the data.
        """
        problem, layout = start.problem, start.problem.layout
        needed(function, "laplace", INSTALL)
        if layout.forward is not None:
            raise ValueError(
                f"{function}: expected a network that is called as it is, got forward=; wrap it in a module."
            )
        inputs, targets = _examples(function, problem)
        layout.load_(start.theta)
        buffers = {name: rows[0] for name, rows in own_statistics(problem, start.theta[None]).items()}
        for name, value in buffers.items():
            layout.module.get_buffer(name).copy_(value)
        stochastic = {slot.name for slot in layout.slots}
        for name, parameter in layout.module.named_parameters():
            parameter.requires_grad_(name in stochastic)
        outputs = apply_many(layout, start.theta[None], inputs[:2], buffers=buffers)[0]
        likelihood, targets = _targets(function, problem, outputs, targets)
        given = inputs if layout.scaling is None else layout.scaling(inputs)
        return cls(start, layout.module.eval(), Examples(given, targets), likelihood, outputs.shape[-1], buffers)

    @property
    def noise(self) -> Tensor | None:  # ()
        """The present observation noise, in units of the outputs; None in classification."""
        likelihood = self.start.problem.likelihood
        if not isinstance(likelihood, Gaussian):
            return None
        return (likelihood.obs_std().detach() / likelihood.unit()).reshape(())

    @property
    def observed_noise(self) -> float | None:
        """The noise in the units of the targets."""
        likelihood = self.start.problem.likelihood
        return float(likelihood.obs_std().detach()) if isinstance(likelihood, Gaussian) else None

    def prior_precision(self) -> Tensor:  # (m,)
        """The precision of each weight under the problem's own prior."""
        prior, count = self.start.problem.prior, self.start.problem.layout.num_params
        if not isinstance(prior, Normal):
            raise TypeError(
                f"tune_prior=False: expected a livi.Normal prior, got {type(prior).__name__}; let it be tuned."
            )
        return prior.scale().detach().expand(count) ** -2.0

    def per_tensor(self, precision: Tensor) -> Tensor:  # (m,) -> (slots,)
        """One precision for each parameter tensor, the same for all weights of it; a ValueError if they differ."""
        slots = self.start.problem.layout.slots
        for slot in slots:
            values = precision[slot.start : slot.stop]
            if not torch.allclose(values, values[0]):
                raise ValueError(f"prior: expected one scale for all of {slot.name!r}, got several; let it be tuned.")
        return torch.stack([precision[slot.start] for slot in slots])

    def evidence(self, values: Tensor, chosen: slice = slice(None)) -> Evidence:
        """The evidence, given the eigenvalues of the curvature; `chosen` are the weights that have a posterior."""
        loss = nn.MSELoss(reduction="sum") if self.noise is not None else nn.CrossEntropyLoss(reduction="sum")
        total, targets = values.new_zeros(()), 0
        with torch.no_grad():
            for inputs, some in self.loader:
                total = total + loss(self.module(inputs), some) * (1.0 if self.noise is None else 0.5)
                targets += some.numel()
        return Evidence(self.start.theta[chosen], values.detach().clamp_min(0.0), total, targets)

    def tuned(self, evidence: Evidence) -> Tuned:
        """Maximise the evidence over one precision for all weights and, if it is learned, the noise.

        The noise is also set in the likelihood, which predictions use.
        """
        problem = self.start.problem
        scale = problem.prior.scale().detach() if isinstance(problem.prior, Normal) else torch.ones(())
        log_precision = (-2.0 * scale.to(problem.layout.device).log().mean()).requires_grad_()
        noise, learned = self.noise, any(True for _ in problem.likelihood.parameters())
        log_noise = None if noise is None else noise.log().requires_grad_(learned)
        parameters = [log_precision, *([log_noise] if learned and log_noise is not None else [])]
        optimiser = torch.optim.Adam(parameters, TUNING_RATE)
        for step in range(TUNING_STEPS):
            optimiser.param_groups[0]["lr"] = TUNING_RATE * (1.0 - step / TUNING_STEPS)
            optimiser.zero_grad()
            sigma = None if log_noise is None else log_noise.exp()
            (-evidence(log_precision.exp(), sigma)).backward()
            optimiser.step()
            with torch.no_grad():
                for parameter in parameters:
                    parameter.clamp_(-LARGEST_LOG, LARGEST_LOG)
        if log_noise is not None and isinstance(problem.likelihood, Gaussian):
            with torch.no_grad():
                observed = (log_noise.exp() * problem.likelihood.unit()).log()
                problem.likelihood.log_std.copy_(observed.expand_as(problem.likelihood.log_std))
        return Tuned(log_precision.detach().exp(), self.noise)


def _examples(function: str, problem: Problem) -> tuple[Tensor, Tensor]:
    data = problem.data.plain() if isinstance(problem.data, TensorData) else problem.data  # without augmentation
    try:
        whole = gathered(data)
    except NotGatheredError as reason:
        raise ValueError(
            f"{function}: expected the same examples at every epoch, all in memory, but {reason}; pass (X, y)."
        ) from reason
    if not isinstance(whole.inputs, Tensor):
        raise TypeError(f"{function}: expected one input tensor, got a {type(whole.inputs).__name__} of several.")
    return whole.inputs, whole.targets


def _targets(function: str, problem: Problem, outputs: Tensor, targets: Tensor) -> tuple[str, Tensor]:
    """The name of the likelihood in laplace-torch, and the targets in the shape and units of the outputs."""
    likelihood = problem.likelihood
    if type(likelihood) is Gaussian and likelihood.log_std.numel() == 1 and outputs.ndim == 2:
        if torch.as_tensor(likelihood.unit()).numel() > 1:
            raise ValueError(
                f"{function}: expected one noise for all outputs, got targets that are standardised one by one; "
                "standardise them yourself and pass standardise=False."
            )
        return "regression", likelihood.natural(targets).reshape(len(targets), outputs.shape[1])
    if type(likelihood) is Categorical and outputs.ndim == 2 and targets.ndim == 1:
        return "classification", targets.long()
    raise TypeError(
        f"{function}: expected livi.Gaussian with one noise or livi.Categorical, and outputs (examples, k), got "
        f"{type(likelihood).__name__} and {tuple(outputs.shape)}: laplace-torch has no others."
    )
