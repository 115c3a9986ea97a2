"""A lock for each network: while it runs at other weights, its own are swapped out, which one thread at a time may do.

There is one lock for a network, whoever evaluates it, since several layouts and posteriors may share it. It is kept
here rather than in any of them, which are copied and pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from torch import nn

Method = TypeVar("Method", bound=Callable[..., Any])

_LOCKS: WeakKeyDictionary[nn.Module, AbstractContextManager[Any]] = WeakKeyDictionary()
_LOOKING = RLock()


def turn_of(module: nn.Module) -> AbstractContextManager[Any]:
    """The lock of this network, which a thread that holds it may take again."""
    with _LOOKING:
        return _LOCKS.setdefault(module, RLock())


def in_turn(method: Method) -> Method:
    """Decorate a method of an object with a `layout`, such that it holds the lock of that layout's network."""

    @wraps(method)
    def waiting(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with self.layout.turn:
            return method(self, *args, **kwargs)

    return cast(Method, waiting)
