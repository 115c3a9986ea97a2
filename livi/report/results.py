"""Result folders of any benchmark, read and joined: which runs there are, and the commands that repeat them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livi.experiments.columns import ACCURACY, COVERAGE, CRPS, NLL, RMSE, SECONDS
from livi.experiments.density_bench import KIND as DENSITIES
from livi.experiments.entropy_bench import KIND as ENTROPY
from livi.experiments.entropy_bench import by_estimator
from livi.experiments.images.runtime_text import KIND as RUNTIME
from livi.experiments.images.scores import comparable, shared_sets_note
from livi.experiments.images.text import KINDS as IMAGES
from livi.experiments.plain_text import KIND as PLAIN
from livi.experiments.public_text import KIND as PUBLIC
from livi.experiments.rows import method_of, succeeded
from livi.experiments.scoreboard import Kind
from livi.experiments.table_text import KIND as TABLES
from livi.experiments.toy_bench import KIND as TOY
from livi.experiments.uci.methods import METHODS as UCI_METHODS
from livi.experiments.uci.text import KIND as UCI

Row = Mapping[str, Any]

# Settings that select runs but do not change them: files that differ in these alone become one table.
WANTED = ("data", "sets", "targets", "problems", "problem", "methods", "seeds", "splits", "first_seed", "first_split")
PLACES = ("data", "sets", "targets", "problems")  # settings for which each command has an option of its own name
# Defaults, which are left out of commands. Those of the second line are no options of any.
USUAL = {"part": "test", "norm": "batch", "threads": 1}
USUAL |= {"latent_dim": 10, "hidden": 128, "noise": 0.05, "importance": 256}


KINDS: dict[str, Kind] = {
    "uci": UCI,
    "toy": TOY,
    "densities": DENSITIES,
    "entropy": ENTROPY,
    "tables": TABLES,
    "public": PUBLIC,
    "plain": PLAIN,
    **IMAGES,
    "runtime": RUNTIME,
    "compare": Kind(
        "Methods compared on one table", "data", "seed", {"": (NLL, RMSE, ACCURACY, CRPS, COVERAGE, SECONDS)}
    ),
}


@dataclass
class Result:
    """Runs of one experiment under one configuration, from any number of files."""

    experiment: str
    config: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        return KINDS[self.experiment]

    @property
    def sound(self) -> list[dict[str, Any]]:
        """Runs that did not fail."""
        return comparable(succeeded(self.rows))

    @property
    def remarks(self) -> list[str]:
        """Notes of the files, and which OOD sets the means are of."""
        return [*self.notes, *shared_sets_note(self.sound)]

    def add(self, document: Mapping[str, Any]) -> None:
        """Add another file's runs, which replace equal ones."""
        fresh = [one for row in document["rows"] for one in _flat(row)]
        keys = {self._key(row) for row in fresh}
        self.rows = [row for row in self.rows if self._key(row) not in keys] + fresh
        for known, new in (
            (self.notes, document.get("notes", [])),
            (self.machines, [machine_of(document)]),
            (self.commands, [command_of(document)]),
        ):
            known += [one for one in new if one not in known]

    def _key(self, row: Row) -> tuple[Any, ...]:
        return self.kind.key(row)


def result_files(folders: Iterable[str | Path]) -> list[Path]:
    """Every JSON file in these folders and those below, or the files given, in order.

    Raises:
        FileNotFoundError: one is not there.
    """
    paths: list[Path] = []
    for folder in map(Path, folders):
        if not folder.exists():
            raise FileNotFoundError(f"{folder}: expected a folder with results, got none; see `livi bench --help`.")
        paths += sorted(folder.rglob("*.json")) if folder.is_dir() else [folder]
    return list(dict.fromkeys(paths))


def joined(folders: Sequence[str | Path]) -> list[Result]:
    """All results in these folders, in the order of KINDS; other JSON files are ignored.

    Raises:
        FileNotFoundError: a folder is not there.
        ValueError: there is no result in any.
    """
    results: dict[str, Result] = {}
    for path in result_files(folders):
        document = _document(path)
        if document is None:
            continue
        config = {name: value for name, value in document["config"].items() if name not in WANTED}
        key = json.dumps([document["experiment"], config], sort_keys=True)
        results.setdefault(key, Result(document["experiment"], config)).add(document)
    if not results:
        raise ValueError(
            f"{', '.join(map(str, folders))}: expected results of livi bench or livi compare, got none of them."
        )
    order = list(KINDS)
    return sorted(results.values(), key=lambda result: order.index(result.experiment))


def command_of(document: Mapping[str, Any]) -> str:
    """The command that repeats these runs, from the configuration, completed from the rows."""
    experiment, rows = document["experiment"], document["rows"]
    if experiment == "compare":
        return _comparing(document)
    kind = KINDS[experiment]
    given = dict(document["config"])
    given.pop("problem", None)
    if experiment in ("uci", "tables"):
        splits, methods = sorted({row["split"] for row in rows}), list(dict.fromkeys(row["method"] for row in rows))
        given = {
            "sets" if experiment == "uci" else "data": list(dict.fromkeys(row["data"] for row in rows)),
            "methods": [name for name in UCI_METHODS if name in methods] if experiment == "uci" else methods,
            "first_split": splits[0] if splits else 0,
            "splits": len(splits),
        } | given
    elif kind.listed is None:
        given |= {"methods": list(dict.fromkeys(map(method_of, rows)))}
        given |= {"seeds": list(dict.fromkeys(row["seed"] for row in rows))}
        given["device"] = "cuda" if document.get("machine", {}).get("gpu") else None
    first, *second = experiment.split()
    words = ["livi", "bench", first, *(f"--{word}" for word in second)]
    for name, value in given.items():
        option = kind.listed if name in PLACES and kind.listed is not None else name
        words += [] if USUAL.get(name) == value else _option(option, value)
    return shlex.join([*words, "--jobs", str(document["jobs"])] if document.get("jobs", 1) > 1 else words)


def _comparing(document: Mapping[str, Any]) -> str:
    methods = ",".join(row["method"] for row in document["rows"])
    if document.get("source") is None:
        return f"livi.compare(net, data, methods={methods.split(',')})"
    file, target = document["source"]
    gradients, seed = document["config"]["gradients"], document["rows"][0]["seed"]
    options = {"target": target, "methods": methods, "gradients": gradients, "seed": seed}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return shlex.join(["livi", "compare", str(file), *words])


def machine_of(document: Mapping[str, Any]) -> str:
    """Processor, GPU and versions of a run in one line."""
    machine, versions = document.get("machine", {}), document.get("versions", {})
    parts = [f"{machine.get('cpu', 'unknown processor')}, {machine.get('cores', '?')} cores"]
    parts += [str(machine["gpu"])] if machine.get("gpu") else []
    parts += [f"{name} {versions[name]}" for name in ("livi", "torch") if name in versions]
    return ", ".join(parts)


def _option(name: str, value: Any) -> list[str]:
    if value is None or value is False or value == []:
        return []
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def _flat(row: Row) -> list[dict[str, Any]]:
    """The row with its method or variant; a row for each method where it has the curves of all."""
    # The toy experiment's curve is a function to be drawn.
    return by_estimator(row) if isinstance(row.get("curve"), list) else [dict(row) | {"method": method_of(row)}]


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("experiment") not in KINDS:
        return None
    kinds = {"config": dict, "rows": list}
    return document if all(isinstance(document.get(name), kind) for name, kind in kinds.items()) else None
