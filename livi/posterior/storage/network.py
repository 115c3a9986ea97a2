"""The network of a saved posterior: a fingerprint that it must match, and its weights that are not sampled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from livi.model.likelihoods import pass_weights
from livi.network import InputScaling, Layout, all_batch_norms
from livi.spec import Json

Kind = tuple[str, tuple[int, ...], str]  # name, shape, dtype
_HARMLESS = re.compile(r"inplace|dropout=|training=|device=|(cuda|cpu|mps|meta)(:\d+)?$|.*\b0x[0-9a-f]+")


def fingerprint(layout: Layout) -> dict[str, Json]:
    """Facts about a network that another one must share for theta to mean the same."""
    return {
        "include": list(layout.include),
        "exclude": list(layout.exclude),
        "forward": layout.forward is not None,
        "weighted": layout.forward is pass_weights,
        "dtype": str(layout.dtype),
        "slots": [slot.name for slot in layout.slots],
        "parameters": [[name, list(value.shape)] for name, value in layout.module.named_parameters()],
        "layers": layers(layout.module),
        "scaling": None if layout.scaling is None else layout.scaling.facts(),
    }


def layers(net: nn.Module) -> list[str]:
    """The kind and options of every submodule, one a line, except those that change no prediction.

    Left out are devices, modes, dropout (which is off), and whether a module is used in several places or copied.
    What a forward does by itself, without a module, cannot be seen.

    >>> layers(nn.Sequential(nn.Linear(2, 1), nn.ReLU(inplace=True)))
    ['Sequential()', '0 Linear(in_features=2, out_features=1, bias=True)', '1 ReLU()']
    """
    return [
        f"{name} {type(module).__name__}({_options(module)})".lstrip()
        for name, module in net.named_modules(remove_duplicate=False)
    ]


def _options(module: nn.Module) -> str:
    if isinstance(module, (_DropoutNd, nn.ParameterList, nn.ParameterDict)):
        return ""
    return ", ".join(option for option in module.extra_repr().split(", ") if not _HARMLESS.match(option))


def in_names_of(
    net: nn.Module, layout: Mapping[str, Json], state: Mapping[str, Any]
) -> tuple[dict[str, Json], dict[str, Any]]:
    """The saved description and state, with parameters and buffers under this network's names.

    Names differ by what torch.compile adds, where only one of the two is compiled, or other parts are.
    """
    known = {_uncompiled(name): name for name in (*dict(net.named_parameters()), *dict(net.named_buffers()))}

    def here(name: str) -> str:
        return known.get(_uncompiled(name), name)

    def renamed(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {here(name): value for name, value in tensors.items()}

    slots, parameters = map(here, layout["slots"]), ([here(name), shape] for name, shape in layout["parameters"])
    network = state["network"] and {kind: renamed(tensors) for kind, tensors in state["network"].items()}
    names = {"slots": list(slots), "parameters": list(parameters)}
    return {**layout, **names}, {**state, "buffers": renamed(state["buffers"]), "network": network}


def _uncompiled(name: str) -> str:
    """The name of a parameter, or a line of `layers`, without the prefixes that torch.compile adds.

    >>> _uncompiled("_orig_mod.head._orig_mod.0.weight"), _uncompiled("head._orig_mod Sequential()")
    ('head.0.weight', 'head Sequential()')
    """
    return name.replace("._orig_mod", "").replace("_orig_mod.", "").removeprefix("_orig_mod ")


def check_layers(saved: Mapping[str, Json], net: nn.Module) -> None:
    """Raise a ValueError about the first layer that differs; the oldest files have no list of layers."""
    if "layers" not in saved:
        return
    own = (
        [_uncompiled(line) for line in lines if "OptimizedModule()" not in line]
        for lines in (saved["layers"], layers(net))
    )
    for expected, got in zip_longest(*own):
        if expected != got:
            raise ValueError(
                f"expected the layer {expected or '(no more)'}, got {got or '(no more)'}; pass a network like the one "
                "saved, or strict=False if the two compute the same."
            )


def matching_layout(saved: Mapping[str, Json], net: nn.Module, forward: Callable[..., Any] | None) -> Layout:
    if saved.get("weighted") and forward is None:  # livi's own
        forward = pass_weights
    if saved["forward"] != (forward is not None):
        words = ("forward=, as when it was fitted", "none") if saved["forward"] else ("no forward=", "one")
        raise ValueError(f"forward: expected {words[0]}, got {words[1]}; call the network as the fit did.")
    compare(
        "parameter",
        [(name, tuple(shape), "") for name, shape in saved["parameters"]],
        shapes(dict(net.named_parameters())),
    )
    # By name, since what the patterns choose depends on requires_grad, which need not be the same in this network.
    scaling = saved.get("scaling")  # files of old have none
    layout = Layout(
        net,
        [escape(name) for name in saved["slots"]],
        forward=forward,
        scaling=None if scaling is None else InputScaling.from_facts(scaling),
    )
    compare(
        "stochastic parameter",
        [(name, (), "") for name in saved["slots"]],
        [(slot.name, (), "") for slot in layout.slots],
    )
    if str(layout.dtype) != saved["dtype"]:
        raise ValueError(
            f"net: expected parameters of {saved['dtype']}, got {layout.dtype}; use `net.to({saved['dtype']})`."
        )
    return layout


def unsampled(layout: Layout) -> dict[str, dict[str, Tensor]]:
    """The fixed weights, and the buffers of the state dict; other buffers are caches that a network makes itself."""
    module = layout.module
    stored = module.state_dict().keys()
    return {
        "fixed": {name: module.get_parameter(name) for name in layout.fixed},
        "buffers": {name: buffer for name, buffer in module.named_buffers() if name in stored},
    }


def held(layout: Layout) -> dict[str, Tensor]:
    """What all networks of a fit share: fixed weights, and buffers but those of BatchNorm that normalises by the batch.

    Nor the number of batches that BatchNorm has seen: no prediction depends on it.
    """
    found = unsampled(layout)
    own = {f"{name}.num_batches_tracked".lstrip(".") for name in all_batch_norms(layout.module)}
    for name, layer in layout.batch_norms.items():
        own |= {f"{name}.{buffer}".lstrip(".") for buffer, _ in layer.named_buffers()}
    return found["fixed"] | {name: buffer for name, buffer in found["buffers"].items() if name not in own}


def check_unsampled(saved: Mapping[str, Mapping[str, Tensor]], layout: Layout) -> None:
    found = unsampled(layout)
    compare("fixed weight", _kinds(saved["fixed"]), _kinds(found["fixed"]))
    compare("buffer", _kinds(saved["buffers"]), _kinds(found["buffers"]))


@torch.no_grad()
def overwrite(net: nn.Module, saved: Mapping[str, Mapping[str, Tensor]]) -> None:
    for name, value in saved["fixed"].items():
        net.get_parameter(name).copy_(value)
    for name, value in saved["buffers"].items():
        net.get_buffer(name).copy_(value)


def _kinds(tensors: Mapping[str, Any]) -> list[Kind]:
    return [
        (name, tuple(value.shape), str(value.dtype)) if isinstance(value, Tensor) else (name, (), type(value).__name__)
        for name, value in tensors.items()
    ]


def shapes(tensors: Mapping[str, Any]) -> list[Kind]:
    return [(name, shape, "") for name, shape, _ in _kinds(tensors)]


def compare(what: str, saved: Sequence[Kind], found: Sequence[Kind]) -> None:
    """Raise a ValueError about the first difference."""
    for expected, got in zip_longest(saved, found):
        if expected != got:
            raise ValueError(
                f"expected the {what} {_words(expected)}, got {_words(got)}; pass a network and parts like those saved."
            )


def _words(kind: Kind | None) -> str:
    return "(no more)" if kind is None else " ".join(filter(None, [repr(kind[0]), str(kind[1]), kind[2]]))
