"""What the fit advises, in words of the command line, which has fewer settings than `livi.fit`."""

from __future__ import annotations

import re

_ADVICE = (
    (re.compile(r"Raise Recipe\.steps[^.]*\.$"), "Raise --steps."),
    (re.compile(r"Check num_data, or fit for more steps\.$"), "Raise --steps."),
    (re.compile(r"lower the learning rates or raise Recipe\.\w+\.$"), "raise --steps, or lower --hidden."),
)


def in_options(text: str) -> str:
    """The sentence with options of `livi fit` for settings of a recipe.

    >>> in_options("the posterior may be too wide. Raise Recipe.steps or num_samples.")
    'the posterior may be too wide. Raise --steps.'
    """
    for advice, options in _ADVICE:
        text = advice.sub(options, text)
    return text
