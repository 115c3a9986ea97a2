"""Mixtures of many cheap components, with equal weights and by importance: python -m benchmarks.bench_components

    LIVI_DATA_DIR=... python -m benchmarks.bench_components --components 1,4,8,16 --keep fits --out components.json
    python -m benchmarks.bench_components --read components.json

The toy problems A and B (W2 to NUTS of 4,000 functions), and a table (`energy`: log score on training rows that are
held out, of a 16-16-2 ReLU network whose second output is the noise; no chains). A mixture of K components has
128 / K samples a step for each, or 64 / K on the table, and at least 8; with `--whole` all 128 or 64 for each. 1,500
steps after MAP fits of 1,000. Then `livi.reweight`, from `--samples` draws. Seconds are CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import livi
from benchmarks.bench_truth import held_out, noise
from livi.experiments.toy import as_tensors, draw_functions, network
from livi.experiments.toy_data import OBS_STD, PRIOR_STD, reference, toy_data, wasserstein2
from livi.model.likelihoods import Likelihood
from livi.tables.estimators.network import build_network
from livi.tables.estimators.scaling import Scaling

QUICK = ["--problems", "A", "--components", "1,2", "--quick"]
FULL = ["--components", "1,4,8,16"]
STEPS, MAP_STEPS = 1500, 1000


@dataclass(frozen=True)
class Case:
    """A network, what it is fitted to, and the rows that it is scored on, where there are any."""

    net: nn.Module
    data: tuple[Tensor, Tensor]
    likelihood: Likelihood
    samples: int
    held: tuple[Tensor, Tensor, float] | None = None  # with the targets' standard deviation


def case_of(name: str, seed: int) -> Case:
    if name in ("A", "B"):
        return Case(network(seed), as_tensors(toy_data(name)), livi.Gaussian(OBS_STD), 128)
    split = held_out(name, seed)
    counted = np.ones(len(split.inputs))
    inputs, targets = Scaling.of(split.inputs, counted), Scaling.of(split.targets, counted)
    x, held = (torch.tensor(inputs.inputs(part), dtype=torch.float32) for part in (split.inputs, split.test_inputs))
    y, truth = (
        torch.tensor(targets.standardise(part), dtype=torch.float32)[:, None]
        for part in (split.targets, split.test_targets)
    )
    shape: dict[str, Any] = {"hidden": (16, 16), "outputs": 2, "activation": "relu"}
    net = build_network(x.shape[1], **shape, spread=True, seed=seed, dtype=torch.float32)
    return Case(net, (x, y), noise(), 64, (held, truth, float(targets[1])))


def fitted(case: Case, components: int, seed: int, quick: bool, whole: bool) -> livi.Posterior:
    samples = case.samples if whole else max(8, case.samples // components)
    steps, starts = (20, 20) if quick else (STEPS, MAP_STEPS)
    recipe = livi.Recipe(steps=steps, map_steps=starts, num_samples=samples)
    common: dict[str, Any] = {"prior": livi.Normal(PRIOR_STD), "standardise": False, "polish": False}
    return livi.fit(
        case.net, case.data, case.likelihood, components=components, recipe=recipe, seed=seed, progress=False, **common
    )


def kept(
    case: Case, name: str, components: int, seed: int, quick: bool, whole: bool, folder: Path | None
) -> tuple[livi.Posterior, float]:
    """The fit and its seconds, read where the folder has them."""
    path = None if folder is None else folder / f"{name}-{components}-{seed}{'-whole' if whole else ''}.livi"
    beside = None if path is None else path.with_suffix(".json")
    if path is not None and beside is not None and beside.exists():
        return livi.load(path, case.net), json.loads(beside.read_text())["seconds"]
    began = time.process_time()
    posterior = fitted(case, components, seed, quick, whole)
    seconds = time.process_time() - began
    if path is not None and beside is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        posterior.save(path)
        beside.write_text(json.dumps({"seconds": seconds}))
    return posterior, seconds


def scored(posterior: livi.Posterior, case: Case, name: str) -> float:
    """W2 to NUTS; of a table the log score in the targets' units."""
    if case.held is None:
        truth = reference(name)
        places = torch.as_tensor(truth.data.grid, dtype=torch.float32)
        functions = draw_functions(posterior, places, 4000, torch.Generator().manual_seed(0))
        return float(wasserstein2(functions, truth.quantiles))
    inputs, targets, scale = case.held
    found = posterior.predict(inputs, num_samples=400)
    return -float(livi.metrics.nll(found, targets)) - float(np.log(scale))


def run(
    name: str, components: int, seed: int, samples: int, quick: bool, whole: bool, folder: Path | None
) -> dict[str, Any]:
    case = case_of(name, seed)
    posterior, seconds = kept(case, name, components, seed, quick, whole, folder)
    began = time.process_time()
    reweighted = livi.reweight(posterior, case.data, num_samples=samples, draws=4000, progress=False)
    report = livi.ReweightReport.of(reweighted)
    return {
        "problem": name,
        "components": components,
        "seed": seed,
        "whole": whole,
        "left": len(report.shares),
        "seconds": seconds,
        "score": scored(posterior, case, name),
        "reweighted": scored(reweighted, case, name),
        "reweight_seconds": time.process_time() - began,
        "worth": 1.0 / sum(share**2 for share in report.shares),
    } | {
        key: getattr(report, key)
        for key in ("samples", "effective", "pareto_shape", "bound", "log_evidence", "shares", "density_error")
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| problem, seed | components | kept | CPU s, fit | equal weights | reweighted | effective draws | Pareto "
        "shape | ELBO | log evidence | worth | CPU s |",
        "|---" * 12 + "|",
    ]
    for row in sorted(rows, key=lambda row: (row["problem"], row["whole"], row["components"], row["seed"])):
        bound, evidence = (f"{row[key][0]:.1f} ± {row[key][1]:.1f}" for key in ("bound", "log_evidence"))
        cells = [
            f"{row['problem']}, {row['seed']}",
            f"{row['components']}{', whole' if row['whole'] else ''}",
            str(row["left"]),
            f"{row['seconds']:.0f}",
            f"{row['score']:.3f}",
            f"{row['reweighted']:.3f}",
            f"{row['effective']:.1f} of {row['samples']:,}",
            f"{row['pareto_shape']:.2f}",
            bound,
            evidence,
            f"{row['worth']:.1f}",
            f"{row['reweight_seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="A,B,energy")
    parser.add_argument("--components", default="1,4,8,16")
    parser.add_argument("--seed", type=int, help="default: 0; of a table its split, 10")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--whole", action="store_true", help="as many samples a step for each component as for one")
    parser.add_argument("--quick", action="store_true", help="a few steps; the numbers mean nothing")
    parser.add_argument("--keep", type=Path, help="a folder that fits are kept in, and read from")
    parser.add_argument("--out", type=Path, help="a JSON file of rows; those that are there are not run again")
    parser.add_argument("--read", type=Path, help="print the table of this file, and run nothing")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    known = chosen.read or chosen.out
    rows = json.loads(known.read_text()) if known is not None and known.exists() else []
    done = {(row["problem"], row["components"], row["seed"], row["whole"]) for row in rows}
    samples = 64 if chosen.quick else chosen.samples
    for components in map(int, chosen.components.split(",")) if chosen.read is None else ():
        for name in chosen.problems.split(","):
            seed = chosen.seed if chosen.seed is not None else 0 if name in ("A", "B") else 10
            if (name, components, seed, chosen.whole) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows.append(run(name, components, seed, samples, chosen.quick, chosen.whole, chosen.keep))
            print(rows[-1], flush=True)
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
