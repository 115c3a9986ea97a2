"""What the estimators believe about a network's weights before they have seen data."""

from __future__ import annotations

from collections.abc import Callable

from livi.layout import Layout
from livi.priors import Normal, Prior, Relevance

SCALES = ("learned", "fan_in")

# Standard deviations in units of 1 / sqrt(fan-in). Logits must reach further than standardised targets, and the noise
# varies less.
_GAIN, _LOGITS_GAIN, _NOISE_GAIN = 1.5, 8.0, 0.3


def prior_of(scale: float | str, hidden_layers: int) -> Prior | Callable[[Layout], Prior]:
    """The prior for a `prior_scale`, of a network with so many hidden layers, as `livi.fit` takes it."""
    if not isinstance(scale, str):
        return Normal(float(scale))
    # The output layer of a regression is integrated out, with a learned scale of its own where scales are learned.
    gains = {f"{2 * hidden_layers}.weight": _LOGITS_GAIN, "noise.weight": _NOISE_GAIN, "noise.bias": _NOISE_GAIN}
    return lambda layout: Relevance.for_layout(layout, gain=_GAIN, gains=gains, learned=scale == "learned")
