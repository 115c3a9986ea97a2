"""A fitted posterior in one file: specs to rebuild its parts from, their weights, and the network's fingerprint."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi import checks
from livi.family.family import WeightSampler
from livi.model.density import NoData
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior
from livi.network import Layout
from livi.network.copying import copied
from livi.posterior.fitted import Fitted
from livi.posterior.storage.allowance import Allowance
from livi.posterior.storage.contents import check_calibration, check_meta, check_numbers, check_state, complaint
from livi.posterior.storage.file import StorageError, read, write
from livi.posterior.storage.network import (
    check_layers,
    check_unsampled,
    compare,
    fingerprint,
    in_names_of,
    matching_layout,
    overwrite,
    shapes,
    unsampled,
)
from livi.posterior.storage.state import check_kind, flatten_state, unflatten_state
from livi.spec import Json, NotSpecifiedError, Specified, build, known_classes, spec_of


class Saveable(Fitted, Protocol):
    """A fitted posterior with its history, such as `livi.Posterior`."""

    @property
    def calibration(self) -> Any: ...  # inputs, or None
    @property
    def history(self) -> Sequence[Mapping[str, float]]: ...
    @property
    def plan(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class LoadedParts:
    """Everything a fitted posterior is made of."""

    sampler: WeightSampler
    likelihood: Likelihood
    prior: Prior | None
    buffers: dict[str, Tensor]
    calibration: Any
    history: list[dict[str, float]]
    plan: dict[str, Any]
    extra: dict[str, Any]


def save_posterior(
    path: str | Path,
    posterior: Saveable,
    *,
    fixed_weights: bool = True,
    leave_out: Collection[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a posterior to one file, atomically. It holds no code: `load_parts` needs a network of the same kind.

    Of the training data the file holds what predictions need: all of them where the last layer is exact, the inputs of
    a few hundred examples (`calibration`) where the network has BatchNorm; `Posterior.frozen` needs none of them.

    Args:
        fixed_weights: store the network's fixed weights and buffers too, so that predictions will be the same. Without
            them the file can be much smaller, and the network given when loading must bring the right ones.
        leave_out: "likelihood", "prior" or arguments of the sampler such as "generators", whose description has no
            JSON form (a user's function in them, for example). Their weights are stored all the same; the object itself
            must be passed again when loading.
        extra: whatever else is to be known about it: numbers, strings, tensors, and dicts, lists and tuples of these.

    Raises:
        StorageError: something has no JSON form, or the file cannot be written; see `write`.
    """
    sampler, layout = posterior.sampler, posterior.sampler.layout
    if not (isinstance(sampler, Specified) and isinstance(sampler, nn.Module)):
        raise StorageError(
            f"sampler: expected an nn.Module that is a livi.spec.Specified, got {type(sampler).__name__}; "
            "derive its class from both."
        )
    parts = _parts(posterior)
    unknown = sorted(set(leave_out) - (parts.keys() - {"sampler"}) - sampler._spec["arguments"].keys())
    if unknown:
        raise StorageError(
            f"leave_out: expected a part or an argument of the sampler, got {unknown}; correct the name."
        )
    specs = {name: _spec(name, part, leave_out) for name, part in parts.items()}
    network = unsampled(layout) if fixed_weights else None
    try:
        tensors, skeleton = flatten_state("", _state(posterior) | {"network": network, "extra": dict(extra or {})})
    except TypeError as error:
        raise StorageError(str(error)) from error
    meta = {
        "kind": "posterior",
        "torch": str(torch.__version__),
        "layout": fingerprint(layout),
        "specs": specs,
        "learned": {
            name: [key for key, p in part.named_parameters() if p.requires_grad] for name, part in parts.items()
        },
        "left_out": sorted(leave_out),
        "state": skeleton,
    }
    write(path, tensors, meta)


def load_parts(
    path: str | Path,
    net: nn.Module | Callable[[dict[str, Any]], nn.Module],
    device: str | torch.device | None = None,
    classes: Iterable[type] = (),
    *,
    strict: bool = True,
    forward: Callable[..., Any] | None = None,
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
    **arguments: Any,
) -> LoadedParts:
    """The parts of a saved posterior, over a network like the one it was fitted to.

    Draws with the same random numbers are the same bit for bit, on the same machine.

    Args:
        net: has the same parameters, by name, shape, order and dtype, and the same layers. It is copied, so that
            several files can be loaded over one; its fixed weights and buffers are those of the file, if it holds them.
            Or a function that makes it from the `extra` that was saved along.
        device: where everything goes; by default where the network is.
        classes: your own generators, noises, likelihoods, ..., and other classes among their arguments.
        strict: False allows layers of other kinds or options, such as a class with another name. An activation that a
            forward calls as a function is no layer, and never compared.
        forward: as given to the layout, which cannot be saved.
        likelihood, prior: used in place of what the file describes, with the weights from the file.
        **arguments: of the sampler, likewise; `generators=...` for an ImplicitPosterior.

    Raises:
        StorageError: the network differs, a class is not known, something was left out when saving and not passed
            again, or the file cannot be read; see `read`.
        TypeError: there is no such option, and the sampler has no such argument; the message names the nearest.
        ValueError: there is no such device here.
    """
    place = None if device is None else checks.device(device)
    tensors, meta = read(path)
    check_kind(path, meta, "posterior")
    if isinstance(net, nn.Module) and _is_of_a_density(meta):
        raise StorageError(f"{path}: expected a posterior of a network, got a density; livi.load_density reads it.")
    _check_arguments(arguments.keys(), meta)
    known = known_classes(classes)
    there = net.state_dict().values() if isinstance(net, nn.Module) else ()
    stored = sum(tensor.nbytes for tensor in (*tensors.values(), *there) if isinstance(tensor, Tensor))
    allowance = Allowance(stored)
    try:
        check_meta(meta)
        state = check_state(unflatten_state(tensors, meta["state"]), meta["specs"])
        extra = state.get("extra", {})  # files from before there was one
        with allowance:
            module = copied(net) if isinstance(net, nn.Module) else net(extra)
            saved, state = in_names_of(module, meta["layout"], state)
            layout = matching_layout(saved, module, forward)
            if state["network"] is not None:
                check_unsampled(state["network"], layout)
            if strict:
                check_layers(saved, module)
            with _private_rng():
                parts = _rebuilt(meta, layout, known, {"likelihood": likelihood, "prior": prior}, arguments)
        for name, part in parts.items():
            compare(f"weight of the {name}", shapes(state[name]), shapes(part.state_dict()))
            check_numbers(name, state[name], part)
        check_calibration(state.get("calibration"), layout.dtype)
    except Exception as error:  # a file can hold anything, and its reader may stumble over it anywhere
        raise StorageError(f"{path}: {allowance.refusal or complaint(error)}") from error
    home = layout.device if place is None else place
    if place is not None:
        module.to(place)
    for name, part in parts.items():
        _load(part, state[name], home, meta["learned"][name])
    if state["network"] is not None:
        overwrite(module, state["network"])
    return LoadedParts(
        sampler=parts["sampler"],
        likelihood=parts["likelihood"],
        prior=parts.get("prior"),
        buffers={name: buffer.to(home) for name, buffer in state["buffers"].items()},
        calibration=moved(state.get("calibration"), home),  # files from before there was one
        history=state["history"],
        plan=state["plan"],
        extra=extra,
    )


def _options_of(function: Callable[..., Any]) -> list[str]:
    after_path_and_subject = list(inspect.signature(function).parameters.values())[2:]
    return [one.name for one in after_path_and_subject if one.kind is not one.VAR_KEYWORD]


SAVE_OPTIONS, LOAD_OPTIONS = _options_of(save_posterior), _options_of(load_parts)


def _check_arguments(given: Collection[str], meta: Mapping[str, Any]) -> None:
    """Raise a TypeError about a name that is neither an option of `load_parts` nor an argument of the saved sampler."""
    saved, left_out = _spec_in(meta, "sampler").get("arguments"), meta.get("left_out")
    if isinstance(saved, dict) and isinstance(left_out, list):  # else the file is damaged, as its reader will say
        checks.options("load", given, [*LOAD_OPTIONS, *saved, *left_out])


def _is_of_a_density(meta: Mapping[str, Any]) -> bool:
    return _spec_in(meta, "likelihood").get("class") == NoData.__name__


def _spec_in(meta: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The spec of a part; an empty one where the file, which may be damaged, has none."""
    specs = meta.get("specs")
    spec = specs.get(name) if isinstance(specs, dict) else None
    return spec if isinstance(spec, dict) else {}


# --- the parts ------------------------------------------------------------------------------------


def _parts(posterior: Saveable) -> dict[str, Any]:
    parts = {"sampler": posterior.sampler, "likelihood": posterior.likelihood, "prior": posterior.prior}
    return {name: part for name, part in parts.items() if part is not None}


def _state(posterior: Saveable) -> dict[str, Any]:
    return {name: dict(part.state_dict()) for name, part in _parts(posterior).items()} | {
        "buffers": dict(posterior.buffers),
        "calibration": posterior.calibration,
        "history": [dict(row) for row in posterior.history],
        "plan": dict(posterior.plan),
    }


def _spec(name: str, part: Specified, leave_out: Collection[str]) -> Json:
    if name in leave_out:
        return None
    try:
        return spec_of(part, {"layout", *leave_out} if name == "sampler" else ())
    except NotSpecifiedError as error:
        again = error.argument if name == "sampler" else name
        raise StorageError(
            f"{error} Save it with leave_out=[{again!r}] and pass {again}=... again when loading, or make it a class."
        ) from error


def _rebuilt(
    meta: Mapping[str, Json],
    layout: Layout,
    classes: Mapping[str, type],
    given: Mapping[str, nn.Module | None],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    present = {name for name, part in given.items() if part is not None}
    if not present <= meta["specs"].keys():
        raise ValueError(f"expected no {' or '.join(present - meta['specs'].keys())}=, since none was saved, got one.")
    missing = set(meta["left_out"]) - present - arguments.keys()
    if missing:
        again = ", ".join(f"{name}=..." for name in sorted(missing))
        raise ValueError(f"expected {again}, left out when it was saved, got none; pass it again.")
    parts = {"sampler": build(meta["specs"]["sampler"], classes, layout=layout, **arguments)}
    for name, spec in meta["specs"].items():
        if name != "sampler":
            part = given[name]
            parts[name] = build(spec, classes) if part is None else part
    return parts


def _load(part: nn.Module, state: Mapping[str, Any], device: torch.device, learned: Collection[str]) -> None:
    """Put the state into the part, in the precision of the state."""
    if any(value.device != device for value in part.state_dict().values() if isinstance(value, Tensor)):
        part.to(device)  # only then, since a posterior takes its network along
    for name, current in part.state_dict(keep_vars=True).items():
        if isinstance(current, Tensor) and current.dtype != state[name].dtype:
            current.data = current.data.to(state[name].dtype)
    part.load_state_dict(state)
    for name, parameter in part.named_parameters():
        parameter.requires_grad_(name in learned)  # torch multiplies matrices in another order where gradients are due


def moved(tree: Any, device: torch.device) -> Any:
    """The same tuples, dicts and lists, with their tensors on this device."""
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, tree)


@contextmanager
def _private_rng() -> Iterator[None]:
    """A context that protects torch's global random stream, from which new modules draw their first weights."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        yield
