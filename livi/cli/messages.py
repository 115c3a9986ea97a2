"""Messages to the user on stderr, so that stdout has results alone."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A message on a line of its own, seen at once even if stderr is a file."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Something worth knowing about the data or the fit."""
    say(f"note: {text}")


def warn(text: str) -> None:
    """An error, or something that needs the user's attention."""
    say(f"livi: {text}")


def quiet(_: str) -> None:
    """Takes the place of `say` or `note` where nothing is to be said."""
