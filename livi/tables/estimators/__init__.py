"""scikit-learn estimators: a network and its posterior behind fit and predict."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ModuleNotFoundError(
        'livi.estimators: expected scikit-learn, got no such package; install it with `pip install "livi[sklearn]"`.',
        name="sklearn",
    ) from error

from livi.tables.estimators.classifier import LIVIClassifier
from livi.tables.estimators.regressor import LIVIRegressor
from livi.tables.estimators.saved import load, load_with_extra

__all__ = ["LIVIClassifier", "LIVIRegressor", "load", "load_with_extra"]
