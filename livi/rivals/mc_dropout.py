"""MC dropout: the network's own dropout as a posterior over its weights (Gal and Ghahramani 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from livi.family.entropy import EntropyEstimate
from livi.family.family import Draw, Estimation, Family, exactly
from livi.family.latents import Latents
from livi.inference import Recipe, fit
from livi.model.likelihoods import Likelihood
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals.options import refuse

MASKS = 8  # weight vectors per step

# Layers f with f(mask * x) = mask * f(x), as f(c x) = c f(x) for c >= 0: a mask in front can be moved behind them.
_HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.Identity)
_HOMOGENEOUS_FUNCTIONS: tuple[Callable[..., Any], ...] = (F.relu, torch.relu, F.leaky_relu)
_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d)


class Dropped(NamedTuple):
    """A layer, and the probability with which each of its inputs is dropped."""

    layer: str
    probability: float


class DropoutWeights(Family):
    """q(theta): the mean, with each column of a layer behind a dropout times z / (1 - p), z ~ Bernoulli(1 - p).

    Dropping an input of a layer is the same as setting its column of the weight matrix to zero. So a draw is a network
    whose mask is the same for all examples. The entropy is taken as constant: Gal and Ghahramani replace the point
    masses by narrow Gaussians, and the entropy of that mixture depends on the mean only by terms that vanish with the
    width. The bound is then E log p(D | theta) + E log p(theta): training with dropout and weight decay.

    Args:
        layout: of a network with nn.Dropout in front of nn.Linear, or nn.Dropout2d in front of nn.Conv2d. ReLU may
            stand between them, and Flatten in front of nn.Linear, or pooling in front of nn.Conv2d.
    """

    learns_spread = False

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.mean = nn.Parameter(layout.flatten().clone())
        slots = {name: slot for slot in layout.slots for name in slot.names}
        dropped = list(dict.fromkeys(dropped_layers(layout.module)))  # one mask for a layer that is used twice
        if not dropped:
            raise ValueError(
                "fit_mc_dropout: expected nn.Dropout with p > 0 in front of an nn.Linear or nn.Conv2d, got none in "
                f"{type(layout.module).__name__}; add one."
            )
        fixed = [each.layer for each in dropped if f"{each.layer}.weight".lstrip(".") not in slots]
        if fixed:
            raise ValueError(
                f"fit_mc_dropout: expected {fixed[0]}.weight to be stochastic, got a fixed one; include it."
            )
        self.dropped = [(slots[f"{layer}.weight".lstrip(".")], probability) for layer, probability in dropped]

    def draw(self, num_samples: int, rng: torch.Generator | None = None, *, latents: Latents | None = None) -> Draw:
        del latents
        factors = torch.ones(num_samples, self.num_params, dtype=self.mean.dtype, device=self.mean.device)
        for slot, probability in self.dropped:
            kept = self._kept((num_samples, 1, slot.shape[1]), probability, rng)
            weights = factors[:, slot.start : slot.stop].view(num_samples, slot.shape[0], slot.shape[1], -1)
            weights.mul_(kept[..., None])
        return Draw(self.mean * factors)

    def entropy(self, draw: Draw, how: Estimation) -> tuple[EntropyEstimate, ...]:
        del draw, how
        return exactly(torch.zeros_like(self.mean[0]))

    def centre(self) -> Tensor:  # (m,)
        return self.mean.detach()

    def begin_around(self, rows: Tensor, spread: float, *, relative: bool = False) -> None:  # (1, m)
        del spread, relative  # the spread is that of the dropout
        with torch.no_grad():
            self.mean.copy_(rows[0])

    def title(self) -> str:
        return "MC dropout"

    def _kept(self, shape: tuple[int, ...], probability: float, rng: torch.Generator | None) -> Tensor:
        source = self.mean.device if rng is None else rng.device
        uniform = torch.rand(shape, generator=rng, device=source).to(self.mean)
        return (uniform >= probability).to(self.mean) / (1.0 - probability)


def fit_mc_dropout(net: nn.Module, data: Any, likelihood: Likelihood, **options: Any) -> Posterior:
    """MC dropout: train and predict with the network's own dropout, 8 masks per step unless the recipe says otherwise.

    Args:
        **options: as in `livi.inference.fit`, except for generator, noise, entropy, latents, components and family.

    Raises:
        ValueError: the network has no dropout, or one that is not in front of a layer with weights.
    """
    refuse("fit_mc_dropout", options, "generator", "noise", "entropy", "latents", "family")
    return fit(net, data, likelihood, family=DropoutWeights, **options | {"recipe": with_masks(options.get("recipe"))})


def with_masks(recipe: Recipe | None) -> Recipe:
    """The recipe, with 8 samples for likelihood and 1 for entropy per step where it does not name these numbers.

    >>> with_masks(Recipe(steps=50)).named == {"steps", "num_samples", "num_entropy_samples"}
    True
    """
    named = {} if recipe is None else {name: getattr(recipe, name) for name in recipe.named}
    return Recipe(**{"num_samples": MASKS, "num_entropy_samples": 1} | named)


def dropped_layers(module: nn.Module) -> Iterator[Dropped]:
    """The layers whose inputs are dropped, found in a symbolic trace of the module.

    Raises:
        ValueError: the module cannot be traced, or a dropout is not in front of a layer with weights.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    >>> list(dropped_layers(net))
    [Dropped(layer='3', probability=0.1)]
    """
    if isinstance(module, (nn.Linear, *_CONVOLUTIONS)):
        return
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception as error:  # whatever a forward may do with a proxy
        raise ValueError(
            f"fit_mc_dropout: expected a forward without branches on its values, got {type(error).__name__}: {error}"
        ) from error
    layers = dict(module.named_modules())
    for node in graph.nodes:
        probability, channels = _dropout(node, layers)
        if probability:
            for user in node.users:
                yield from _followed(user, layers, node, probability, channels)


def _dropout(node: fx.Node, layers: dict[str, nn.Module]) -> tuple[float, bool]:
    """The probability with which a node drops its inputs (0 for other nodes), and whether it drops whole channels."""
    layer = layers[str(node.target)] if node.op == "call_module" else None
    if isinstance(layer, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
        raise ValueError(
            f"fit_mc_dropout: expected nn.Dropout, got {type(layer).__name__} at {node.target!r}; replace it."
        )
    if isinstance(layer, (nn.Dropout, *_CHANNELS)):
        return float(layer.p), isinstance(layer, _CHANNELS)
    if node.op == "call_function" and node.target in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d):
        p = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
        return float(p), node.target is not F.dropout  # type: ignore[arg-type]
    return 0.0, False


def _followed(
    node: fx.Node, layers: dict[str, nn.Module], source: fx.Node, probability: float, channels: bool
) -> Iterator[Dropped]:
    """The layers with weights that a dropout leads to, through layers that a mask can be moved behind."""
    layer = layers[str(node.target)] if node.op == "call_module" else None
    if isinstance(layer, _CONVOLUTIONS if channels else nn.Linear) and getattr(layer, "groups", 1) == 1:
        yield Dropped(str(node.target), probability)
        return
    passed = isinstance(layer, (*_HOMOGENEOUS, *(_POOLS if channels else (nn.Flatten,))))
    passed |= node.op == "call_function" and node.target in _HOMOGENEOUS_FUNCTIONS
    if not passed:
        wanted = "a convolution" if channels else "an nn.Linear"
        got = type(layer).__name__ if layer is not None else node.op.replace("call_", "") + f" {node.name}"
        raise ValueError(
            f"fit_mc_dropout: expected the dropout {str(source.target)!r} in front of {wanted}, got {got} behind it; "
            "move it, or set its p to 0."
        )
    for user in node.users:
        yield from _followed(user, layers, source, probability, channels)
