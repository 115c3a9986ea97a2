"""The argument parser of all commands, whose errors suggest the option or choice that was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '([^']*)'")


class Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the option or choice that was probably meant, as do those of its subparsers.

    The parsed arguments have the parser of the command that was given as `parser`.
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
        """Suggestions for misspelt options, since argparse may complain of another one, such as one that is missing."""
        known = [option.lstrip("-") for option in self._option_string_actions if option.startswith("--")]
        given = [word.partition("=")[0] for word in self._before_double_dash() if re.match("--?[a-z]", word)]
        # An option with one dash instead of two counts as misspelt too.
        misspelt = {word: word.lstrip("-").lower() for word in given if word not in self._option_string_actions}
        close = {word: difflib.get_close_matches(likely, known, 1) for word, likely in misspelt.items()}
        return [f"for {word}, did you mean --{found[0]}" for word, found in close.items() if found]

    def _before_double_dash(self) -> list[str]:
        """The arguments before `--`, after which nothing is an option."""
        return self._given[: self._given.index("--")] if "--" in self._given else self._given

    def _unknown_choices(self, message: str) -> list[str]:
        """Suggestions for an invalid choice that argparse's message names."""
        given = _CHOICE.search(message)
        if given is None or "maybe you meant" in message:  # newer versions of Python suggest choices themselves
            return []
        known = [str(choice) for action in self._actions for choice in action.choices or ()]
        return [f"did you mean {found}" for found in difflib.get_close_matches(given[1].lower(), known, 1)]


def new_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], *, summary: str, **options: Any
) -> argparse.ArgumentParser:
    """Add a command that `run` carries out; its help keeps the line breaks of `description` and `epilog`.

    Args:
        summary: its line in the help of the parser above.
        **options: as in argparse.ArgumentParser.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    command: argparse.ArgumentParser = commands.add_parser(name, help=summary, formatter_class=formatter, **options)
    command.set_defaults(command=run)
    return command
