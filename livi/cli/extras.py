"""Modules that need the packages of an extra."""

from __future__ import annotations

import importlib
from typing import Any


def load(name: str, extra: str = "tables") -> Any:
    """Import a module that is, or needs, a package of this extra.

    Raises:
        ImportError: the package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(f'this needs {error.name}, which is not there: pip install "livi[{extra}]".') from error
