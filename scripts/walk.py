"""Count the files and rooms of livi whose functions run in plan, fit, predict, save and load, and lines per room.

    python scripts/walk.py

A room is a folder or file directly in the package. Code that only runs at import does not count.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import livi

PACKAGE = Path(livi.__file__).parent


def files_run(action: Callable[[], Any]) -> tuple[Any, set[Path]]:
    """The result of the action, and the files of the package in which a function ran."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        result = action()
    finally:
        sys.setprofile(None)
    return result, {Path(name) for name in seen if Path(name).is_relative_to(PACKAGE)}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def walk() -> dict[str, set[Path]]:
    """The files of each step, for a classifier with BatchNorm and a regression with an exact last layer together."""
    torch.manual_seed(0)
    x = torch.randn(60, 2)
    classes, numbers = (x[:, 0] > 0).long(), x[:, :1] - x[:, 1:]
    kinds = [
        (
            lambda: nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
            livi.Categorical(),
            classes,
        ),
        (lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), livi.Gaussian(), numbers),
    ]
    found: dict[str, set[Path]] = {name: set() for name in ("plan", "fit", "predict", "save", "load")}
    for make, likelihood, y in kinds:
        for name, files in walk_of(make, (x, y), likelihood).items():
            found[name] |= files
    return found


def walk_of(make: Callable[[], nn.Module], data: Any, likelihood: Any) -> dict[str, set[Path]]:
    """The files that run in each step, for one network."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "walk.livi"
        _, found["plan"] = files_run(lambda: livi.plan(make(), data, likelihood, steps=20))
        fitted, found["fit"] = files_run(lambda: livi.fit(make(), data, likelihood, steps=20, progress=False))
        _, found["predict"] = files_run(lambda: fitted.predict(data[0]))
        _, found["save"] = files_run(lambda: fitted.save(file))
        _, found["load"] = files_run(lambda: livi.load(file, make()))
    return found


def main() -> None:
    print("| step | files | rooms |\n|---|---|---|")
    for name, files in walk().items():
        rooms = sorted({room(path) for path in files})
        print(f"| {name} | {len(files)} | {len(rooms)}: {', '.join(rooms)} |")
    lines = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        lines[room(path)] += len(path.read_text(encoding="utf-8").splitlines())
    print(f"\n{len(lines)} rooms, {sum(lines.values()):,} lines\n\n| room | lines |\n|---|---|")
    for name, count in lines.most_common():
        print(f"| {name} | {count:,} |")


if __name__ == "__main__":
    main()
