"""What the benchmark commands share: options, running, and messages from the first of several processes alone."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from livi.cli.messages import quiet, say
from livi.cli.options import count, names
from livi.cli.parsing import new_command

# Help of options that several benchmarks have.
OUT = "folder of the results (default %(default)s)"
JOBS = "fits to run at the same time, each in a process of its own (default %(default)s)"
LIMIT = "stop after this many minutes; the same command then continues"
QUICK = "a few steps, only to see that everything works; the numbers mean nothing"
THREADS = "CPU threads of each fit (default %(default)s)"
FIRST_SPLIT = "number of the first split (default %(default)s)"


def add_bench(
    benches: Any, name: str, run: Callable[[argparse.Namespace], int], *, summary: str, **options: Any
) -> argparse.ArgumentParser:
    """Add the command `livi bench NAME`, with the options --methods, --out and --jobs."""
    command = new_command(benches, name, run, summary=summary, **options)
    command.add_argument("--methods", type=names, metavar="NAME,...", help="default: all that are installed")
    command.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help=OUT)
    command.add_argument("--jobs", type=count, default=1, help=JOBS)
    return command


def run_bench(chosen: argparse.Namespace, bench: Any, configure: Callable[[Path | None], Any], **running: Any) -> int:
    """Run a benchmark and print its tables.

    Args:
        bench: a module with the functions `bench`, `notes` and `text`.
        configure: makes the configuration, given the folder of UCI sets or None; its ValueError is wrong usage.
        **running: further arguments of `bench.bench`.
    """
    root = os.environ.get("LIVI_DATA_DIR")
    folder = Path(root) / "uci" if root else None
    try:
        config = configure(folder)
    except ValueError as error:
        chosen.parser.error(str(error))
    tell, first = speaker()
    for text in bench.notes(config, folder):
        tell(f"note: {text}")
    document = bench.bench(config, chosen.out, folder, jobs=chosen.jobs, say=tell, **running)
    if first:
        print(bench.text(document))
    return 0


def speaker() -> tuple[Callable[[str], None], bool]:
    """How to say something, and whether this process is the first of a distributed run: only that one speaks."""
    first: bool = importlib.import_module("livi.experiments.spreading").first_rank()
    return (say if first else quiet), first


def given(chosen: argparse.Namespace, *options: str) -> dict[str, Any]:
    """The values of those of these options that were given."""
    values = {name: getattr(chosen, name, None) for name in options}
    return {name: value for name, value in values.items() if value is not None}
