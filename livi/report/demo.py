"""`livi demo`: the paper's Figure 1, fitted afresh and measured against NUTS, as a page and a file of numbers."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from livi.experiments.machine import machine, versions
from livi.experiments.processes import side_by_side
from livi.experiments.runs import recorded_warnings
from livi.experiments.toy import as_tensors, fit_toy, measure, network
from livi.experiments.toy_bench import QUICK
from livi.experiments.toy_data import NAMES, Reference, reference, toy_data
from livi.model.warning import FitWarning
from livi.network import Layout
from livi.posterior.diagnostics import CorrelationCheck, DensityCheck, Diagnosis, Effort, ShapeCheck, weight_name
from livi.posterior.posterior import Posterior, load
from livi.posterior.storage import replace_file
from livi.report.demo_figures import FIGURES, draw_all
from livi.report.demo_page import MEANINGLESS, page, table
from livi.report.style import require_matplotlib

METHODS = ("livi", "mean_field", "ensemble-5")  # the longest fit first, so that two workers end at about the same time
Say = Callable[[str], None]


@dataclass(frozen=True)
class Config:
    """What to run. Data set A is the default: its NUTS chains have mixed, so that distances to them mean something.

    Args:
        quick: a few steps instead of a fit, to see that everything works; the numbers mean nothing.
    """

    data: str = "A"
    seed: int = 0
    quick: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see `livi demo --help`."""
    parser = argparse.ArgumentParser(
        prog="livi demo",
        description="Fit an implicit posterior, mean field and an ensemble of five to a toy problem with a gap in its "
        "data, compare them with NUTS, and write a page of figures. About two minutes on two cores.",
    )
    parser.add_argument("--out", type=Path, default=Path("livi-demo"), metavar="DIR", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="decides every random draw (default %(default)s)")
    parser.add_argument(
        "--data",
        choices=NAMES,
        default="A",
        help="A, a sine (default): the NUTS reference has mixed, so that distances to it mean something; B, the "
        "paper's function: harder, and its reference less certain",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few steps only, to see that everything works; the numbers mean nothing"
    )
    chosen = parser.parse_args(arguments)
    document = demo(Config(chosen.data, chosen.seed, chosen.quick), chosen.out, lambda text: print(text, flush=True))
    print(
        f"\n{table(document)}\n\nThe page: {chosen.out / 'index.html'}" + (f"\n{MEANINGLESS}" if chosen.quick else "")
    )
    return 0


def demo(config: Config, folder: str | Path, say: Say = print) -> dict[str, Any]:
    """Fit, compare, draw; write folder/index.html, result.json, figures and posteriors; return what result.json has.

    Raises:
        ImportError: matplotlib is not installed; said before the first fit.
    """
    require_matplotlib()
    started = time.perf_counter()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    truth = reference(config.data)
    workers = min(2, _cores())
    say(f"Data set {config.data}, seed {config.seed}: {len(METHODS)} fits in {workers} worker processes")
    if config.quick:
        say(MEANINGLESS)
    rows = _fit_all(config, folder, workers, say)
    posteriors = {method: load(_file(folder, method), network(config.seed)) for method in METHODS}
    say("diagnosing the LIVI posterior")
    diagnosis = _diagnose(posteriors["livi"], config)
    say("drawing")
    draw_all(config.data, config.seed, posteriors, diagnosis, folder)
    document: dict[str, Any] = {
        "experiment": "demo",
        "config": {"data": config.data, "seed": config.seed, "quick": config.quick, "recipe": rows["livi"]["recipe"]},
        "methods": {method: rows[method] for method in METHODS} | {"nuts": _nuts_row(truth)},
        "reference": _trust(truth),
        "diagnosis": _verdict(diagnosis, posteriors["livi"].layout),
        "versions": versions() | {"matplotlib": version("matplotlib")},
        "machine": machine() | {"threads": 1, "workers": workers},
        "seconds": time.perf_counter() - started,
    }
    replace_file(folder / "result.json", [json.dumps(document, indent=1, allow_nan=False).encode(), b"\n"])
    images = {name: (folder / f"{name}.png").read_bytes() for name in FIGURES}
    replace_file(folder / "index.html", [page(document, images).encode()])
    return document


def _fit_all(config: Config, folder: Path, workers: int, say: Say) -> dict[str, dict[str, Any]]:
    """Rows by method, from processes of one thread each: small tensors gain nothing from more."""
    rows: dict[str, dict[str, Any]] = {}
    for row in side_by_side(partial(_fit, config=config, folder=folder), METHODS, workers):
        rows[row["method"]] = row
        bound = "" if row["elbo"] is None else f"bound {row['elbo']:.1f} nats, "
        say(f"{row['method']}: {bound}W2 to NUTS {row['w2_to_nuts']:.3f}, {row['seconds']:.0f} s")
    return rows


def _fit(method: str, config: Config, folder: Path) -> dict[str, Any]:
    """Run in a worker: fit, measure, and save the posterior to a file."""
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)
    started = time.process_time()
    with recorded_warnings() as caught:
        fitted = fit_toy(config.data, method, config.seed, recipe=QUICK if config.quick else None)
    cpu_seconds = time.process_time() - started
    draws = {"num_draws": 100} if config.quick else {}
    row = measure(config.data, method, config.seed, fitted, **draws)
    fitted.posterior.save(_file(folder, method))
    heard = [str(warning.message) for warning in caught if issubclass(warning.category, FitWarning)]
    return row | {"cpu_seconds": cpu_seconds, "warnings": heard}


def _diagnose(posterior: Posterior, config: Config) -> Diagnosis:
    inputs, targets = as_tensors(toy_data(config.data))
    rng = torch.Generator().manual_seed(config.seed)
    effort = Effort(num_densities=12, num_importance=8, num_starts=1) if config.quick else Effort()
    samples = 64 if config.quick else 1024
    return posterior.diagnose(inputs, targets, num_samples=samples, rng=rng, effort=effort)


def _verdict(diagnosis: Diagnosis, layout: Layout) -> dict[str, Any]:
    """The parts of a diagnosis that the page shows."""
    shape, correlation = diagnosis.shape, diagnosis.correlation
    assert isinstance(shape, ShapeCheck)
    assert isinstance(correlation, CorrelationCheck)
    facts = diagnosis.to_dict()
    return {
        "severity": diagnosis.severity,
        "findings": facts["findings"],
        "density": facts["density"]["mean"] if isinstance(diagnosis.density, DensityCheck) else None,
        "examined": len(shape.densities) + len(shape.directions),
        "multimodal": len(shape.multimodal),
        "across": max(correlation.across, 0.0) ** 0.5,
        "across_noise": max(correlation.across_noise, 0.0) ** 0.5,
        "strongest": _strongest(correlation, layout),
        "estimator": diagnosis.bound.estimator,
    }


def _strongest(correlation: CorrelationCheck, layout: Layout) -> dict[str, Any]:
    """The largest correlation between two weights."""
    assert correlation.matrix is not None
    matrix = correlation.matrix - torch.diag(correlation.matrix.diagonal())
    row, column = divmod(int(matrix.abs().argmax()), len(matrix))
    return {"value": float(matrix[row, column]), "weights": [weight_name(layout, row), weight_name(layout, column)]}


def _nuts_row(truth: Reference) -> dict[str, Any]:
    """The NUTS reference as one more row: the distance between its two runs, and the seconds of both."""
    seconds = float(sum(truth.measured["seconds"])) if "seconds" in truth.measured else None
    return {"elbo": None, "w2_to_nuts": truth.w2_runs, "gap_std": truth.gap_std, "seconds": seconds}


def _trust(truth: Reference) -> dict[str, Any]:
    return {
        "w2_runs": truth.w2_runs,
        "w2_chains": truth.w2_chains,
        "rhat_largest": float(truth.rhat.max()),
        "ess_smallest": float(truth.ess.min()),
        "divergences": truth.divergences,
        "settings": truth.settings,
        "versions": truth.versions,
    }


def _file(folder: Path, method: str) -> Path:
    return folder / f"{method}.livi"


def _cores() -> int:
    """The number of CPU cores that this process may use."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1
