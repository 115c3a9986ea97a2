"""What the benchmark commands share: options, running, and messages from the first of several processes alone."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from livi.cli.extras import load
from livi.cli.messages import quiet, say
from livi.cli.options import count, names, seeds
from livi.cli.parsing import new_command

# Options that several benchmarks have.
SHARED: dict[str, dict[str, Any]] = {
    "methods": {"type": names, "metavar": "NAME,...", "help": "default: all that are installed"},
    "seeds": {"type": seeds, "metavar": "SEED,..."},
    "splits": {"type": int, "help": "splits of each data set (default %(default)s)"},
    "first-split": {"type": int, "help": "number of the first split (default %(default)s)"},
    "max-rows": {"type": int, "help": "most rows to fit to (default %(default)s)"},
    "threads": {"type": int, "default": 1, "help": "CPU threads of each fit (default %(default)s)"},
    "device": {"default": "cpu", "help": "such as cuda (default %(default)s)"},
    "part": {
        "choices": ("validation", "test"),
        "default": "test",
        "help": "what to score; choose settings by validation only (default %(default)s)",
    },
    "samples": {"type": count, "help": "number of networks in a prediction (default: by the problem)"},
    "out": {
        "type": Path,
        "default": Path("results"),
        "metavar": "DIR",
        "help": "folder of the results (default %(default)s)",
    },
    "jobs": {
        "type": count,
        "default": 1,
        "help": "fits to run at the same time, each in a process of its own, with the next GPU (default %(default)s)",
    },
    "limit-minutes": {
        "type": float,
        "metavar": "M",
        "help": "stop after this many minutes; the same command then continues",
    },
    "figure": {"type": Path, "metavar": "FILE", "help": "also draw the fits of the first seed"},
    "quick": {
        "action": "store_true",
        "help": "a few steps, only to see that everything works; the numbers mean nothing",
    },
}


def add_bench(
    benches: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    shared: dict[str, Any],
    *,
    summary: str,
    **options: Any,
) -> argparse.ArgumentParser:
    """Add the command `livi bench NAME`, with --methods, --out and others of the shared options.

    Args:
        shared: names of shared options; each with its help if that is a text, else with its default, None for the usual
            one.
    """
    command = new_command(benches, name, run, summary=summary, **options)
    for option, change in ({"methods": None, "out": None} | shared).items():
        changed = {} if change is None else {"help" if isinstance(change, str) else "default": change}
        command.add_argument(f"--{option}", **(SHARED[option] | changed))
    return command


def configured(chosen: argparse.Namespace, configure: Callable[[], Any]) -> Any:
    """The configuration of a benchmark; its ValueError is wrong usage."""
    try:
        return configure()
    except ValueError as error:
        chosen.parser.error(str(error))


def run_bench(
    chosen: argparse.Namespace, bench: Any, config: Any, *where: Path | None, **running: Any
) -> dict[str, Any] | None:
    """Run a benchmark and print its tables; its results, or None in any but the first of several processes.

    Args:
        bench: a module with the functions `bench`, `notes` and `text`.
        where: the folder with the data, if the notes depend on it.
        running: further arguments of `bench.bench`, beside --jobs and --limit-minutes.
    """
    if getattr(chosen, "figure", None) is not None:
        load("matplotlib", "plots")  # before hours of fits
    tell, first = speaker()
    for note in bench.notes(config, *where):
        tell(f"note: {note}")
    running |= {"jobs": chosen.jobs} if getattr(chosen, "jobs", 1) > 1 else {}
    running |= {"minutes": chosen.limit_minutes} if hasattr(chosen, "limit_minutes") else {}
    document: dict[str, Any] = bench.bench(config, chosen.out, *where, say=tell, **running)
    if not first:
        return None
    print(bench.text(document))
    return document


def draw_figure(chosen: argparse.Namespace, module: str, *results: Path) -> None:
    """Draw --figure from result files, if it is asked for.

    Args:
        module: of `livi.report`; its `draw` returns the paths that it has written.
    """
    if chosen.figure is not None:
        drawn = importlib.import_module(f"livi.report.{module}").draw(results, chosen.figure)
        for line in [f"drawn: {path}" for path in drawn] or ["no figure: no run has anything to draw"]:
            say(line)


def uci_folder() -> Path | None:
    """Where the UCI sets are, if the environment says it."""
    root = os.environ.get("LIVI_DATA_DIR")
    return Path(root) / "uci" if root else None


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def exit_code(document: dict[str, Any]) -> int:
    """1 if a fit has failed."""
    return 1 if any(row["error"] is not None for row in document["rows"]) else 0


def speaker() -> tuple[Callable[[str], None], bool]:
    """How to say something, and whether this process is the first of a distributed run: only that one speaks."""
    first: bool = importlib.import_module("livi.experiments.spreading").first_rank()
    return (say if first else quiet), first


def given(chosen: argparse.Namespace, *options: str) -> dict[str, Any]:
    """The values of those of these options that were given."""
    values = {name: getattr(chosen, name, None) for name in options}
    return {name: value for name, value in values.items() if value is not None}
