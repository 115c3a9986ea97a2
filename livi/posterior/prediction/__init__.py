"""The posterior predictive: weight samples pushed through the network, and what the targets are then expected to be."""

from livi.posterior.prediction.chunks import DEFAULT_MEMORY_LIMIT, evaluate
from livi.posterior.prediction.classification import ClassificationPrediction
from livi.posterior.prediction.density import DensityPrediction, DrawnPrediction
from livi.posterior.prediction.functions import FunctionDraws
from livi.posterior.prediction.log_normal import LogNormalPrediction
from livi.posterior.prediction.networks import Networks, draw_networks, together, with_statistics
from livi.posterior.prediction.outputs import SampledOutputs
from livi.posterior.prediction.predictive import Prediction, answers, outputs_of, prediction_of
from livi.posterior.prediction.regression import RegressionPrediction

__all__ = [
    "DEFAULT_MEMORY_LIMIT",
    "ClassificationPrediction",
    "DensityPrediction",
    "DrawnPrediction",
    "FunctionDraws",
    "LogNormalPrediction",
    "Networks",
    "Prediction",
    "RegressionPrediction",
    "SampledOutputs",
    "answers",
    "draw_networks",
    "evaluate",
    "outputs_of",
    "prediction_of",
    "together",
    "with_statistics",
]
