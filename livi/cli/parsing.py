"""Wrong usage in words that help: argparse's own error, and the nearest word that there is."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '([^']*)'")


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the option or choice that was probably meant. Its subparsers do so too.

    The one that a command line ends in is `parser` of the result.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.set_defaults(parser=self)
        self._given: list[str] = []

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self._given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self._given, namespace)

    def error(self, message: str) -> NoReturn:
        hints = [*self._unknown_options(), *self._unknown_choices(message)]
        super().error("; ".join([message, *(f"{hint}?" for hint in hints)]))

    def _unknown_options(self) -> list[str]:
        """A misspelt option makes argparse complain of others, such as one that is required."""
        known = [option for option in self._option_string_actions if option.startswith("--")]
        given = [word.partition("=")[0] for word in self._before_the_end() if re.match("--?[a-z]", word)]
        # One dash in place of two counts as misspelt too.
        misspelt = {word: f"--{word.lstrip('-').lower()}" for word in given if word not in self._option_string_actions}
        close = {word: difflib.get_close_matches(likely, known, 1) for word, likely in misspelt.items()}
        return [f"for {word}, did you mean {found[0]}" for word, found in close.items() if found]

    def _before_the_end(self) -> list[str]:
        return self._given[: self._given.index("--")] if "--" in self._given else self._given

    def _unknown_choices(self, message: str) -> list[str]:
        given = _CHOICE.search(message)
        if given is None or "maybe you meant" in message:  # as newer versions of Python say
            return []
        known = [str(choice) for action in self._actions for choice in action.choices or ()]
        return [f"did you mean {found}" for found in difflib.get_close_matches(given[1].lower(), known, 1)]
