"""Whose turn it is: while a network runs at some weights, its own are swapped for them, and one thread may do that.

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
    """The lock of this network; a thread that has it may take it again."""
    with _LOOKING:
        return _LOCKS.setdefault(module, RLock())


def in_turn(method: Method) -> Method:
    """A method of something with a `layout`, which other threads that want the same network wait for."""

    @wraps(method)
    def waiting(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with self.layout.turn:
            return method(self, *args, **kwargs)

    return cast(Method, waiting)
