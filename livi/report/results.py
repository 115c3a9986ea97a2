"""Result folders of any benchmark, read and joined: which runs there are, and the commands that repeat them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livi.experiments.images.runtime_text import COLUMNS as RUNTIME
from livi.experiments.images.scores import comparable, shared_sets_note
from livi.experiments.scoreboard import Column
from livi.experiments.uci.methods import METHODS as UCI_METHODS

Row = Mapping[str, Any]

# Settings that select runs but do not change them: files that differ in these alone become one table.
WANTED = ("data", "sets", "targets", "problems", "problem", "methods", "seeds", "splits", "first_seed", "first_split")
ABLATIONS = "ablations"  # the second word of an experiment, and an option of the first one's command
USUAL = {"part": "test", "norm": "batch", "threads": 1}  # defaults, which are left out of commands


@dataclass(frozen=True)
class Kind:
    """How the rows of an experiment are read.

    Args:
        place: the field that names a data set, target or problem.
        repeat: the field that numbers its repeats.
        columns: what is shown, by task where there are several, the first one as a figure too.
        listed: the option of the command that lists the places.
    """

    title: str
    place: str
    repeat: str
    columns: Mapping[str, tuple[Column, ...]]
    listed: str | None = None

    def of_task(self, row: Row) -> str:
        return str(row.get("task", "")) if "" not in self.columns else ""


_SECONDS = Column("seconds", "s", None, 1)
_COVERAGE = Column("coverage", "in 90 %, %", None, 1, percent=True)
_LOG_SCORE, _RMSE = Column("log_score", "log score", "higher", 3), Column("rmse", "RMSE", "lower")
_NLL, _ECE = Column("nll", "NLL", "lower", 3), Column("ece", "ECE, %", "lower", 2, percent=True)
_ACCURACY = Column("accuracy", "accuracy, %", "higher", 2, percent=True)
_TABLES = {
    "regression": (_LOG_SCORE, _RMSE, Column("crps", "CRPS", "lower"), _COVERAGE, _SECONDS),
    "classification": (_LOG_SCORE, _ACCURACY, _ECE, _COVERAGE, _SECONDS),
}
_IMAGE_SCORES = (Column("nll", "NLL", "lower", 4), _ACCURACY, _ECE)
_BRIER = Column("brier", "Brier", "lower", 4)
_CONFIDENCE = Column("ood_confidence", "OOD: confidence, %", "lower", 1, percent=True)
_AUROC = Column("ood_auroc", "AUROC, %", "higher", 2, percent=True)
_FPR95 = Column("ood_fpr95", "FPR95, %", "lower", 1, percent=True)
_IMAGES = {"": (*_IMAGE_SCORES, _BRIER, _CONFIDENCE, _AUROC, _FPR95, _SECONDS)}
_SIZES = (Column("latent_dim", "latents", None, 0), Column("bound", "bound, nats", None, 0))
_ABLATIONS = {"": (*_IMAGE_SCORES, _AUROC, *_SIZES, _SECONDS)}

KINDS: dict[str, Kind] = {
    "uci": Kind("UCI regression sets", "data", "split", {"": (Column("log_score", "log likelihood", "higher", 2),)}),
    "toy": Kind(
        "Toy regression (Figure 1), against NUTS",
        "data",
        "seed",
        {
            "": (
                Column("w2_to_nuts", "W2 to NUTS", "lower", 3),
                Column("elbo", "ELBO, nats", "higher", 1),
                Column("gap_std", "std in the gap", None, 2),
                _SECONDS,
            )
        },
        "data",
    ),
    "densities": Kind(
        "Densities with known answers",
        "target",
        "seed",
        {
            "": (
                Column("kl", "KL(q to p), nats", "lower", 3),
                Column("w2", "sliced W2", "lower", 3),
                Column("w2_floor", "W2 of p to itself", None, 3),
                _SECONDS,
            )
        },
        "targets",
    ),
    "entropy": Kind(
        "The entropy of a VAE's decoder along its training, against importance sampling",
        "data",
        "seed",
        {
            "": (
                Column("last", "error at the end, nats", "lower", 3),
                Column("largest", "largest error, nats", "lower", 3),
                Column("milliseconds", "ms a look", None, 1),
            )
        },
        "data",
    ),
    "tables": Kind("Tables, beside other methods", "data", "split", _TABLES, "data"),
    "public": Kind("Public tables, beside boosting", "data", "split", _TABLES, "data"),
    "plain": Kind(
        "livi beside the plain network that it starts from",
        "problem",
        "seed",
        {"regression": (_NLL, _RMSE, _COVERAGE, _SECONDS), "classification": (_NLL, _ACCURACY, _ECE, _SECONDS)},
        "problems",
    ),
    "mnist": Kind("MNIST, LeNet", "problem", "seed", _IMAGES),
    "fashion-mnist": Kind("Fashion-MNIST, LeNet", "problem", "seed", _IMAGES),
    "cifar10": Kind("CIFAR-10, WRN-16-4", "problem", "seed", _IMAGES),
    "cifar100": Kind("CIFAR-100, WRN-28-10", "problem", "seed", _IMAGES),
    **{
        f"{name} {ABLATIONS}": Kind(f"{title}: what correlations and sizes buy", "problem", "seed", _ABLATIONS)
        for name, title in {
            "mnist": "MNIST",
            "fashion-mnist": "Fashion-MNIST",
            "cifar10": "CIFAR-10",
            "cifar100": "CIFAR-100",
        }.items()
    },
    "runtime": Kind("Run time and memory until validation NLL stops falling", "problem", "seed", {"": RUNTIME}),
    "compare": Kind(
        "Methods compared on one table",
        "data",
        "seed",
        {"": (_NLL, _RMSE, _ACCURACY, Column("crps", "CRPS", "lower"), _COVERAGE, _SECONDS)},
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
        """Runs that did not fail, with means over OOD sets as further numbers, which have columns of their own."""
        return [
            row | {f"ood_{name}": value for name, value in (row.get("others_mean") or {}).items()}
            for row in comparable([row for row in self.rows if row.get("error") is None])
        ]

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
        return row[self.kind.place], row["method"], row[self.kind.repeat]


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
        given |= {"methods": list(dict.fromkeys(map(_method, rows)))}
        given |= {"seeds": list(dict.fromkeys(row["seed"] for row in rows))}
        given["device"] = "cuda" if document.get("machine", {}).get("gpu") else None
    first, *second = experiment.split()
    words = ["livi", "bench", first, *(f"--{word}" for word in second)]
    for name, value in given.items():
        words += [] if USUAL.get(name) == value else _option(name, value)
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


_OPTIONS = {"targets": "only", "problems": "only"}  # settings whose options have other names


def _option(name: str, value: Any) -> list[str]:
    if value is None or value is False or value == []:
        return []
    option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
    if value is True:
        return [option]
    return [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def _method(row: Row) -> str:
    """The method of a row, or its variant."""
    return str(row.get("variant", row.get("method")))


def _flat(row: Row) -> list[dict[str, Any]]:
    """A row for each method; for curves of entropies, with the sizes of their errors."""
    curve = row.get("curve")
    if not isinstance(curve, list):  # the toy experiment's curve is a function to be drawn
        return [dict(row) | {"method": _method(row)}]
    methods = [name for name, found in curve[-1].items() if isinstance(found, dict) and "error_nats" in found]
    errors = {method: [abs(point[method]["error_nats"]) for point in curve] for method in methods}
    return [
        {"data": row["data"], "method": method, "seed": row["seed"], "error": row["error"]}
        | {"last": errors[method][-1], "largest": max(errors[method])}
        | {"milliseconds": 1000.0 * sum(point[method]["seconds"] for point in curve) / len(curve)}
        for method in methods
    ]


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("experiment") not in KINDS:
        return None
    kinds = {"config": dict, "rows": list}
    return document if all(isinstance(document.get(name), kind) for name, kind in kinds.items()) else None
