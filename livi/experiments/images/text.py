"""Tables of the benchmarks on images as Markdown: means over seeds, and the numbers of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from livi.experiments.images.scores import (
    ALL_CORRUPTIONS,
    OTHERS,
    QUANTITIES,
    comparable,
    shared_sets_note,
    shift_curve,
)
from livi.experiments.rows import Row, Rows, first_line, spread, succeeded
from livi.experiments.scoreboard import mean_and_error

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
OOD_SETS = "OOD sets one by one: confidence, % / AUROC, % / FPR95, %"
LEGEND = """\
Mean ± standard error over seeds. Lower is better for NLL, ECE (15 bins of equal width, every prediction counted),
Brier, confidence on out-of-distribution (OOD) images and FPR95; higher for accuracy and AUROC. AUROC and FPR95: how
well confidence tells OOD from scored images, averaged over the OOD sets. s: seconds of fitting, and those of the
networks that the fits started from. GB: of tensors on the GPU at the most. –: no result."""


def text(document: Mapping[str, Any]) -> str:
    """The whole report: scores, OOD sets one by one, rotation or corruptions, the paper's numbers, and the notes."""
    rows: Rows = comparable(succeeded(document["rows"]))
    shifts = {name for row in rows for name in row["shifts"]}
    parts = ["## Scores", _table(rows), LEGEND] if rows else []
    if any(row["others"] for row in rows):
        parts += [f"## {OOD_SETS}", ood_table(rows)]
    if shifts:
        parts += [f"## {'Rotation' if shifts == {'rotation'} else 'Corruption'}: NLL / ECE, %", _shifts(rows)]
    if document["experiment"] in PAPER:
        parts += ["## The paper's numbers", paper_table(document["experiment"]), _caution(document["experiment"])]
    notes = [*document["notes"], *shared_sets_note(rows), *_messages(document["rows"])]
    return "\n\n".join([*parts, "## Notes", "\n".join(f"- {sentence}" for sentence in notes)])


def summary(rows: Rows) -> list[Row]:
    """For each method the number of seeds, and mean, sd, min and max over them of every quantity."""
    return [
        {"method": method, "seeds": len(succeeded(group))}
        | {name: spread(_values(group, name)) for name in (*QUANTITIES, "seconds")}
        | {f"others_{name}": spread(_values(group, "others_mean", name)) for name in OTHERS}
        for method, group in _grouped(comparable(rows)).items()
    ]


def line(row: Mapping[str, Any]) -> str:
    """One line about a row, for the progress of a run."""
    start = f"{row['problem']} {row['method']} seed {row['seed']}: "
    if row["error"] is not None:
        return f"{start}failed: {first_line(row['error'])}"
    words = [f"accuracy {row['accuracy']:.2%}", f"NLL {row['nll']:.4f}", f"ECE {row['ece']:.2%}"]
    if row["others_mean"] is not None:
        words.append(f"OOD confidence {row['others_mean']['confidence']:.1%}, AUROC {row['others_mean']['auroc']:.2%}")
    return start + ", ".join([*words, f"{row['seconds']:.1f} s"])


def ablations_text(document: Mapping[str, Any]) -> str:
    """A table with a line for each variant: scores, and how much higher the NLL is than as fitted, seed by seed."""
    rows = succeeded(document["rows"])
    as_fitted = {row["seed"]: row["nll"] for row in rows if row["variant"] == "as fitted"}
    titles = ["seeds", "latents", "accuracy, %", "NLL", "more than as fitted", "ECE, %", "AUROC, %", "bound", "s"]
    lines = _head(["variant", *titles])
    for variant, group in _grouped(rows, "variant").items():
        increases = [row["nll"] - as_fitted[row["seed"]] for row in group if row["seed"] in as_fitted]
        cells = [
            f"{group[0]['latent_dim']:,}",
            mean_and_error(_values(group, "accuracy"), _percent),
            mean_and_error(_values(group, "nll"), lambda value: f"{value:.4f}"),
            "" if variant == "as fitted" else mean_and_error(increases, lambda value: f"{value:.4f}"),
            mean_and_error(_values(group, "ece"), _percent),
            mean_and_error(_values(group, "others_mean", "auroc"), _percent),
            mean_and_error(_values(group, "bound"), lambda value: f"{value:,.0f}"),
            mean_and_error(_values(group, "seconds"), lambda value: f"{value:.0f}"),
        ]
        lines.append(_line([variant, str(len(group)), *cells]))
    notes = [*document["notes"], *_messages(document["rows"], "variant")]
    return "\n\n".join(["\n".join(lines), *(f"- {sentence}" for sentence in notes)])


def ablation_summary(rows: Rows) -> list[Row]:
    """For each variant the number of seeds, and mean, sd, min and max over them of every quantity."""
    return [
        {"variant": variant, "seeds": len(succeeded(group))}
        | {name: spread(_values(group, name)) for name in (*QUANTITIES, "bound", "seconds")}
        for variant, group in _grouped(rows, "variant").items()
    ]


def ablation_line(row: Mapping[str, Any]) -> str:
    """One line about a row, for the progress of a run."""
    start = f"{row['problem']} {row['variant']} seed {row['seed']}: "
    if row["error"] is not None:
        return f"{start}failed: {first_line(row['error'])}"
    return f"{start}accuracy {row['accuracy']:.2%}, NLL {row['nll']:.4f}, ECE {row['ece']:.2%}, {row['seconds']:.1f} s"


# --- parts ----------------------------------------------------------------------------------------


def _table(rows: Rows) -> str:
    titles = [
        "accuracy, %",
        "NLL",
        "ECE, %",
        "Brier",
        "OOD: confidence, %",
        "AUROC, %",
        "FPR95, %",
        "s",
        "+ start",
        "GB",
    ]
    lines = _head(["method", "seeds", *titles])
    for method, group in _grouped(rows).items():
        cells = [
            mean_and_error(_values(group, "accuracy"), _percent),
            mean_and_error(_values(group, "nll"), lambda value: f"{value:.4f}"),
            mean_and_error(_values(group, "ece"), _percent),
            mean_and_error(_values(group, "brier"), lambda value: f"{value:.4f}"),
            *(mean_and_error(_values(group, "others_mean", name), _percent) for name in OTHERS),
            *(
                mean_and_error(_values(group, name), lambda value: f"{value:.0f}")
                for name in ("seconds", "start_seconds")
            ),
            mean_and_error(_values(group, "memory"), lambda value: f"{value:.1f}"),
        ]
        lines.append(_line([method, str(len(succeeded(group))), *cells]))
    return "\n".join(lines)


def ood_table(rows: Rows, titled: Callable[[str], str] = str) -> str:
    """A table with a column for each OOD set and a line for each method; means over seeds.

    Args:
        titled: gives the title of a method.
    """
    names = list(dict.fromkeys(name for row in rows for name in row["others"]))
    lines = _head(["method", *names])
    for method, group in _grouped(rows).items():
        cells = [
            " / ".join(_percent(mean(_values(group, "others", name, each))) for each in OTHERS)
            if _values(group, "others", name, OTHERS[0])
            else "–"
            for name in names
        ]
        lines.append(_line([titled(method), *cells]))
    return "\n".join(lines)


def _shifts(rows: Rows) -> str:
    """A table for each rotation or corruption at up to seven levels; with several corruptions first their mean."""
    shifts = list(dict.fromkeys(name for row in rows for name in row["shifts"]))
    return "\n\n".join(_shift(rows, shift) for shift in ([ALL_CORRUPTIONS] if len(shifts) > 1 else []) + shifts)


def _shift(rows: Rows, shift: str) -> str:
    curves = [(row, shift_curve(row, shift, "levels")) for row in rows]
    some = [row for row, levels in curves if levels is not None]
    levels = next(levels for _, levels in curves if levels is not None)
    indices = range(0, len(levels), math.ceil(len(levels) / 7))
    lines = _head([shift, *(f"{levels[index]:g}" for index in indices)])
    for method, group in _grouped(some).items():
        nll, ece = ([mean(values) for values in zip(*found, strict=True)] for found in _curves(group, shift))
        lines.append(_line([method, *(f"{nll[index]:.3f} / {100 * ece[index]:.1f}" for index in indices)]))
    return "\n".join(lines)


def _curves(group: Rows, shift: str) -> list[list[list[float]]]:
    """NLL and ECE of each row as functions of the level of a rotation or corruption."""
    return [[shift_curve(row, shift, name) or [] for row in group] for name in ("nll", "ece")]


def paper_table(problem: str) -> str:
    lines = _head(["Uppal et al. (2023)", *PAPER_COLUMNS[problem]])
    return "\n".join([*lines, *(_line([name, *map(str, values)]) for name, values in PAPER[problem].items())])


def _caution(problem: str) -> str:
    other = {
        "mnist": "its EMNIST is the digits split, ours the letters; ",
        "cifar10": "its OOD sets are SVHN, LSUN and CIFAR100, ours SVHN, CIFAR100 and Tiny ImageNet; ",
        "cifar100": "MAP, mean field and ensemble there are those of Nado et al. (2021); ",
    }[problem]
    return f"Not quite comparable: {other}its ECE leaves out predictions of a confidence of 0.99 or more."


def _messages(rows: Rows, by: str = "method") -> list[str]:
    """The warnings and errors of fits, each with its seeds."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        error = [] if row["error"] is None else [f"failed: {row['error']}"]
        for message in (*row["warnings"], *error):
            found.setdefault((row[by], first_line(message)), []).append(str(row["seed"]))
    return [f"{name} ({', '.join(seeds)}): {message}" for (name, message), seeds in found.items()]


def _values(rows: Rows, *names: str) -> list[float]:
    """The finite values under these nested names, of all rows that have them."""
    found = []
    for row in rows:
        value: Any = row
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None and math.isfinite(value):
            found.append(value)
    return found


def _percent(value: float) -> str:
    return f"{100.0 * value:.2f}"


def _grouped(rows: Rows, by: str = "method") -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row)
    return groups


def _head(titles: Sequence[str]) -> list[str]:
    return [_line(titles), f"|{'---|' * len(titles)}"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
