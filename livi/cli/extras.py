"""Modules that need packages which are not always there."""

from __future__ import annotations

import importlib
from typing import Any


def load(name: str, extra: str = "tables") -> Any:
    """A module that is, or needs, a package of this extra.

    Raises:
        ImportError: it is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(f'this needs {error.name}, which is not there: pip install "livi[{extra}]".') from error
