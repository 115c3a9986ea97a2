"""Fuzz test of loading: damage model and posterior files at random, and read them.

    python scripts/damaged_files.py

All kinds of files are damaged: posteriors (implicit, with an exact last layer, with BatchNorm, frozen), a checkpoint,
estimators and models of tables. Two thirds of the changes are to the JSON in a file, one third to its tensors: shapes,
dtypes, NaN, names. The digest is made valid again, so that the checks of the content are tested. A damaged file must
raise a `StorageError`, or load and predict. Any other error is a failure, and is printed with the number of the try,
which makes it reproducible. The address space is limited, so that too large an allocation fails as well.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import livi
from livi.posterior.storage import StorageError, read, read_checkpoint
from livi.tables import Table, TableError
from livi.tables.estimators import load as load_estimator
from livi.tables.fitting import fit_table
from livi.tables.model import load_model
from livi.tables.options import FitOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.crafted_files import mutated, write_text

ROOM = 2**30  # bytes of address space on top of those used when the files are ready
CLEAR = (StorageError, TableError, livi.FitError)  # predictions may also raise a ValueError with "expected" and "got"


class Subject(NamedTuple):
    """An undamaged file, and a function that reads and uses it."""

    name: str
    path: Path
    use: Callable[[Path], object]


def subjects(folder: Path) -> list[Subject]:
    """Write a small file of every kind."""
    rng = torch.Generator().manual_seed(0)
    x, y = 100.0 * torch.randn(40, 3, generator=rng), 5000.0 + 900.0 * torch.randn(40, generator=rng)
    recipe = livi.Recipe(steps=10, map_steps=10, num_samples=4)
    options: dict[str, Any] = {"recipe": recipe, "progress": False}
    found = []

    def keep(name: str, make: Callable[[], nn.Module], likelihood: Any, targets: Tensor, **more: Any) -> None:
        posterior = livi.fit(make(), (x, targets), likelihood, **options | more)
        posterior.save(folder / f"{name}.livi")
        found.append(Subject(name, folder / f"{name}.livi", lambda path: livi.load(path, make()).predict(x)))

    keep("exact", _plain, livi.Gaussian(), y)
    keep("sampled", _plain, livi.StudentT(), y, last_layer="sampled")
    keep("normalised", _normalised, livi.Categorical(), torch.arange(40) % 3)
    keep("mixture", _plain, livi.Gaussian(), y, last_layer="sampled", components=2)
    livi.load(folder / "exact.livi", _plain()).save(folder / "frozen.livi", draws=8)
    found.append(Subject("frozen", folder / "frozen.livi", lambda path: livi.load(path, _plain()).predict(x)))
    livi.fit(_plain(), (x, y), livi.Gaussian(), checkpoint=folder / "run.livi", **options)
    found.append(Subject("checkpoint", folder / "run.livi", read_checkpoint))
    model = livi.LIVIRegressor(hidden=(4,), steps=10, random_state=0).fit(x.numpy(), y.numpy())
    model.save(folder / "estimator.livi")
    found.append(
        Subject("estimator", folder / "estimator.livi", lambda path: load_estimator(path).predict(x[:5].numpy()))
    )
    return found + [_table_model(folder, target) for target in ("price", "dear")]


def _plain() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def _normalised() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def _table_model(folder: Path, target: str) -> Subject:
    random_numbers = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"area": random_numbers.normal(100, 20, 60), "town": random_numbers.choice(["Bath", "Ely"], 60)}
    )
    price = 1000 * frame["area"] + random_numbers.normal(0, 3000, 60)
    frame[target] = price if target == "price" else np.where(price > price.median(), "yes", "no")
    path = folder / f"{target}.livi"
    fit_table(Table.from_frame(frame, "houses"), target, FitOptions(steps=10, hidden=(4,))).save(path)
    new = Table.from_frame(frame.drop(columns=target).head(5))
    return Subject(f"table of {target}", path, lambda path: load_model(path).predict(new, say=lambda _: None))


def damage(tensors: dict[str, Tensor], meta: Any, rng: random.Random) -> tuple[dict[str, Tensor], str]:
    """The tensors and JSON of a file, with a few random changes."""
    if rng.random() < 2 / 3 or not tensors:
        return tensors, json.dumps(mutated(meta, rng))
    changed = dict(tensors)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(changed))
        changed |= _spoiled(name, changed.pop(name), rng)
    return changed, json.dumps(meta)


def _spoiled(name: str, tensor: Tensor, rng: random.Random) -> dict[str, Tensor]:
    """What replaces a tensor: a changed one, one with another name, or nothing."""
    ways: list[Callable[[], dict[str, Tensor]]] = [
        dict,
        lambda: {name + "x": tensor},
        lambda: {name: tensor.reshape(-1)},
        lambda: {name: tensor[None]},
        lambda: {name: torch.cat([tensor.reshape(-1)] * 3)},
        lambda: {name: tensor.reshape(-1)[:0]},
        lambda: {name: tensor.to(torch.float16)},
        lambda: {name: tensor.to(torch.int64)},
        lambda: {name: tensor.to(torch.bool)},
        lambda: {name: torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else -tensor},
        lambda: {name: (tensor.double() * 1e300).to(tensor.dtype)},
        lambda: {name: tensor.to(torch.complex64)},
    ]
    return rng.choice(ways)()


class Report(NamedTuple):
    """How often each outcome occurred, the failures, and the largest memory in MB."""

    outcomes: Counter[str]
    failures: list[str]
    megabytes: int


def run(tries: int, seed: int, folder: Path) -> Report:
    """Damage and read this many files, all kinds in turn."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = subjects(folder)
        for kind in kinds:
            kind.use(kind.path)
        _limit_memory()
        outcomes: Counter[str] = Counter()
        failures: list[str] = []
        contents = {kind.name: read(kind.path) for kind in kinds}
        for number in range(tries):
            kind, rng = kinds[number % len(kinds)], random.Random(f"{seed}/{number}")
            tensors, text = damage(*contents[kind.name], rng)
            write_text(folder / "damaged.livi", tensors, text)
            outcome = _outcome(kind, folder / "damaged.livi")
            outcomes[outcome.partition(":")[0]] += 1
            if outcome.startswith("FAILED"):
                failures.append(f"try {number}, {kind.name}: {outcome}")
    return Report(outcomes, failures, _peak_megabytes())


def _outcome(kind: Subject, path: Path) -> str:
    try:
        kind.use(path)
    except CLEAR as error:
        words = str(error)
        clear = words and not any(text in words for text in ("can't allocate", "bad_alloc"))
        return "refused" if clear else f"FAILED: {words[:200]}"
    except ValueError as error:  # from a prediction
        if "expected" in str(error) and "got" in str(error):
            return "loaded, and predictions refused"
        return f"FAILED: {_last(error)}"
    except Exception as error:
        return f"FAILED: {_last(error)}"
    return "loaded, and predicted"


def _last(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:160]} ({Path(frame.filename).name}:{frame.lineno})"


def _limit_memory() -> None:
    taken = _status("VmSize") * 1024
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _peak_megabytes() -> int:
    """The peak memory of this process; getrusage may give that of the process which started it."""
    return _status("VmHWM") // 1024


def _status(name: str) -> int:
    """An entry of /proc/self/status, in kB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(options.tries, options.seed, Path(folder))
    for failure in report.failures[:40]:
        print(failure)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in report.outcomes.most_common())
    print(f"{options.tries:,} files: {counts}; {report.megabytes:,} MB at most")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
