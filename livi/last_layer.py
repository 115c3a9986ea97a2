"""A linear last layer under Gaussian noise, integrated out exactly instead of sampled.

Given the weights before it, the last layer of a regression network is a conjugate linear model: the evidence of its
features and the posterior of its own weights are known in closed form. An implicit posterior then has only the earlier
weights to learn, on a bound that is higher by all that was lost on the last layer, and

    q(theta) = q(earlier) p(last | earlier, D)

is still a distribution over all weights, sampled in two steps. The price: every step needs all of the data at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi import checks
from livi.generators import Generator
from livi.latents import normal
from livi.layout import Layout, apply_many, has_batch_norm
from livi.likelihoods import Gaussian, Likelihood
from livi.noise import Noise
from livi.posterior import ImplicitPosterior
from livi.priors import Prior
from livi.spec import Specified

_ROWS = 64  # weight samples whose features are held at a time


class Conditional(NamedTuple):
    """p(last | earlier, D) = N(mean, scale^2 (L L^T)^-1) for each output, the bias as a last feature of one."""

    mean: Tensor  # (S, H + 1, T)
    factor: Tensor  # (S, H + 1, H + 1), lower L
    log_evidence: Tensor  # (S,)


class LinearGaussian(Likelihood):
    """log p(y | features) of y ~ N(W features + b, obs_std^2) with W, b ~ N(0, scale^2) integrated out.

    The examples depend on each other through W, so a batch must be the whole data set: `log_prob` gives each example
    an equal share of the joint log density. Several targets have their own W and share the noise.

    Args:
        obs_std, learned: the observation noise, as in `Gaussian`.
        scale: prior standard deviation of the last layer's weights.
        learn_scale: learn it too.

    >>> features, targets = torch.zeros(1, 2, 3), torch.zeros(2)
    >>> LinearGaussian(0.5, scale=1e-6).log_prob(features, targets)  # no features: noise alone
    tensor([[-0.2258, -0.2258]])
    """

    def __init__(
        self,
        obs_std: float | None = None,
        *,
        learned: bool | None = None,
        scale: float = 1.0,
        learn_scale: bool = False,
    ) -> None:
        super().__init__()
        self.noise = Gaussian(obs_std, learned=learned)
        start = torch.tensor(math.log(checks.positive_float("scale", scale)))
        self.log_scale: Tensor
        if learn_scale:
            self.log_scale = nn.Parameter(start)
        else:
            self.register_buffer("log_scale", start)

    def start_from(self, targets: Tensor) -> None:
        self.noise.start_from(targets)

    def lower_limits(self) -> list[tuple[nn.Parameter, float]]:
        return self.noise.lower_limits()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Equal shares of the log evidence, with its gradient in closed form: once differentiable.

        With design X = scale / std [features, 1], y = targets / std, M = I + X^T X and residual r = y - X M^-1 X^T y,

            d log evidence = <r (M^-1 X^T y)^T - T X M^-1, dX> - <r, dy> - N T d log std,

        which takes one product with X where differentiating through the factorisation takes four.
        """
        conditional = self.conditional(outputs, targets)
        design, y = self._whitened(outputs, targets)
        with torch.no_grad():
            mean = (conditional.mean / self.log_scale.double().exp()).to(design.dtype)  # M^-1 X^T y
            identity = torch.eye(design.shape[-1], dtype=torch.float64, device=design.device)
            half = torch.linalg.solve_triangular(
                conditional.factor, identity.expand_as(conditional.factor), upper=False
            )
            residual = y - design @ mean  # (S, N, T)
            pull = residual @ mean.mT - y.shape[1] * (design @ (half.mT @ half).to(design.dtype))
        surrogate = (pull * design).sum((1, 2)) - (residual * y).sum((1, 2)) - y.numel() * self.noise.log_std
        joint = conditional.log_evidence.to(outputs.dtype) + surrogate - surrogate.detach()
        shares: Tensor = (joint / len(targets))[:, None].expand(-1, len(targets))
        return shares

    @torch.no_grad()
    def conditional(self, features: Tensor, targets: Tensor) -> Conditional:  # (S, N, H), (N,) or (N, T)
        """The last layer's posterior and evidence, in double precision and without a gradient."""
        if features.ndim != 3 or features.shape[1] != len(targets):
            raise ValueError(
                f"features: expected (S, {len(targets)}, H), all examples at once, got {tuple(features.shape)}."
            )
        design, y = (part.double() for part in self._whitened(features, targets))
        identity = torch.eye(design.shape[-1], dtype=design.dtype, device=design.device)
        factor, _ = torch.linalg.cholesky_ex(design.mT @ design + identity)
        pulled = torch.linalg.solve_triangular(factor, design.mT @ y, upper=False)  # (S, H + 1, T)
        log_det = 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
        misfit = y.square().sum() - pulled.square().sum((1, 2))
        volume = y.shape[1] * log_det + y.numel() * (math.log(2.0 * math.pi) + 2.0 * self.noise.log_std.double())
        mean = self.log_scale.double().exp() * torch.linalg.solve_triangular(factor.mT, pulled, upper=True)
        return Conditional(mean, factor, -0.5 * (misfit + volume))

    @torch.no_grad()
    def draw(self, conditional: Conditional, rng: torch.Generator | None) -> Tensor:  # (S, H + 1, T)
        """Weights of the last layer, one draw for each sample of the earlier ones."""
        mean = conditional.mean
        eps = normal(tuple(mean.shape), rng, mean.dtype, mean.device)
        spread: Tensor = torch.linalg.solve_triangular(conditional.factor.mT, eps, upper=True)
        return mean + self.log_scale.double().exp() * spread

    def _whitened(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # (S, N, H + 1), (N, T)
        """scale / std [features, 1] and targets / std, in which noise and prior have unit variance."""
        std = self.noise.obs_std()
        design = torch.cat([features, torch.ones_like(features[..., :1])], -1) * (self.log_scale.exp() / std)
        return design, targets.to(features.dtype).reshape(len(targets), -1) / std


class ExactLastLayer(Specified, nn.Module):
    """q(earlier) p(last | earlier, D): an implicit posterior of all but the last layer, and that layer's exact one.

    Args:
        layout: of the whole network; all weights of the last layer are among its stochastic ones.
        last: the dotted name of the last layer, an nn.Linear whose output is the network's.
        generators, noises: of the implicit posterior over the earlier weights.
        likelihood: with the observation noise and the last layer's prior.
        prior: of the earlier weights.
        inputs, targets: the whole data set.
    """

    def __init__(
        self,
        layout: Layout,
        last: str,
        generators: Generator | Sequence[Generator],
        noises: Noise | Sequence[Noise],
        likelihood: LinearGaussian,
        prior: Prior,
        inputs: Tensor,
        targets: Tensor,
    ) -> None:
        super().__init__()
        self.layout, self.last = layout, last
        self.earlier = ImplicitPosterior(earlier_layout(layout, last), generators, noises)
        self.likelihood, self.prior = likelihood, prior
        self.inputs: Tensor
        self.targets: Tensor
        self.register_buffer("inputs", inputs)
        self.register_buffer("targets", targets)

    @torch.no_grad()
    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """All weights: the earlier ones from the implicit posterior, then the last layer's given them."""
        earlier = self.earlier.sample(num_samples, rng)
        return self._joined(earlier, lambda conditional: self.likelihood.draw(conditional, rng))

    @torch.no_grad()
    def centre(self) -> Tensor:  # (m,)
        """The earlier weights' centre with the mean of the last layer given them."""
        return self._joined(self.earlier.centre()[None], lambda conditional: conditional.mean)[0]

    def _joined(self, earlier: Tensor, last_of: Callable[[Conditional], Tensor]) -> Tensor:  # (S, m)
        parts = []
        for rows in earlier.split(_ROWS):
            features = apply_many(self.earlier.layout, rows, self.inputs)
            last = last_of(self.likelihood.conditional(features, self.targets)).to(rows.dtype)  # (s, H + 1, T)
            weights = {f"{self.last}.weight": last[:, :-1].mT.flatten(1), f"{self.last}.bias": last[:, -1]}
            weights |= {slot.name: rows[:, slot.start : slot.stop] for slot in self.earlier.layout.slots}
            parts.append(torch.cat([weights[slot.name] for slot in self.layout.slots], 1))
        return torch.cat(parts)


def find_last(layout: Layout, inputs: Tensor) -> str | None:
    """The name of the layer whose output is the network's, if it is an nn.Linear that can be integrated out.

    All of its weights must be stochastic and its own, it must run once, and something stochastic must come before it.
    """
    if has_batch_norm(layout.module) or layout.forward is not None:
        return None
    outputs: dict[str, list[Any]] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: outputs.setdefault(name, []).append(output)

    linear = {name: part for name, part in layout.module.named_modules() if type(part) is nn.Linear and name}
    handles = [part.register_forward_hook(keep(name)) for name, part in linear.items()]
    try:
        with torch.no_grad(), layout.evaluation(False):
            made = layout.module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    found = [name for name, seen in outputs.items() if len(seen) == 1 and seen[0] is made]
    if len(found) != 1 or linear[found[0]].bias is None:
        return None
    own = {f"{found[0]}.weight", f"{found[0]}.bias"}
    slots = {slot.name: slot for slot in layout.slots}
    alone = own <= slots.keys() and all(len(slots[name].names) == 1 for name in own)
    return found[0] if alone and len(slots) > len(own) else None


def earlier_layout(layout: Layout, last: str) -> Layout:
    """The same network as a function of its earlier weights: it returns what enters the last layer."""
    names = [slot.name for slot in layout.slots if slot.name.rpartition(".")[0] != last]
    return Layout(layout.module, include=names, forward=_Without(last))


@dataclass(frozen=True)
class _Without:
    """A module's forward with its last layer, by name, passed over. (A class, unlike a closure, can be pickled.)"""

    last: str

    def __call__(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        parent, _, leaf = self.last.rpartition(".")
        modules = module.get_submodule(parent)._modules
        own = modules[leaf]
        modules[leaf] = nn.Identity()
        try:
            return module(*args, **kwargs)
        finally:
            modules[leaf] = own
