"""Numbers with Gaussian noise: the same for every example, or given by the network."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi import checks
from livi.model.likelihoods.base import Likelihood, RegressionLikelihood, log_positive


class Gaussian(RegressionLikelihood):
    """y ~ N(output, obs_std^2), the same noise for every example.

    Args:
        obs_std: the known noise: one number, or one per output, along the last axis of the outputs. None learns it with
            the rest of the bound (type-II maximum likelihood), from the spread of the targets: one noise per output for
            targets (B, k), else one for all.
        learned: learn a given obs_std too, from its value.

    >>> Gaussian(0.5).log_prob(torch.zeros(1, 2, 1), torch.zeros(2))
    tensor([[-0.2258, -0.2258]])
    >>> Gaussian([0.5, 1.0]).log_prob(torch.zeros(1, 1, 2), torch.zeros(1, 2))
    tensor([[-1.1447]])
    """

    def __init__(self, obs_std: float | Sequence[float] | Tensor | None = None, *, learned: bool | None = None) -> None:
        super().__init__()
        start = log_positive("obs_std", 1.0 if obs_std is None else obs_std)
        self.log_std: Tensor  # () or (k,)
        self.given = obs_std is not None
        if not self.given if learned is None else learned:
            self.log_std = nn.Parameter(start)
        else:
            self.register_buffer("log_std", start)

    def obs_std(self) -> Tensor:  # () or (k,)
        return self.log_std.exp()

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        std = self.obs_std()
        if std.numel() == 1:
            return outputs, std.reshape(())
        if outputs.ndim < 3 or outputs.shape[-1] != len(std):
            raise ValueError(
                f"outputs: expected a last axis of {len(std)}, one output per value of obs_std, got "
                f"{tuple(outputs.shape)}; give the network as many, or obs_std one value."
            )
        return outputs, std.expand_as(outputs)

    @torch.no_grad()
    def started_from(self, targets: Tensor) -> Gaussian:
        """With a learned noise that has no value yet at the spread of the targets, whatever their units.

        Targets (B, k) give each of k outputs a noise of its own. Otherwise there is one, the root mean square spread
        over all targets of an example. Constant targets leave a noise at 1.
        """
        open_yet = not self.given and isinstance(self.log_std, nn.Parameter) and not bool(self.log_std.any())
        if not open_yet or len(targets) < 2:
            return self
        spread = targets.cpu().double().std(0)
        if targets.ndim != 2 or targets.shape[1] == 1:
            spread = spread.square().mean().sqrt()
        spread = torch.where((spread > 0) & (spread < math.inf), spread, 1.0)
        if spread.ndim == 0:  # nothing to remember but the value
            started = copy.deepcopy(self)
            started.log_std.copy_(spread.log())
            return started
        return Gaussian(spread, learned=True).to(self.log_std)

    def constant_log_prob(self, targets: Tensor) -> float | None:
        """With the noise that is given, where it is not learned."""
        if isinstance(self.log_std, nn.Parameter):
            return super().constant_log_prob(targets)
        columns = targets.detach().double().reshape(len(targets), -1)
        outputs = columns.mean(0).expand_as(columns).reshape(targets.shape)
        return float(self.log_prob(outputs[None], targets.double()).sum())

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned noise may fall to a tenth of what it is now."""
        if not isinstance(self.log_std, nn.Parameter):
            return []
        limits = self.log_std.detach() + math.log(0.1)
        return [(self.log_std, limits if limits.ndim else float(limits))]


class HeteroscedasticGaussian(RegressionLikelihood):
    """y ~ N(mean(x), std(x)^2): the last axis holds means, then as many raw scales; std = floor + level softplus(raw).

    Args:
        floor: the smallest standard deviation, in the targets' units; keeps single points from being fitted exactly.
        learned: learn the level (type-II maximum likelihood), which is else 1, so that a prior on raw scales around 0
            says how much the noise varies and not how large it is.
    """

    def __init__(self, floor: float = 1e-2, *, learned: bool = False) -> None:
        super().__init__()
        self.floor = checks.positive_float("floor", floor)
        self.log_level = nn.Parameter(torch.tensor(0.0)) if learned else None

    def for_map(self, targets: Tensor) -> Likelihood:
        """With a floor of a tenth of the targets' spread: single points would else be fitted exactly, down to `floor`,
        and the posterior could not start from there."""
        spread = float(targets.detach().double().std()) if targets.numel() > 1 else 0.0
        blunt = copy.copy(self)  # which shares its parameters
        blunt.floor = max(self.floor, 0.1 * spread)
        return blunt

    def std(self, raw: Tensor) -> Tensor:
        """Standard deviations for raw scales, of the same shape."""
        scale = F.softplus(raw)
        return self.floor + (scale if self.log_level is None else self.log_level.exp() * scale)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        if outputs.ndim < 3 or outputs.shape[-1] % 2:
            raise ValueError(
                f"outputs: expected an even last axis (means, then raw scales), got {tuple(outputs.shape)}; "
                "give the network two outputs for each target."
            )
        mean, raw = outputs.chunk(2, -1)
        return mean, self.std(raw)

    def lower_limits(self) -> list[tuple[nn.Parameter, float | Tensor]]:
        """A learned level may fall to a tenth of what it is now."""
        return [] if self.log_level is None else [(self.log_level, float(self.log_level.detach()) + math.log(0.1))]
