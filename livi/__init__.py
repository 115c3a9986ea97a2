"""livi: an honest posterior over the weights of any PyTorch network.

A neural sampler theta = g(z) + noise, trained on an approximate evidence lower bound whose entropy comes from
locally linearising g (Uppal et al., NeurIPS 2023), so that no discriminator is needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

from livi.version import __version__ as __version__

if TYPE_CHECKING:
    from livi import estimators as estimators
    from livi.estimators import LIVIClassifier as LIVIClassifier
    from livi.estimators import LIVIRegressor as LIVIRegressor
    from livi.public import *  # noqa: F403

# Not in __all__, so that a star import works without the packages that they need.
_ESTIMATORS = ("LIVIClassifier", "LIVIRegressor")


def __getattr__(name: str) -> Any:
    """What is asked for is imported then, so that the command line can answer without waiting for torch."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'livi' has no attribute {name!r}")
    try:
        value: Any = importlib.import_module(f"livi.{name}")  # a room
    except ModuleNotFoundError as error:
        if error.name != f"livi.{name}":
            raise
        home = importlib.import_module("livi.estimators" if name in _ESTIMATORS else "livi.public")
        if not hasattr(home, name):
            raise AttributeError(f"module 'livi' has no attribute {name!r}") from None
        value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    names = importlib.import_module("livi.public").__all__
    return sorted({*globals(), *names, *_ESTIMATORS, "estimators"})
