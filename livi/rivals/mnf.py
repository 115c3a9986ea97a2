"""Multiplicative normalising flows (Louizos and Welling 2017): Gaussian weights with means multiplied by a flow."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.family.entropy import EntropyEstimate, EntropyReport
from livi.family.family import Draw, Estimation, Family, Rates
from livi.family.latents import Latents, mirrored
from livi.inference import fit
from livi.model.likelihoods import Likelihood
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.options import refuse

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
STAY = 2.0  # initial logit of the gates, at which a step of the flow keeps most of its input
START = 0.1  # initial standard deviation of the multipliers z, where the spread is not relative to the weights


class Place(NamedTuple):
    """The slice of theta with one layer's weights, and the axis of their shape that is multiplied."""

    start: int
    stop: int
    shape: tuple[int, ...]
    axis: int

    @property
    def units(self) -> int:
        return self.shape[self.axis]

    def matrix(self, theta: Tensor) -> Tensor:  # (S, m) -> (S, units, rest)
        """The layer's weights, one row for each unit."""
        weights: Tensor = theta[:, self.start : self.stop].unflatten(1, self.shape)
        return weights.movedim(self.axis + 1, 1).flatten(2)

    def factors(self, z: Tensor) -> Tensor:  # (S, units) -> (S, stop - start)
        """z for each weight of the layer."""
        shape = [1] * len(self.shape)
        shape[self.axis] = self.units
        return z.reshape(len(z), *shape).expand(len(z), *self.shape).flatten(1)


def places(layout: Layout) -> tuple[Place, ...]:
    """All linear layers, multiplied along their inputs, and all convolutions, multiplied along their filters."""
    slots = {name: slot for slot in layout.slots for name in slot.names}
    found: dict[int, Place] = {}
    for prefix, layer in layout.module.named_modules():
        slot = slots.get(f"{prefix}.weight" if prefix else "weight")
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        if slot is not None and isinstance(layer, kinds):
            axis = 1 if isinstance(layer, nn.Linear) else 0
            found[slot.start] = Place(slot.start, slot.stop, tuple(slot.shape), axis)
    return tuple(found.values())


class MaskedStep(nn.Module):
    """One step of a masked flow: the entries with mask b = 1 stay, and determine how the others are changed.

        h = tanh(A (b * z)),  s = sigmoid(k(h)),  z' = b z + (1 - b)(s z + (1 - s) t(h)),
        log |dz'/dz| = sum_i (1 - b_i) log s_i

    (Dinh et al. 2017 with the gate of Kingma et al. 2016; A, k and t are affine.) At first t is near 1, so that z = 1
    is hardly changed.
    """

    def __init__(self, units: int, hidden: int, odd: bool) -> None:
        super().__init__()
        self.mask: Tensor
        # A single unit has no other to depend on: its gate and target are constants.
        kept = (torch.arange(units) % 2 == int(odd)) & (units > 1)
        self.register_buffer("mask", kept.to(torch.get_default_dtype()))
        self.inner, self.gate, self.target = (
            nn.Linear(units, hidden),
            nn.Linear(hidden, units),
            nn.Linear(hidden, units),
        )
        with torch.no_grad():
            self.gate.weight.mul_(0.1)
            self.gate.bias.fill_(STAY)
            self.target.weight.mul_(0.1)
            self.target.bias.fill_(1.0)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # (S, units) -> (S, units), (S,)
        h = torch.tanh(self.inner(self.mask * z))
        logit = self.gate(h)
        gate = torch.sigmoid(logit)
        moved = gate * z + (1.0 - gate) * self.target(h)
        free = 1.0 - self.mask
        return self.mask * z + free * moved, (free * nn.functional.logsigmoid(logit)).sum(1)


class Flow(nn.Module):
    """A few `MaskedStep`s with alternating masks."""

    def __init__(self, units: int, steps: int, hidden: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList([MaskedStep(units, hidden, bool(step % 2)) for step in range(steps)])

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:  # (S, units) -> (S, units), (S,)
        volume = torch.zeros_like(z[:, 0])
        for step in self.steps:
            z, more = step(z)
            volume = volume + more
        return z, volume


class Multiplier(nn.Module):
    """q(z) and the auxiliary r(z | W) of one layer.

    z = flow(mu + s eps), and r(z | W) = N(flow'(z); b_1 v + a_1, exp(b_2 v + a_2)^2) |d flow'/dz| with a second flow.
    The scalar v is the mean of tanh(c^T W) over the axes of W that are not multiplied.
    """

    def __init__(self, units: int, steps: int, hidden: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.ones(units))
        self.log_std = nn.Parameter(torch.full((units,), math.log(START)))
        self.flow, self.back = Flow(units, steps, hidden), Flow(units, steps, hidden)
        self.look = nn.Parameter(units**-0.5 * torch.randn(units))  # c
        self.place, self.place_bias = nn.Parameter(0.1 * torch.randn(units)), nn.Parameter(torch.ones(units))
        self.width = nn.Parameter(0.1 * torch.randn(units))
        self.width_bias = nn.Parameter(torch.full((units,), math.log(START)))

    def draw(self, eps: Tensor) -> tuple[Tensor, Tensor]:  # (S, units) -> (S, units), (S,)
        """z, from standard normal eps, and log q(z)."""
        z, volume = self.flow(self.mean + self.log_std.exp() * eps)
        base = -(0.5 * eps.square() + self.log_std + HALF_LOG_TWO_PI).sum(1)
        return z, base - volume

    def log_auxiliary(self, z: Tensor, weights: Tensor) -> Tensor:  # (S, units), (S, units, rest) -> (S,)
        """log r(z | W)."""
        before, volume = self.back(z)
        seen = torch.tanh(torch.einsum("u,sur->sr", self.look, weights)).mean(1, keepdim=True)
        mean, log_std = self.place * seen + self.place_bias, self.width * seen + self.width_bias
        unit = (before - mean) * torch.exp(-log_std)
        found: Tensor = volume - (0.5 * unit.square() + log_std + HALF_LOG_TWO_PI).sum(1)
        return found


class MultiplicativeFlow(Family):
    """W = z * mu + sigma * eps in every linear and convolutional layer, with z from a flow; mean field elsewhere.

    z multiplies the inputs of a linear layer and the filters of a convolution, so that all weights of a unit vary
    together. An auxiliary r(z | W) gives a lower bound of the entropy of q(W) = E_z q(W | z)
    (equation 13 of Louizos and Welling 2017):

        H[q] >= E [-log q(W | z) - log q(z) + log r(z | W)],

    with equality if r(z | W) = q(z | W). The first term is known in closed form, since q(W | z) is Gaussian.

    Args:
        flow_steps: number of steps in the flow of q, and in that of r.
        hidden: hidden units of each step.
    """

    capturable = True

    def __init__(self, layout: Layout, *, flow_steps: int = 2, hidden: int = 50) -> None:
        super().__init__(layout)
        checks.positive_int("flow_steps", flow_steps)
        checks.positive_int("hidden", hidden)
        self.places = places(layout)
        self.multipliers = nn.ModuleList([Multiplier(place.units, flow_steps, hidden) for place in self.places])
        self.mean = nn.Parameter(layout.flatten().clone())
        self.log_std = nn.Parameter(torch.full_like(self.mean, -3.0))
        self.multipliers.to(layout.device, layout.dtype)

    def draw(self, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None) -> Draw:
        """Weights, and as latents the standard normal numbers from which the z of all layers were made."""
        antithetic = latents is not None and latents.antithetic
        units = [place.units for place in self.places]

        def numbers(rows: int) -> Tensor:
            return normal((rows, sum(units) + self.num_params), rng, self.mean.dtype, self.mean.device)

        both = mirrored(num_samples, numbers) if antithetic else numbers(num_samples)
        behind, eps = both.split([sum(units), self.num_params], 1)
        drawn = [multiplier.draw(part)[0] for multiplier, part in self._layers(behind)]
        return Draw(self._factors(drawn) * self.mean + self.log_std.exp() * eps, (behind,))

    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:  # noqa: ARG002
        given = self.log_std.sum() + self.num_params * (0.5 + HALF_LOG_TWO_PI)  # -log q(W | z), on average
        nats = given.expand(len(draw.theta))
        for place, (multiplier, part) in zip(self.places, self._layers(draw.latents[0]), strict=True):
            z, log_q = multiplier.draw(part)
            nats = nats - log_q + multiplier.log_auxiliary(z, place.matrix(draw.theta))
        return (EntropyEstimate(nats, EntropyReport(torch.ones_like(nats, dtype=torch.bool), products=0)),)

    def centre(self) -> Tensor:  # (m,)
        """The mean of the weights given the z that the flow makes of its base's mean."""
        with torch.no_grad():
            middle = [multiplier.flow(multiplier.mean[None])[0] for multiplier in self._multipliers()]
            return self._factors(middle)[0] * self.mean

    @torch.no_grad()
    def begin_around(self, rows: Tensor, spread: float, *, relative: bool = False) -> None:  # (K, m)
        """Start at this row with this spread of the weights, and z around 1, with a relative spread or 0.1."""
        size = rows[0].square().mean().sqrt().clamp_min(0.01)
        for multiplier in self._multipliers():
            for log_std in (multiplier.log_std, multiplier.width_bias):
                log_std.fill_(math.log(spread if relative else START))
        self.log_std.fill_(spread).log_().add_(size.log() if relative else 0.0)
        self.mean.fill_(1.0)
        self.mean.copy_(rows[0] / self.centre())  # the centre is z here, near 1

    def rates(self) -> Rates:
        return Rates([self.mean], list(self.multipliers.parameters()), [self.log_std])

    def title(self) -> str:
        return "MNF"

    def facts(self) -> dict[str, Any]:
        return {"family": "MNF", "components": 1, "flows": len(self.places)}

    def _factors(self, drawn: list[Tensor]) -> Tensor:  # (S, m), or (1, m) where nothing is multiplied
        """The factor z of every weight; it is 1 for weights of other layers."""
        rows = len(drawn[0]) if drawn else 1
        parts, at = [], 0
        for place, z in sorted(zip(self.places, drawn, strict=True), key=lambda pair: pair[0].start):
            parts += [self.mean.new_ones(rows, place.start - at), place.factors(z)]
            at = place.stop
        return torch.cat([*parts, self.mean.new_ones(rows, self.num_params - at)], 1)

    def _layers(self, behind: Tensor) -> list[tuple[Multiplier, Tensor]]:
        """The multiplier of each layer, with its part of the standard normal numbers."""
        parts = behind.split([place.units for place in self.places], 1) if self.places else ()
        return list(zip(self._multipliers(), parts, strict=True))

    def _multipliers(self) -> list[Multiplier]:
        return [multiplier for multiplier in self.multipliers if isinstance(multiplier, Multiplier)]


def fit_mnf(
    net: nn.Module, data: Any, likelihood: Likelihood, *, flow_steps: int = 2, hidden: int = 50, **options: Any
) -> Posterior:
    """Multiplicative normalising flows, with the MAP start and schedule of `livi.inference.fit`.

    Args:
        flow_steps, hidden: as in `MultiplicativeFlow`.
        **options: as in `livi.inference.fit`, except for generator, noise, entropy, family and latents.
    """
    refuse("fit_mnf", options, "generator", "noise", "entropy", "family", "latents")
    options.setdefault("last_layer", "sampled")

    def family(layout: Layout) -> MultiplicativeFlow:
        return MultiplicativeFlow(layout, flow_steps=flow_steps, hidden=hidden)

    return fit(net, data, likelihood, family=family, **options)
