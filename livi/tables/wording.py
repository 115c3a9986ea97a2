"""Wording of messages: the advice of a fit in options of the command line, names of columns, lists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_ADVICE = (
    (re.compile(r"Raise Recipe\.steps[^.]*\.$"), "Raise --steps."),
    (re.compile(r"Check num_data, or fit for more steps\.$"), "Raise --steps."),
    (re.compile(r"lower the learning rates or raise Recipe\.\w+\.$"), "raise --steps, or lower --hidden."),
    (re.compile(r"fit for more steps,? or make fewer weights stochastic \(include=\)\.$"), "raise --steps."),
    (
        re.compile(r",? ?(learn the noise \([^)]*\(\)\))? or make fewer weights stochastic \(include=\)\.$"),
        ", lower --hidden.",
    ),
    (re.compile(r"[Ff]it for more steps, or use livi\.rivals\.\w+ where the bound matters\."), "Raise --steps."),
    (re.compile(r"[Rr]aise max_iterations or the noise\.$"), "raise --steps."),
    (re.compile(r"Standardise inputs and targets, check the data.*$", re.DOTALL), "Look for extreme values."),
    (re.compile(r"(?<=[Rr]aise )steps, or start from a better fit\.$"), "--steps."),
    (re.compile(r" Subtract the gap before comparing models, or raise the noise\.$"), " Compare no models by it."),
    (re.compile(r"; raise Effort\.\w+\.$"), "."),
    (re.compile(r" Lower the noise or raise latent_dim\.$"), " Several --components may find more."),
    (re.compile(r"; a wider generator may find more\.$"), "; several --components may find more."),
    (re.compile(r"; check a smaller generator of the same kind\.$"), "."),
)


def in_options(text: str) -> str:
    """The text with options of `livi fit` in place of settings that the command line does not have.

    >>> in_options("the posterior may be too wide. Raise Recipe.steps or num_samples.")
    'the posterior may be too wide. Raise --steps.'
    """
    for advice, options in _ADVICE:
        text = advice.sub(options, text)
    return text


def as_argument(name: str) -> str:
    """A column's name as it is typed in a shell after an option that takes several names.

    >>> print(as_argument("area"), as_argument("floor area"), as_argument("price, EUR"))
    area 'floor area' '"price, EUR"'
    """
    return shlex.quote(f'"{name}"' if "," in name else name)


def and_more(shown: Sequence[str], count: int) -> str:
    """The first of `count` items, as a list in words.

    >>> and_more(["a", "b", "c"], 7)
    'a, b, c and 4 more'
    """
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
