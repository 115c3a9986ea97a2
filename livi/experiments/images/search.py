"""The settings of every method, chosen on validation images: the best of equally many candidates is then tested.

A search is a run of the benchmark on validation images with the candidates as methods. So it can be stopped, continued
and spread over processes like any other, and its file has all that was tried. It reads neither test images nor the OOD
sets that are reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from livi.experiments.columns import SECONDS
from livi.experiments.images.bench import Config, bench, notes, result_path
from livi.experiments.images.methods import default_methods
from livi.experiments.images.problems import PROBLEMS, ImageProblem
from livi.experiments.images.scores import comparable
from livi.experiments.images.settings import split_name
from livi.experiments.images.text import KINDS
from livi.experiments.rows import Rows, listed
from livi.experiments.scoreboard import Column, Kind, table

__all__ = [
    "bench",
    "best_candidates",
    "candidates",
    "chosen_methods",
    "methods_to_search",
    "model_of",
    "notes",
    "result_path",
    "searched",
    "text",
]

SEED = 0  # default of a search: not one of the seeds that are reported
PRIORS, PRIORS_OF_TRAINED = (1.0, 0.5, 0.2), (0.1, 0.4, 1.0)  # for fits from scratch, and from networks of SGD
DECAYS = (2e-4, 1e-3, 2e-3)
COLUMNS = (  # none in bold, since only NLL decides, and only among candidates with most seeds
    Column("nll", "NLL", None, 4),
    Column("accuracy", "accuracy, %", None, 2, percent=True),
    Column("ece", "ECE, %", None, 2, percent=True),
    Column("others_confidence", "confidence on synthetic OOD images, %", None, 1, percent=True),
    Column("others_auroc", "AUROC, %", None, 2, percent=True),
    SECONDS,
)
KIND = Kind("Candidates", "model", "seed", {"": COLUMNS})
LEGEND = """\
Mean ± standard error over seeds. The candidate with the lowest mean NLL of validation images is chosen, marked *; of
those with most seeds, where some have fewer. Synthetic OOD images are validation images altered in six ways."""


def candidates(method: str, problem: ImageProblem) -> tuple[str, ...]:
    """The method by itself and with three priors, or with three weight decays if it is a network trained by SGD.

    A name with settings is a candidate of its own.

    >>> from livi.experiments.images.problems import PROBLEMS
    >>> candidates("mean_field", PROBLEMS["mnist"])
    ('mean_field', 'mean_field@prior=1', 'mean_field@prior=0.5', 'mean_field@prior=0.2')
    """
    if "@" in method:
        return (method,)
    trained = problem.epochs is not None
    plain = trained and method.startswith(("map", "ensemble"))
    name, values = ("decay", DECAYS) if plain else ("prior", PRIORS_OF_TRAINED if trained else PRIORS)
    return (method, *(f"{method}@{name}={value:g}" for value in values))


def model_of(method: str) -> str:
    """The method whose settings are used for a method that was not searched, such as map for ensembles.

    >>> model_of("ensemble-5"), model_of("livi-mixture-5"), model_of("swag")
    ('map', 'livi', 'swag')
    """
    kinds = {"ensemble": "map", "livi": "livi"}
    return kinds.get(method.split("-")[0], method)


def methods_to_search(problem: ImageProblem, quick: bool = False) -> tuple[str, ...]:
    """The default methods, without those that take the settings of another one."""
    return tuple(name for name in default_methods(problem, quick) if model_of(name) == name)


def searched(config: Config) -> Config:
    """The configuration of a search: candidates in place of methods, on validation images."""
    every = [name for method in config.methods for name in candidates(method, config.setting)]
    return replace(config, methods=tuple(dict.fromkeys(every)), part="validation")


def best_candidates(rows: Rows) -> dict[str, str]:
    """For each method, the candidate with the lowest mean NLL among those fitted under most seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["error"] is None:
            found.setdefault(split_name(row["method"])[0], {}).setdefault(row["method"], []).append(row["nll"])
    best = {}
    for method, tried in found.items():
        most = max(map(len, tried.values()))
        best[method] = min((name for name in tried if len(tried[name]) == most), key=lambda name: mean(tried[name]))
    return best


def chosen_methods(path: Path, problem: str, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The methods with the settings that a search has chosen; by default all methods that are in its file.

    Ensembles that were not searched take the settings of map, and other forms of livi those of livi. A name with
    settings is kept as it is.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not of a search on this problem, or lacks a method.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: expected the file of `livi bench {problem} --search`, got none; run it first."
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        sound = document["experiment"] == problem and document["config"]["part"] == "validation"
        best = best_candidates(document["rows"])
    except (ValueError, KeyError, TypeError):
        sound, best = False, {}
    if not sound or not best:
        raise ValueError(f"{path}: expected results of `livi bench {problem} --search`, got something else.")
    wanted = wanted or [name for name in default_methods(PROBLEMS[problem]) if {name, model_of(name)} & best.keys()]
    return tuple(_chosen(path, name, best) for name in wanted)


def _chosen(path: Path, name: str, best: Mapping[str, str]) -> str:
    if "@" in name or name in best:
        return best.get(name, name)
    model = model_of(name)
    if model not in best:
        raise ValueError(f"{path}: expected a search for {model}, got none; run it: --search --methods {model}.")
    return best[model].replace(model, name, 1)


def text(document: Mapping[str, Any]) -> str:
    """A table with a line for each candidate; the chosen one of each method is marked."""
    best = best_candidates(document["rows"])
    rows = [row | {"model": split_name(row["method"])[0]} for row in comparable(document["rows"])]

    def named(group: Rows) -> tuple[str, str]:
        model, method = group[0]["model"], group[0]["method"]
        return model, f"{method} *" if method == best.get(model) else method

    notes = listed([*document["notes"], *KINDS[document["experiment"]].messages(rows)])
    return "\n\n".join([table(rows, KIND, COLUMNS, named), LEGEND, notes])
