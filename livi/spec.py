"""Values and objects as JSON, exactly and without pickle, so that what was saved can be built again.

Plain values are written as they are. A value that JSON lacks is an object with one key, its tag: {"tuple": [1, 2]},
{"float": "7ff0000000000000"} (infinity), {"dict": [[0, "a"]]}. A `Specified` object is written as its class and the
arguments it was called with. Reading looks classes up in a table of known ones and never imports anything.
"""

from __future__ import annotations

import inspect
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

Json = Any  # None, bool, int, float, str, and lists and str-keyed dicts of these

_MAPPINGS: dict[str, type[dict[Any, Any]]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_PACKAGE = __name__.partition(".")[0]


class Specified:
    """Base class of objects that record the arguments they were made with, so that `build(spec_of(x), ...)` copies x.

    A subclass needs no code for this. Arguments may be None, numbers, strings, lists, tuples, dicts, dtypes, classes,
    other Specified objects and tensors. Only the shape and dtype of a tensor are recorded, since its values come back
    with the state dict: keep it as a parameter or a buffer. `spec_of` raises for anything else, such as a function.
    """

    _spec: dict[str, Json]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here rather than in __init__, which a subclass replaces and calls again through super().
        self = super().__new__(cls)
        object.__setattr__(self, "_spec", _record(cls, args, kwargs))
        return self

    def _remember(self, **arguments: Any) -> None:
        """Add or replace arguments in the spec, for an object that was changed after it was made."""
        known = {name: _encoded(value, name) for name, value in arguments.items()}
        record = {**self._spec, "arguments": self._spec["arguments"] | known}  # a copy: another spec may hold the old
        object.__setattr__(self, "_spec", record)


class NotSpecifiedError(TypeError):
    """Raised for an argument without a JSON form; `argument` names the outermost one that holds it."""

    def __init__(self, message: str, argument: str) -> None:
        super().__init__(message)
        self.argument = argument


def spec_of(specified: Specified, without: Collection[str] = ()) -> dict[str, Json]:
    """{"class": ..., "arguments": {...}}, including arguments left at their defaults, but none of those in `without`.

    Raises:
        NotSpecifiedError: an argument has no JSON form.
    """
    record = specified._spec
    arguments = {name: value for name, value in record["arguments"].items() if name not in without}
    for argument, value in arguments.items():
        for owner, path, words in _unknown(value, record["class"]):
            raise NotSpecifiedError(
                f"{owner}: argument {path}: expected None, numbers, strings, tensors, classes, livi's own objects, or "
                f"lists of these, got {words}.",
                argument,
            )
    return {"class": record["class"], "arguments": arguments}


def build(spec: Mapping[str, Json], classes: Mapping[str, type], **given: Any) -> Any:
    """The object that a spec describes, with the arguments in `given` added or put in place of the spec's own.

    >>> class Pair(Specified):
    ...     def __init__(self, first, second=(2, 3)):
    ...         self.both = first, second
    >>> spec_of(Pair(1))
    {'class': 'Pair', 'arguments': {'first': 1, 'second': {'tuple': [2, 3]}}}
    >>> build(spec_of(Pair(1)), known_classes(), first="one").both
    ('one', (2, 3))
    """
    cls = _class(spec["class"], classes)
    if not issubclass(cls, Specified):
        raise ValueError(f"{spec['class']}: expected a subclass of livi.spec.Specified, got {cls}; derive it from one.")
    arguments = {
        name: from_json(value, lambda tag, payload: _restored(tag, payload, classes))
        for name, value in spec["arguments"].items()
        if name not in given
    }
    try:
        return _call(cls, arguments | given)
    except Exception as error:
        raise ValueError(
            f"{spec['class']}: expected it to accept the arguments {sorted(arguments | given)} as when it was saved, "
            f"got {type(error).__name__}: {error}; use the version that saved it."
        ) from error


def known_classes(others: Iterable[type] = ()) -> dict[str, type]:
    """The package's Specified classes that have been imported, and `others`, under the names that specs use."""
    table = {class_name(cls): cls for cls in _subclasses(Specified) if _in_package(cls)}
    for cls in others:
        if not isinstance(cls, type):
            raise TypeError(f"classes: expected classes, got {cls!r}; pass the class itself, not an object or a name.")
        if table.setdefault(class_name(cls), cls) is not cls:
            raise ValueError(f"classes: expected different names, got {cls} and {table[class_name(cls)]}; rename one.")
    return table


def class_name(cls: type) -> str:
    """The name of a class in specs: 'MLP' for the package's own, 'torch.nn.ELU', and 'custom.MLP' for all others."""
    if vars(nn).get(cls.__name__) is cls:
        return f"torch.nn.{cls.__name__}"
    return cls.__name__ if _in_package(cls) else f"custom.{cls.__name__}"


def to_json(value: Any, other: Callable[[Any, str], Json], path: str = "") -> Json:
    """A JSON form from which `from_json` restores the value exactly: int keys, tuples, every bit of a float.

    Args:
        other: returns the JSON form of any other value, an object with one key, or raises.
        path: the name of the value; passed on to `other`, with the keys and indices on the way down.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):  # numpy's doubles too
        return float(value) if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if type(value) is list:
        return [to_json(item, other, _join(path, i)) for i, item in enumerate(value)]
    if type(value) in (tuple, torch.Size):
        return {"tuple": to_json(list(value), other, path)}
    if _MAPPINGS.get(type(value).__name__) is type(value):
        pairs = [
            [to_json(key, _not_a_key, path), to_json(item, other, _join(path, key))] for key, item in value.items()
        ]
        return {type(value).__name__: pairs}
    return other(value, path)


def from_json(value: Json, other: Callable[[str, Json], Any]) -> Any:
    """The value that `to_json` was given; `other` restores values of other tags, given the tag and its content."""
    if isinstance(value, list):
        return [from_json(item, other) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"expected an object with one key, its tag, got keys {sorted(value)[:8]}.")
    [(tag, content)] = value.items()
    if tag == "float":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if tag == "dtype":
        return _dtype(content)
    if tag == "tuple":
        return tuple(from_json(content, other))
    if tag in _MAPPINGS:
        return _MAPPINGS[tag]({from_json(key, other): from_json(item, other) for key, item in content})
    return other(tag, content)


def _record(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Json]:
    """The call as JSON, made at once: later changes to a list do not matter, and the record can always be pickled."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    arguments: dict[str, Any] = {}
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:  # __init__ will raise the same, or unpickling will restore the record
        return {"class": class_name(cls), "arguments": {}}
    bound.apply_defaults()
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= bound.arguments[name]
        elif parameter.kind is parameter.VAR_POSITIONAL:
            arguments |= {"*": list(bound.arguments[name])} if bound.arguments[name] else {}
        else:
            arguments[name] = bound.arguments[name]
    return {"class": class_name(cls), "arguments": {name: _encoded(value, name) for name, value in arguments.items()}}


def _encoded(value: Any, name: str) -> Json:
    try:
        return to_json(value, _argument, name)
    except (TypeError, RecursionError) as error:  # odd keys, or a list that holds itself: raise only in `spec_of`
        return {"unknown": [name, f"{type(value).__name__} ({error})"]}


def _argument(value: Any, path: str) -> Json:
    if isinstance(value, Specified):
        return {"object": value._spec}
    if isinstance(value, Tensor):
        return {"tensor": {"shape": list(value.shape), "dtype": to_json(value.dtype, _argument)}}
    if isinstance(value, type):
        return {"class": class_name(value)}
    return {"unknown": [path, f"{type(value).__name__} {getattr(value, '__qualname__', '')}".strip()]}


def _restored(tag: str, content: Json, classes: Mapping[str, type]) -> Any:
    if tag == "object":
        return build(content, classes)
    if tag == "tensor":
        dtype = _dtype(content["dtype"]["dtype"])
        floating = dtype.is_floating_point or dtype.is_complex  # scales must be positive, group numbers begin at 0
        return torch.full(content["shape"], float(floating), device="cpu").to(dtype)
    if tag == "class":
        return _class(content, classes)
    raise ValueError(f"expected a known tag, got {tag!r}; the file may come from a newer version.")


def _unknown(value: Json, owner: str) -> Iterator[tuple[str, str, str]]:
    """Owner, path and description of every argument without a JSON form."""
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, owner)
    elif isinstance(value, dict):
        [(tag, content)] = value.items()
        if tag == "unknown":
            yield owner, content[0], content[1]
        elif tag == "object":
            yield from _unknown(list(content["arguments"].values()), content["class"])
        elif tag == "tuple" or tag in _MAPPINGS:
            yield from _unknown(content, owner)


def _call(cls: type, arguments: dict[str, Any]) -> Any:
    rest = arguments.pop("*", [])
    positional = []
    for name, parameter in inspect.signature(cls.__init__).parameters.items():  # type: ignore[misc]
        by_place = rest and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if name in arguments and (by_place or parameter.kind is parameter.POSITIONAL_ONLY):
            positional.append(arguments.pop(name))
    return cls(*positional, *rest, **arguments)


def _class(name: str, classes: Mapping[str, type]) -> type:
    if name.startswith("torch.nn."):
        found = vars(nn).get(name.removeprefix("torch.nn."))
        if isinstance(found, type) and issubclass(found, nn.Module):
            return found
    if name not in classes:
        remedy = (
            f"pass classes=[{name.removeprefix('custom.')}]"
            if name.startswith("custom.")
            else f"import the part of {_PACKAGE} that defines it"
        )
        raise ValueError(f"{name}: expected one of the known classes {sorted(classes)}, got a new one; {remedy}.")
    return classes[name]


def _dtype(name: str) -> torch.dtype:
    found = vars(torch).get(name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"expected the name of a torch dtype, got {name!r}; the file may come from a newer version.")
    return found


def _subclasses(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from _subclasses(subclass)


def _in_package(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == _PACKAGE


def _not_a_key(value: Any, path: str) -> Json:
    raise TypeError(f"{path}: expected keys that are numbers, strings or tuples of these, got {type(value).__name__}.")


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
