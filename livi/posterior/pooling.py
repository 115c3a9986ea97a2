"""`livi.pool`: several posteriors of the same model as one mixture in equal shares."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from livi import checks
from livi.family.ensemble import Ensemble
from livi.model.likelihoods import Likelihood
from livi.model.warning import warn
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.posterior.storage.network import layers, unsampled

FAR_APART = 0.2  # difference of learned numbers of likelihoods, mostly logarithms of a noise, worth a warning


def pool(posteriors: Sequence[Posterior], draws: int = 200) -> Posterior:
    """One posterior of several that were fitted to the same data from different starts: a mixture in equal shares.

    Networks of yours that were trained from different seeds are different modes, and a posterior from each has the
    width around it. For the epochs of an ensemble, fewer networks trained longer, with a posterior from each, are as
    good on images as they are and better on others (docs/benchmarks/images.md, CIFAR-10):

        posteriors = [livi.fit(net, data, livi.Categorical(), start="net") for net in networks]
        posterior = livi.pool(posteriors)

    The pool holds fixed networks and none of the training data, as `Posterior.frozen` does. Numbers that likelihoods
    learned, such as a noise, are the means of theirs, on the scale on which they were learned.

    Args:
        draws: networks in all, as many of each posterior; rounded up.

    Raises:
        ValueError: their networks, inputs' scaling, fixed weights, `forward=` or likelihoods differ.
        TypeError: one cannot be frozen, as that of a linearised network.

    Memory: so many networks.
    """
    if isinstance(posteriors, Posterior):
        raise TypeError(
            "posteriors: expected a list of livi.Posterior, got a Posterior alone; pass [posterior, ...], or for fixed "
            "networks of this one use posterior.frozen()."
        )
    given = list(posteriors)
    checks.positive_int("draws", draws)
    if not given or not all(isinstance(posterior, Posterior) for posterior in given):
        kinds = ", ".join(sorted({type(each).__name__ for each in given})) or "none"
        raise TypeError(f"posteriors: expected one or more livi.Posterior, got {kinds}; pass a list of fits.")
    count = -(-draws // len(given))
    for place, posterior in enumerate(given[1:], 2):
        _check_alike(given[0].layout, posterior.layout, place)
        _check_functions(_functions(given[0]), _functions(posterior), place)
    likelihood = _likelihood([posterior.of_all_weights()[1] for posterior in given])
    kept = [posterior.frozen(count) for posterior in given]
    for place, one in enumerate(kept[1:], 2):
        _check_fixed(kept[0], one, place)
    layout = kept[0].layout
    shapes = {name: layout.module.get_buffer(name).shape for name in kept[0].buffers}
    members = torch.cat([_members(one) for one in kept])
    _warn_of_other_data(given)
    return Posterior(
        Ensemble(layout, members).requires_grad_(False),
        likelihood,
        given[0].prior,
        buffers={name: _rows([one.buffers[name] for one in kept], shape, count) for name, shape in shapes.items()},
        plan=_common([one.plan for one in given]) | {"frozen": len(members), "pooled": len(given)},
    )


def _members(frozen: Posterior) -> Tensor:  # (K, m)
    assert isinstance(frozen.sampler, Ensemble)
    return frozen.sampler.theta


def _warn_of_other_data(given: Sequence[Posterior]) -> None:
    counts = [posterior.plan.get("num_data") for posterior in given]
    place = next((place for place, count in enumerate(counts) if count != counts[0]), 0)
    if place and None not in (counts[0], counts[place]):
        warn(
            f"pool: number {place + 1} was fitted to {counts[place]:,} examples and the first to {counts[0]:,}; the "
            "pool is no posterior of either: pool fits to the same data."
        )


def _common(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all plans have in common, inside nested dicts too."""
    found = {}
    for name, value in plans[0].items():
        others = [plan.get(name) for plan in plans]
        if all(isinstance(other, dict) for other in others):
            found[name] = _common(others)  # type: ignore[arg-type]
        elif all(name in plan and plan[name] == value for plan in plans):
            found[name] = value
    return found


def _check_alike(first: Layout, other: Layout, place: int) -> None:
    """Raise where a weight vector does not mean the same for the two posteriors."""
    both = first, other
    for what, expected, got in (
        ("weights", *_difference(*([f"{slot.name} {tuple(slot.shape)}" for slot in one.slots] for one in both))),
        ("layers", *_difference(*(layers(one.module) for one in both))),
        ("device and dtype", f"{first.device} {first.dtype}", f"{other.device} {other.dtype}"),
        ("standardisation of inputs", *(str(one.scaling and one.scaling.facts()) for one in both)),
    ):
        if expected != got:
            raise ValueError(
                f"posteriors: expected number {place} with the same {what} as the first, {expected}, got {got}; pool "
                "fits of like networks to the same data."
            )


def _difference(first: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """The first difference in words, for each side; two empty texts where there is none."""
    pairs = zip_longest(first, other, fillvalue="no more")
    return next(((one, another) for one, another in pairs if one != another), ("", ""))


def _functions(posterior: Posterior) -> dict[str, Any]:
    """The user's own functions that the network's call and the likelihood use."""
    layout, likelihood = posterior.of_all_weights()
    return {"forward=": layout.forward} | {
        f"likelihood's {name}.{held}".replace(" .", " "): value
        for name, part in likelihood.named_modules()
        for held, value in vars(part).items()
        if isinstance(value, FunctionType)
    }


def _check_functions(first: Mapping[str, Any], other: Mapping[str, Any], place: int) -> None:
    """Raise where functions of the same purpose differ."""
    for name in dict.fromkeys([*first, *other]):
        one, another = first.get(name), other.get(name)
        if not _same_function(one, another):
            known, new = _named(one), _named(another)
            raise ValueError(
                f"posteriors: expected number {place} with the {name} of the first, {known}, got "
                f"{new if new != known else 'the same with other values in it'}; pass the same function to each fit."
            )


def _same_function(one: Any, other: Any) -> bool:
    """Whether they are one object, or the same lines with the same values in them, as a lambda in a loop is."""
    if not (isinstance(one, FunctionType) and isinstance(other, FunctionType)):
        return one is other
    values, others = _values(one), _values(other)
    return one.__code__ == other.__code__ and len(values) == len(others) and all(map(_same_value, values, others))


def _values(function: FunctionType) -> list[Any]:
    """The values of a function's defaults and of the variables that it closes over."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return defaults + [cell.cell_contents for cell in function.__closure__ or ()]


def _same_value(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, int | float | str) and one == other)


def _named(function: Any) -> str:
    return "none" if function is None else str(getattr(function, "__qualname__", function))


def _check_fixed(first: Posterior, other: Posterior, place: int) -> None:
    """Raise where fixed weights or buffers differ, since the pool has one network for all."""
    for name, expected in _fixed(first):
        got = dict(_fixed(other)).get(name)
        if got is None or not torch.equal(expected, got):
            raise ValueError(
                f"posteriors: expected number {place} with the fixed weights of the first, got another {name!r}; pool "
                "fits of networks that differ in what is drawn alone."
            )


def _fixed(posterior: Posterior) -> Iterator[tuple[str, Tensor]]:
    """What networks share: fixed weights, and buffers but BatchNorm's statistics, which each has for itself.

    Nor the number of batches that BatchNorm has seen: no prediction depends on it.
    """
    parts = posterior.layout.module.named_modules()
    counters = {f"{name}.num_batches_tracked".lstrip(".") for name, part in parts if isinstance(part, _BatchNorm)}
    own = counters | posterior.buffers.keys()
    for tensors in unsampled(posterior.layout).values():
        yield from ((name, tensor) for name, tensor in tensors.items() if name not in own)


def _rows(buffers: Sequence[Tensor], shape: torch.Size, count: int) -> Tensor:
    """A buffer of all members: one for all where it is the same, else with a row each."""
    if all(buffer.shape == shape and torch.equal(buffer, buffers[0]) for buffer in buffers):
        return buffers[0]
    return torch.cat([buffer.expand(count, *shape) for buffer in buffers])


def _likelihood(found: Sequence[Likelihood]) -> Likelihood:
    """A likelihood like all of these, with the means of their learned parameters."""
    for place, other in enumerate(found[1:], 2):
        _check_given(found[0], other, place)
    pooled = copy.deepcopy(found[0])
    learned = [dict(likelihood.named_parameters()) for likelihood in found]
    for name, parameter in pooled.named_parameters():
        values = torch.stack([one[name].detach() for one in learned])
        apart = float((values.amax(0) - values.amin(0)).max())
        if apart > FAR_APART:
            warn(
                f"pool: {name} of the likelihoods differs by up to {apart:.2g}, and the pool takes the mean; look at "
                "each posterior by itself.",
            )
        parameter.data.copy_(values.mean(0))
    return pooled


def _check_given(first: Likelihood, other: Likelihood, place: int) -> None:
    """Raise where the likelihoods are of two kinds, or differ in what was not learned."""
    words = [type(each).__name__ for each in (first, other)]
    if type(first) is type(other):
        (one, mine), (another, theirs) = ((_state(each), dict(_arguments(each._spec))) for each in (first, other))
        pairs = [(name, one[name], another[name]) for name in one if name in another]
        pairs += [(name, mine[name], theirs[name]) for name in mine if name in theirs and name not in one]
        pairs += [(name, one.get(name), another.get(name)) for name in one.keys() ^ another.keys()]
        different = next((pair for pair in pairs if pair[1] != pair[2]), None)
        if different is None:
            return
        name, *values = different
        words = [f"{word} with {name}={value}" for word, value in zip(words, values, strict=True)]
    raise ValueError(
        f"posteriors: expected number {place} with the likelihood of the first, {words[0]}, got {words[1]}; pool "
        "fits that differ in their starts alone."
    )


def _state(likelihood: Likelihood) -> dict[str, Any]:
    """The values of parameters and buffers that were not learned, and the shapes of those that were."""
    found: dict[str, Any] = {}
    for prefix, part in likelihood.named_modules():
        for name, buffer in part._buffers.items():  # also those that are None
            found[f"{prefix}.{name}".lstrip(".")] = None if buffer is None else buffer.tolist()
    shapes = {f"{name}.shape": tuple(parameter.shape) for name, parameter in likelihood.named_parameters()}
    return found | shapes


def _arguments(spec: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """The arguments of a likelihood and of likelihoods inside it, except tensors, which are in its state."""
    for name, value in spec["arguments"].items():
        if isinstance(value, dict) and "object" in value:
            yield within + name, value["object"]["class"]
            yield from _arguments(value["object"], f"{within}{name}.")
        elif not (isinstance(value, dict) and "tensor" in value):
            yield within + name, value
