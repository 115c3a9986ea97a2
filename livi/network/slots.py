"""Which parameters of a module are in theta, in which slice, and which slices belong to one layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import nn


@dataclass(frozen=True)
class Slot:
    """One stochastic parameter: theta[start:stop] reshaped to `shape`. Tied names share one slot."""

    name: str
    names: tuple[str, ...]
    shape: torch.Size
    start: int
    stop: int

    @property
    def numel(self) -> int:
        return self.stop - self.start

    @property
    def fan_in(self) -> int:
        """Inputs that feed one output unit: 1 for vectors such as biases and norm scales."""
        return max(1, self.numel // self.shape[0]) if len(self.shape) > 1 else 1


@dataclass(frozen=True)
class Group:
    """The slots of one layer (one submodule), contiguous in theta."""

    name: str
    slots: tuple[Slot, ...]

    @property
    def start(self) -> int:
        return self.slots[0].start

    @property
    def stop(self) -> int:
        return self.slots[-1].stop

    @property
    def numel(self) -> int:
        return self.stop - self.start


def grouped(slots: Sequence[Slot]) -> tuple[Group, ...]:
    """Neighbouring slots whose names share everything before the last dot."""
    layers: list[tuple[str, list[Slot]]] = []
    for slot in slots:
        owner = slot.name.rpartition(".")[0]
        if layers and layers[-1][0] == owner:
            layers[-1][1].append(slot)
        else:
            layers.append((owner, [slot]))
    return tuple(Group(owner or "(root)", tuple(members)) for owner, members in layers)


def chosen_slots(
    module: nn.Module, include: tuple[str, ...], exclude: tuple[str, ...]
) -> tuple[tuple[Slot, ...], tuple[str, ...]]:
    """The slots of the chosen parameters, and the names of the others."""
    if not include:
        raise ValueError('include: expected at least one pattern, got none; "*" chooses every parameter.')
    aliases: dict[int, list[str]] = {}
    tensors: dict[int, nn.Parameter] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(f"{name}: expected initialised weights, got a lazy module; run a batch through it first.")
        aliases.setdefault(id(parameter), []).append(name)
        tensors[id(parameter)] = parameter
    names = [name for group in aliases.values() for name in group]
    if not names:
        raise ValueError(f"module: expected parameters, {type(module).__name__} has none.")
    for pattern in (*include, *exclude):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"pattern {pattern!r} matches no parameter; the names are {names[:12]}.")

    slots: list[Slot] = []
    fixed: list[str] = []
    for key, group in aliases.items():
        parameter = tensors[key]
        wanted = include if parameter.requires_grad else [pattern for pattern in include if pattern != "*"]
        if not _matches(group, wanted) or _matches(group, exclude):
            fixed.append(group[0])
            continue
        _check_parameter(group[0], parameter)
        start = slots[-1].stop if slots else 0
        slots.append(Slot(group[0], tuple(group), parameter.shape, start, start + parameter.numel()))
    if not slots:
        raise ValueError(
            f"include={include}, exclude={exclude}: expected at least one stochastic parameter, got none; those with "
            'requires_grad=False count only if a pattern other than "*" includes them.'
        )
    chosen = [module.get_parameter(slot.name) for slot in slots]
    kinds = {(parameter.dtype, parameter.device) for parameter in chosen}
    if len(kinds) > 1:
        raise ValueError(
            f"module: expected stochastic parameters of one dtype on one device, got {sorted(map(str, kinds))}; "
            "convert with module.to(...) or exclude some by pattern."
        )
    return tuple(slots), tuple(fixed)


def _matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    if not parameter.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point parameter, got {parameter.dtype}; exclude it by pattern.")
    if parameter.numel() == 0:
        raise ValueError(f"{name}: expected at least one weight, got shape {tuple(parameter.shape)}; exclude it.")
    if not torch.isfinite(parameter).all():
        raise ValueError(f"{name}: expected finite weights, got NaN or inf; re-initialise the module before use.")
