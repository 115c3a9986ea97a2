"""What the benchmarks on problems and tables share: options, notes and progress on stderr, tables on stdout."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from livi.cli.options import count, names


def add_bench(
    benches: argparse._SubParsersAction[Any],
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """The command `livi bench name`, with the options --methods, --out and --jobs."""
    command: argparse.ArgumentParser = benches.add_parser(
        name,
        help=summary,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=run, usage_error=command.error)
    command.add_argument("--methods", type=names, metavar="NAME,...", help="default: all that are installed")
    command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default %(default)s")
    command.add_argument("--jobs", type=count, default=1, help="fits at a time, a process each (default %(default)s)")
    return command


def run_bench(chosen: argparse.Namespace, bench: Any, configure: Callable[[Path | None], Any], **running: Any) -> int:
    """Run a module with `bench`, `notes` and `text`, as configured given the folder of UCI sets, or None.

    A ValueError of the configuration is wrong usage.

    Args:
        **running: further arguments of `bench.bench`.
    """
    root = os.environ.get("LIVI_DATA_DIR")
    folder = Path(root) / "uci" if root else None
    try:
        config = configure(folder)
    except ValueError as error:
        chosen.usage_error(str(error))
    say, first = speaker()
    for note in bench.notes(config, folder):
        say(f"note: {note}")
    document = bench.bench(config, chosen.out, folder, jobs=chosen.jobs, say=say, **running)
    if first:
        print(bench.text(document))
    return 0


def speaker() -> tuple[Callable[[str], None], bool]:
    """How to say something on stderr, and whether to show the results: of several ranks the first one does."""
    first: bool = importlib.import_module("livi.experiments.spreading").first_rank()
    return (_say if first else _keep_quiet), first


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _keep_quiet(text: str) -> None:
    pass
