"""livi: an honest posterior over the weights of any PyTorch network.

A neural sampler theta = g(z) + noise, trained on an approximate evidence lower bound whose entropy comes from
locally linearising g (Uppal et al., NeurIPS 2023), so that no discriminator is needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

from livi.version import __version__ as __version__

if TYPE_CHECKING:
    from livi.comparison import Comparison as Comparison
    from livi.comparison import compare as compare
    from livi.public import *  # noqa: F403
    from livi.tables import estimators as estimators
    from livi.tables.estimators import LIVIClassifier as LIVIClassifier
    from livi.tables.estimators import LIVIRegressor as LIVIRegressor

# Not in __all__, so that a star import works without the packages that they need.
_ELSEWHERE = {
    "Comparison": "livi.comparison",
    "LIVIClassifier": "livi.tables.estimators",
    "LIVIRegressor": "livi.tables.estimators",
    "compare": "livi.comparison",
}
# Parts of a room that have a name of their own, and rooms by their former names.
_PARTS = {
    "baselines": "livi.rivals",
    "data": "livi.model.data",
    "datasets": "livi.experiments.datasets",
    "diagnostics": "livi.posterior.diagnostics",
    "entropy": "livi.family.entropy",
    "estimators": "livi.tables.estimators",
    "generators": "livi.family.generators",
    "last_layer": "livi.family.last_layer",
    "latents": "livi.family.latents",
    "layout": "livi.network",
    "likelihoods": "livi.model.likelihoods",
    "linalg": "livi.family.linalg",
    "metrics": "livi.posterior.metrics",
    "noise": "livi.family.noise",
    "objective": "livi.family.objective",
    "prediction": "livi.posterior.prediction",
    "priors": "livi.model.priors",
    "storage": "livi.posterior.storage",
    "training": "livi.inference",
}


def __getattr__(name: str) -> Any:
    """What is asked for is imported then, so that the command line can answer without waiting for torch."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'livi' has no attribute {name!r}")
    where = _PARTS.get(name, f"livi.{name}")
    try:
        value: Any = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where:
            raise
        home = importlib.import_module(_ELSEWHERE.get(name, "livi.public"))
        if not hasattr(home, name):
            raise AttributeError(f"module 'livi' has no attribute {name!r}") from None
        value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is meant for use, without what this file needs for itself."""
    names, own = importlib.import_module("livi.public").__all__, (name for name in globals() if name.startswith("__"))
    return sorted({*own, *names, *_ELSEWHERE, "estimators", "rivals"})
