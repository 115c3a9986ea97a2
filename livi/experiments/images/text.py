"""Tables of the benchmarks on images as Markdown: means over seeds, and the numbers of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from livi.experiments.columns import ACCURACY, ECE, SECONDS
from livi.experiments.images.scores import (
    ALL_CORRUPTIONS,
    OTHERS,
    comparable,
    shared_sets_note,
    shift_curve,
)
from livi.experiments.rows import Row, Rows, by_method, listed, succeeded
from livi.experiments.scoreboard import Column, Kind, markdown, table

# Tables 1 and 3 and one of the supplement of Uppal et al. (2023). MNIST and CIFAR10: mean confidence and AUROC in per
# cent over the OOD sets FMNIST, KMNIST, EMNIST (its digits), and SVHN, LSUN, CIFAR100. CIFAR100: accuracy in per cent,
# NLL, ECE.
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "mnist": {
        "MAP": (72.1, 96.32),
        "mean field": (69.23, 96.53),
        "last-layer Laplace": (67.4, 96.67),
        "linearised Laplace": (52.63, 97.57),
        "ensemble of 5": (63.14, 97.52),
        "AVB": (70.68, 95.5),
        "MNF": (61.77, 96.37),
        "LIVI (L'')": (55.03, 97.91),
    },
    "cifar10": {
        "MAP": (81.4, 86.73),
        "mean field": (74.71, 87.50),
        "last-layer Laplace": (53.6, 89.03),
        "ensemble of 5": (67.17, 89.61),
        "LIVI (L'')": (43.47, 91.83),
    },
    "cifar100": {
        "MAP": (79.8, 0.875, 0.086),
        "mean field": (77.8, 0.944, 0.097),
        "ensemble of 4": (82.7, 0.666, 0.021),
        "LIVI (L'')": (78.7, 0.774, 0.036),
    },
}
PAPER_COLUMNS = {
    "mnist": ("OOD: confidence, %", "AUROC, %"),
    "cifar10": ("OOD: confidence, %", "AUROC, %"),
    "cifar100": ("accuracy, %", "NLL", "ECE"),
}
_SCORES = (Column("nll", "NLL", "lower", 4), ACCURACY, ECE)
_CONFIDENCE = Column("others_confidence", "OOD: confidence, %", "lower", 1, percent=True)
_AUROC = Column("others_auroc", "AUROC, %", "higher", 2, percent=True)
_FPR95 = Column("others_fpr95", "FPR95, %", "lower", 1, percent=True)
_COLUMNS = (*_SCORES, Column("brier", "Brier", "lower", 4), _CONFIDENCE, _AUROC, _FPR95, SECONDS)
_FURTHER = (Column("start_seconds", "+ start", None, 0), Column("memory", "GB", None, 1))
_SIZES = (Column("latent_dim", "latents", None, 0), Column("bound", "bound, nats", None, 0))
_INCREASE = Column("increase", "NLL, more than as fitted", None, 4)
ABLATIONS = "ablations"  # the second word of an experiment, and an option of the first one's command
_NETWORKS = {
    "mnist": ("MNIST", "LeNet"),
    "fashion-mnist": ("Fashion-MNIST", "LeNet"),
    "cifar10": ("CIFAR-10", "WRN-16-4"),
    "cifar100": ("CIFAR-100", "WRN-28-10"),
}
KINDS = {
    name: Kind(f"{images}, {net}", "problem", "seed", {"": _COLUMNS}, {"": _FURTHER})
    for name, (images, net) in _NETWORKS.items()
} | {
    f"{name} {ABLATIONS}": Kind(
        f"{images}: what correlations and sizes buy",
        "problem",
        "seed",
        {"": (*_SCORES, _AUROC, *_SIZES, SECONDS)},
        {"": (_INCREASE,)},
    )
    for name, (images, _) in _NETWORKS.items()
}
OOD_SETS = "OOD sets one by one: confidence, % / AUROC, % / FPR95, %"
LEGEND = """\
Lower is better for NLL, ECE (15 bins of equal width, every prediction counted), Brier, confidence on
out-of-distribution (OOD) images and FPR95; higher for accuracy and AUROC. AUROC and FPR95: how well confidence tells
OOD from scored images, averaged over the OOD sets. s: seconds of fitting, and those of the networks that the fits
started from. GB: of tensors on the GPU at the most."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: scores, OOD sets one by one, rotation or corruptions, the paper's numbers, and the notes."""
    kind, rows = KINDS[document["experiment"]], comparable(succeeded(document["rows"]))
    shifts = {name for row in rows for name in row["shifts"]}
    parts = ["## Scores", table(rows, kind, kind.shown()), kind.legend(), LEGEND] if rows else []
    if any(row["others"] for row in rows):
        parts += [f"## {OOD_SETS}", ood_table(rows)]
    if shifts:
        parts += [f"## {'Rotation' if shifts == {'rotation'} else 'Corruption'}: NLL / ECE, %", _shifts(rows)]
    if document["experiment"] in PAPER:
        parts += ["## The paper's numbers", paper_table(document["experiment"]), _caution(document["experiment"])]
    notes = [*document["notes"], *shared_sets_note(rows), *kind.messages(document["rows"])]
    return "\n\n".join([*parts, "## Notes", listed(notes)])


def summary(rows: Rows) -> list[Row]:
    """For each method or variant the number of seeds, and mean, sd, min and max over them of every quantity."""
    experiment = rows[0]["problem"]
    return KINDS[f"{experiment} {ABLATIONS}" if "variant" in rows[0] else experiment].summary(comparable(rows))


def ablations_text(document: Mapping[str, Any]) -> str:
    """A table with a line for each variant: scores, and how much higher the NLL is than as fitted, seed by seed."""
    kind, rows = KINDS[document["experiment"]], comparable(document["rows"])
    as_fitted = {row["seed"]: row["nll"] for row in succeeded(rows) if row["variant"] == "as fitted"}
    rows = [row | {"increase": _increase(row, as_fitted.get(row["seed"]))} for row in rows]
    notes = [*document["notes"], *kind.messages(rows)]
    return "\n\n".join([table(rows, kind, kind.shown()), kind.legend(), *([listed(notes)] if notes else [])])


def _increase(row: Mapping[str, Any], as_fitted: float | None) -> float | None:
    known = row["error"] is None and row["variant"] != "as fitted" and as_fitted is not None
    return row["nll"] - as_fitted if known else None


# --- parts ----------------------------------------------------------------------------------------


def ood_table(rows: Rows, titled: Callable[[str], str] = str) -> str:
    """A table with a column for each OOD set and a line for each method; means over seeds.

    Args:
        titled: gives the title of a method.
    """
    names = list(dict.fromkeys(name for row in rows for name in row["others"]))
    lines = []
    for method, group in _methods(rows):
        found = [[row["others"][name] for row in group if name in row["others"]] for name in names]
        lines.append([titled(method), *map(_ood_cell, found)])
    return markdown(["method", *names], lines)


def _ood_cell(found: Rows) -> str:
    return " / ".join(f"{100.0 * mean(row[name] for row in found):.2f}" for name in OTHERS) if found else "–"


def _shifts(rows: Rows) -> str:
    """A table for each rotation or corruption at up to seven levels; with several corruptions first their mean."""
    shifts = list(dict.fromkeys(name for row in rows for name in row["shifts"]))
    return "\n\n".join(_shift(rows, shift) for shift in ([ALL_CORRUPTIONS] if len(shifts) > 1 else []) + shifts)


def _shift(rows: Rows, shift: str) -> str:
    curves = [(row, shift_curve(row, shift, "levels")) for row in rows]
    some = [row for row, levels in curves if levels is not None]
    levels = next(levels for _, levels in curves if levels is not None)
    indices = range(0, len(levels), math.ceil(len(levels) / 7))
    lines = []
    for method, group in _methods(some):
        nll, ece = ([mean(values) for values in zip(*found, strict=True)] for found in _curves(group, shift))
        lines.append([method, *(f"{nll[index]:.3f} / {100 * ece[index]:.1f}" for index in indices)])
    return markdown([shift, *(f"{levels[index]:g}" for index in indices)], lines)


def _curves(group: Rows, shift: str) -> list[list[list[float]]]:
    """NLL and ECE of each row as functions of the level of a rotation or corruption."""
    return [[shift_curve(row, shift, name) or [] for row in group] for name in ("nll", "ece")]


def paper_table(problem: str) -> str:
    lines = [[name, *map(str, values)] for name, values in PAPER[problem].items()]
    return markdown(["Uppal et al. (2023)", *PAPER_COLUMNS[problem]], lines)


def _caution(problem: str) -> str:
    other = {
        "mnist": "its EMNIST is the digits split, ours the letters; ",
        "cifar10": "its OOD sets are SVHN, LSUN and CIFAR100, ours SVHN, CIFAR100 and Tiny ImageNet; ",
        "cifar100": "MAP, mean field and ensemble there are those of Nado et al. (2021); ",
    }[problem]
    return f"Not quite comparable: {other}its ECE leaves out predictions of a confidence of 0.99 or more."


def _methods(rows: Rows) -> list[tuple[str, list[Mapping[str, Any]]]]:
    return [each for methods in by_method(rows, "problem").values() for each in methods.items()]
