"""The priors of the estimators over the weights of a network."""

from __future__ import annotations

import math
from collections.abc import Callable

from livi.model.priors import Normal, Prior, Relevance
from livi.network import Layout

PRIOR_SCALES = ("auto", "learned", "fan_in")

# Standard deviations in units of 1 / sqrt(fan-in), chosen on held-out training rows. Logits need a wider range than
# standardised targets, and the noise a smaller one. With pieces a network can bend sharply without large weights.
_TARGET_GAIN, _LOGIT_GAIN, _LAST_LOGIT_GAIN, _NOISE_GAIN = 1.5, 3.0, 8.0, 0.3
_PIECE_GAIN, _LAST_PIECE_GAIN = 1.0, 3.0


def prior_of(
    scale: float | str, hidden_layers: int, *, classes: bool, pieces: bool = False
) -> Prior | Callable[[Layout], Prior]:
    """The prior for a `prior_scale`, as an argument for `livi.fit`, given the number of hidden layers.

    Args:
        classes: outputs are logits.
        pieces: inputs are columns and their pieces.

    With an exact last layer it helps to learn the scales, since they maximise the evidence of the features. Where all
    layers are sampled, as for classes, learned scales prune weights until the network underfits.
    """
    if not isinstance(scale, str):
        return Normal(float(scale))
    learned = scale == "learned" or (scale == "auto" and not classes)
    last = _LAST_PIECE_GAIN if pieces else _LAST_LOGIT_GAIN
    gains = {f"{2 * hidden_layers}.weight": last} if classes else {}
    gains |= {"noise.weight": _NOISE_GAIN, "noise.bias": _NOISE_GAIN}
    gain = (_PIECE_GAIN if pieces else _LOGIT_GAIN) if classes else _TARGET_GAIN

    def make(layout: Layout) -> Relevance:
        own = gains if classes or not hidden_layers else gains | _last_bias(layout, f"{2 * hidden_layers}", gain)
        return Relevance.for_layout(layout, gain=gain, gains=own, learned=learned)

    return make


def _last_bias(layout: Layout, last: str, gain: float) -> dict[str, float]:
    """A gain for the last bias that makes its scale that of the last weights, as standardised targets have mean 0."""
    names = (last, f"mean.{last}")  # of a plain network, and of one with varying noise
    slots = [slot for slot in layout.slots if slot.name in {f"{name}.weight" for name in names}]
    return {slot.name.removesuffix("weight") + "bias": gain / math.sqrt(slot.fan_in) for slot in slots}
