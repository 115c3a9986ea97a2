"""Where a network's last layer is, and the network as a function of all other layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi.draws import normal
from livi.network import Layout, all_batch_norms, as_call
from livi.network.entering import Entering, entries

_DRAWS = 3  # random weights at which the equation of a last layer must hold
_ROUNDING = 1e3  # units in the last place, relative to the sum of the terms' sizes

_ALONE = "no stochastic weights come before the last layer"


class NotExactError(ValueError):
    """The last layer cannot be integrated out. The message is the reason, worded to follow "sampled: "."""


def find_last(layout: Layout, inputs: Any, *, beside: bool = False) -> str:
    """The name of the nn.Linear whose output is the network's: net(x) = W h(x) + b.

    Found by trial at random weights: the equation must hold at all of them, and h(x) must not depend on W and b. W and
    b must be stochastic, not tied to other weights, and not the only stochastic ones.

    Args:
        inputs: a few examples, as the network takes them.
        beside: the network returns two columns: W h(x) + b, and another that does not depend on W and b.

    Raises:
        NotExactError: there is no such layer; the message says why.
    """
    if all_batch_norms(layout.module):
        raise NotExactError("the network has BatchNorm, which ties the examples of a batch together")
    try:
        with torch.no_grad():
            name = _find(layout, inputs, beside)
        args, kwargs = as_call(inputs)
        earlier_layout(layout, name, beside=beside).verify(*args, **kwargs)
    except NotExactError:
        raise
    except TypeError as error:
        raise NotExactError("what enters the last layer does not depend on other stochastic weights") from error
    except Exception as error:  # a user's forward may raise anything at weights that are not its own
        raise NotExactError(f"the network fails at other weights, with {type(error).__name__}: {error}") from error
    return name


def earlier_layout(layout: Layout, last: str, *, beside: bool = False) -> Layout:
    """The network as a function of its earlier weights, whose output is what enters the last layer.

    Args:
        beside: append the network's second column; see `find_last`.
    """
    earlier = [slot.name.rpartition(".")[0] != last for slot in layout.slots]
    names = list(compress(layout.patterns, earlier))
    return Layout(layout.module, include=names, forward=Entering(last, beside, layout.forward), scaling=layout.scaling)


class _Pass(NamedTuple):
    """One forward pass, and the weights it was made at."""

    theta: Tensor  # (m,)
    output: Any
    entries: list[tuple[str, Tensor]]


def _run(layout: Layout, theta: Tensor, inputs: Any, names: Iterable[str]) -> _Pass:
    args, kwargs = as_call(inputs)
    with entries(layout.module, names) as found:
        return _Pass(theta, layout.apply(theta, *args, **kwargs), found)


def _find(layout: Layout, inputs: Any, beside: bool) -> str:
    linear = [name for name, part in layout.module.named_modules() if type(part) is nn.Linear]
    if linear == [""]:
        raise NotExactError(_ALONE)
    rng = torch.Generator().manual_seed(0)
    first = _run(layout, _drawn(layout, rng), inputs, linear)
    ran = list(dict.fromkeys(name for name, _ in first.entries))
    if not ran:
        raise NotExactError("the network has no nn.Linear")
    objections = {name: _objection(layout, name, first, beside) for name in ran}
    fitting = [name for name in ran if not objections[name]]
    if not fitting:
        raise NotExactError(objections[ran[-1]])
    name = fitting[-1]
    for _ in range(_DRAWS):
        theta = _drawn(layout, rng)
        passes = [_run(layout, each, inputs, [name]) for each in _with_other_last(layout, name, theta, rng)]
        for each in passes:
            objection = _objection(layout, name, each, beside) or _difference(name, passes[0], each, beside)
            if objection:
                raise NotExactError(objection)
    return name


def _drawn(layout: Layout, rng: torch.Generator) -> Tensor:  # (m,)
    """The module's weights plus random ones, scaled by fan-in so that hidden units stay of order one."""
    theta = layout.flatten()
    noise = normal((layout.num_params,), rng, theta.dtype, theta.device)
    for slot in layout.slots:
        noise[slot.start : slot.stop] /= slot.fan_in**0.5
    return theta + noise


def _with_other_last(layout: Layout, name: str, theta: Tensor, rng: torch.Generator) -> Iterator[Tensor]:
    """The weights; the same with the last layer's negated; with large random ones: an output clamp shows at one."""
    negative, large = theta.clone(), theta.clone()
    for slot in layout.slots:
        if slot.name in (f"{name}.weight", f"{name}.bias"):
            part = slice(slot.start, slot.stop)
            negative[part] *= -1.0
            large[part] = 100.0 * normal((slot.numel,), rng, theta.dtype, theta.device)
    yield from (theta, negative, large)


def _objection(layout: Layout, name: str, made: _Pass, beside: bool) -> str:
    """Why this layer cannot be the last one, judging by one pass; empty if it may be."""
    layer = layout.module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    entered = [features for each, features in made.entries if each == name]
    slots = {slot.name: slot for slot in layout.slots}
    if len(entered) != 1:
        return f"{name!r}, an nn.Linear, runs {len(entered)} times in a forward pass"
    if layer.bias is None:
        return f"{name!r}, an nn.Linear, has no bias"
    for part in (f"{name}.weight", f"{name}.bias"):
        if part not in slots:
            return f"{part!r} is not stochastic"
        if len(slots[part].names) > 1:
            return f"{part!r} is tied to {slots[part].names[1]!r}"
    if len(slots) == 2:
        return _ALONE
    if not isinstance(made.output, Tensor):
        return f"the network returns a {type(made.output).__name__}, not one tensor"
    if entered[0].ndim != 2:
        return f"{name!r} takes inputs of shape {tuple(entered[0].shape)}, not one row per example"
    if not bool(torch.isfinite(made.output).all()):
        return "the network's output is not finite at other weights"
    mean = _mean(made.output, len(entered[0]), layer.out_features, beside)
    if mean is None and beside and layer.out_features == made.output.shape[-1]:
        return f"{name!r} gives the raw scales of the noise too, along with the means"
    weights = layout.unflatten(made.theta)
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    size = entered[0].abs() @ weight.abs().T + bias.abs()
    if mean is None or not _close(mean, F.linear(entered[0], weight, bias), size):
        return f"the output is not that of an nn.Linear: something comes after {name!r}, or beside it"
    return ""


def _difference(name: str, before: _Pass, now: _Pass, beside: bool) -> str:
    """An objection where the last layer's weights change more than its output between two passes; else empty."""
    [(_, features)], [(_, again)] = before.entries, now.entries
    pairs = [(again, features)] + ([(now.output[:, 1:], before.output[:, 1:])] if beside else [])
    if all(_close(one, other, other.abs().amax(1, keepdim=True)) for one, other in pairs):
        return ""
    return f"the weights of {name!r} are used elsewhere too, or the network is random"


def _mean(output: Tensor, rows: int, width: int, beside: bool) -> Tensor | None:  # (B, T)
    """The columns of the output that should be the layer's; None where the shapes do not fit."""
    if beside:
        return output[:, :1] if tuple(output.shape) == (rows, 2) and width == 1 else None
    return output.reshape(rows, width) if output.shape[:1] == (rows,) and output.numel() == rows * width else None


def _close(one: Tensor, other: Tensor, size: Tensor) -> bool:
    """Equal up to rounding of terms of this size."""
    return one.shape == other.shape and bool(
        ((one - other).abs() <= _ROUNDING * torch.finfo(one.dtype).eps * size).all()
    )
