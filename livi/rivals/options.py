"""Checks that the rivals share: options of `livi.inference.fit` that do not apply, and optional packages."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from livi.model.problem import Problem

OF_PROBLEM = [name for name in inspect.signature(Problem.of).parameters if name not in ("net", "data", "likelihood")]


def refuse(function: str, options: Mapping[str, Any], *names: str) -> None:
    """Raise a TypeError if one of these options was given, instead of silently ignoring what the user asked for."""
    given = [name for name in names if options.get(name) is not None and not _empty(options[name])]
    if given:
        raise TypeError(f"{function}: expected no {' or '.join(given)}, which this baseline fixes or has no use for.")


def needed(function: str, module: str, install: str) -> Any:
    """A module of an optional package.

    Raises:
        ImportError: the package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise ImportError(f"{function}: expected {missing}, got no such package; install it: {install}") from error


def _empty(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and not value
