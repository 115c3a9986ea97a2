"""Posteriors on small tables, compared part by part: model, modes, family within a mode, sampler, weights.

    LIVI_DATA_DIR=... python -m benchmarks.bench_truth --data boston,concrete,energy --splits 0,1,2,3,4 --out truth.json
    LIVI_DATA_DIR=... python -m benchmarks.bench_truth --ways fit --data boston,energy --splits 0,1,2,3,4,5,6,7,8,9
    LIVI_DATA_DIR=... python -m benchmarks.bench_truth --held --ways stacked,silu,gelu --splits 10,11,12 --out held.json
    python -m benchmarks.bench_truth --read truth.json

The network is 16-16-2, ReLU, with mean and noise as outputs and N(0, 1) priors, as in sklearn-contrib-bde, unless a way
says otherwise. Inputs and targets are standardised; log score and RMSE are of the test rows in the targets' units.
Seconds are CPU seconds of one thread. Splits 5 to 9 are kept for reports. To choose by, there is `--held`: a fifth of
the training rows takes the place of the test rows, which are not looked at.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import livi
from livi.cli.benches import uci_folder
from livi.experiments.table_data import Split, read_split
from livi.experiments.table_scores import band, scores
from livi.posterior.prediction import RegressionPrediction
from livi.rivals import fit_ensemble, fit_langevin, fit_map, fit_nuts
from livi.rivals.map_start import MapFits
from livi.tables.estimators.network import build_network
from livi.tables.estimators.scaling import Scaling

QUICK = ("--data", "diabetes", "--splits", "0", "--ways", "members,stacked", "--quick")
FULL = ("--data", "boston,concrete,energy,yacht", "--splits", "0,1,2,3,4", "--out", "truth.json")
CHAINS, STEPS, FLOOR = 8, 5000, 1e-3
LONGEST = 8 * STEPS  # of all ways

Data = tuple[torch.Tensor, torch.Tensor]
Way = Callable[[nn.Module, Data, dict[str, Any]], livi.Posterior]


def noise() -> livi.HeteroscedasticGaussian:
    return livi.HeteroscedasticGaussian(floor=FLOOR)


def chains(*, steps: int = STEPS, number: int = CHAINS, kept: int = 400, map_steps: int = 300, **polishing: Any) -> Way:
    """Chains from MAP fits, as `fit_langevin` runs them, but for what is given; `kept` draws of all together."""

    def make(net: nn.Module, data: Data, options: dict[str, Any]) -> livi.Posterior:
        length = min(steps, options["most"])
        common = {"prior": livi.Normal(1.0), "standardise": False, "seed": options["seed"]}
        fits = MapFits.of("bench_truth", net, data, noise(), number, min(map_steps, length), common)
        settings = {"warm_up": 0.6, "first_error": 0.5, "energy_error": 0.1, "weighting": "equal"} | polishing
        draws = max(8, min(kept // number, int(0.4 * length))) * number
        start = fits.posterior(fits.starts(), "chains")
        return livi.polish(
            start, data, chains=number, draws=draws, steps=length, seed=options["seed"], progress=False, **settings
        )

    return make


def fitted(function: Callable[..., livi.Posterior], likelihood: Callable[[], Any] = noise, **given: Any) -> Way:
    """By a function of the library."""

    def make(net: nn.Module, data: Data, options: dict[str, Any]) -> livi.Posterior:
        common: dict[str, Any] = {"prior": livi.Normal(1.0), "standardise": False, "seed": options["seed"]}
        chosen = common | {"progress": False} | given
        if "steps" in chosen:
            chosen["steps"] = min(chosen["steps"], options["most"])
        elif options["most"] < STEPS:
            chosen["steps"] = options["most"]
        return function(net, data, likelihood(), **chosen)

    return make


def nuts(chains: int = 4, draws: int = 500) -> Way:
    """A reference: a sampler whose steps leave the posterior as it is, from short MAP fits."""

    def make(net: nn.Module, data: Data, options: dict[str, Any]) -> livi.Posterior:
        most = min(draws, options["most"])
        common = {"prior": livi.Normal(1.0), "standardise": False, "seed": options["seed"]}
        recipe = livi.Recipe(map_steps=min(300, most))
        return fit_nuts(net, data, noise(), chains=chains, warmup=most, draws=most, recipe=recipe, **common)

    return make


def cooled(number: int = 128) -> Way:
    """A reference of another kind: draws of the prior, cooled down to the posterior and resampled on the way."""

    def make(net: nn.Module, data: Data, options: dict[str, Any]) -> livi.Posterior:
        common = {"prior": livi.Normal(1.0), "standardise": False, "seed": options["seed"]}
        fits = MapFits.of("bench_truth", net, data, noise(), 1, 1, common)
        model = fits.posterior(fits.starts(), "cooled")  # of which only the model counts
        length = min(200, options["most"])
        settings = {"steps": length, "energy_error": 0.1, "seed": options["seed"], "progress": False}
        return livi.polish(model, data, start="prior", chains=number, draws=8 * number, **settings)

    return make


def one_noise() -> livi.Gaussian:
    return livi.Gaussian(1.0, learned=True)


WAYS: dict[str, tuple[str, Way, dict[str, Any]]] = {
    "map": ("one MAP fit, 3,000 steps", fitted(fit_map, steps=3000), {}),
    "members": ("8 MAP fits, 300 steps", fitted(fit_ensemble, members=CHAINS, steps=300), {}),
    "trained-members": ("8 MAP fits, 3,000 steps", fitted(fit_ensemble, members=CHAINS, steps=3000), {}),
    "mode": ("implicit posterior around the best mode", fitted(livi.fit, polish=False), {}),
    "fit": ("`livi.fit`, no options, its own floor of the noise", fitted(livi.fit, livi.HeteroscedasticGaussian), {}),
    "one-chain": ("one chain", chains(number=1), {}),
    "small-steps": ("8 chains, energy error 5e-4", chains(first_error=5e-4, energy_error=5e-4), {}),
    "half": ("8 chains, half as long", chains(steps=STEPS // 2), {}),
    "many": ("16 chains, half as long", chains(number=16, steps=STEPS // 2), {}),
    "chains": ("8 chains", chains(), {}),
    "long": (
        "32 chains, eight times as long, energy error 0.01",
        chains(number=32, steps=8 * STEPS, kept=3200, energy_error=0.01),
        {},
    ),
    "stacked": ("8 chains, stacked: `fit_langevin`", fitted(fit_langevin), {}),
    "one-noise": ("the same, one noise for all rows", fitted(fit_langevin, one_noise), {"outputs": 1}),
    "one-layer": ("the same, one layer of 32", fitted(fit_langevin), {"hidden": (32,)}),
    "wide": ("the same, two layers of 32", fitted(fit_langevin), {"hidden": (32, 32)}),
    "silu": ("the same, SiLU", fitted(fit_langevin), {"activation": "silu"}),
    "gelu": ("the same, GELU", fitted(fit_langevin), {"activation": "gelu"}),
    "cold": ("the same, GELU, energy error 0.01", fitted(fit_langevin, energy_error=0.01), {"activation": "gelu"}),
    "cooled": ("128 chains from the prior, cooled", cooled(), {}),
    "nuts": ("NUTS, 4 chains of 500 draws", nuts(), {}),
    "nuts-gelu": ("the same, GELU", nuts(), {"activation": "gelu"}),
}
AGREEMENT = (("rhat", 2), ("effective", 0))  # entries of a row, and their digits
USUAL = [way for way in WAYS if not way.startswith(("long", "cooled", "nuts"))]  # which take minutes to an hour


def held_out(name: str, number: int) -> Split:
    """A split of the training rows alone: a fifth of them takes the place of the test rows."""
    split = read_split(name, number, uci_folder(), 10_000)
    drawn = np.random.default_rng(number).permutation(len(split.targets))
    held, kept = np.split(drawn, [round(0.2 * len(drawn))])
    return replace(
        split,
        inputs=split.inputs[kept],
        targets=split.targets[kept],
        test_inputs=split.inputs[held],
        test_targets=split.targets[held],
    )


def run(split: Split, number: int, way: str, most: int) -> dict[str, Any]:
    """One way on one split."""
    row: dict[str, Any] = {"data": split.name, "split": number, "way": way, "title": WAYS[way][0]}
    began = time.process_time()
    try:
        found, posterior = predicted(split, number, way, most)
    except livi.FitError as error:
        return row | {"seconds": time.process_time() - began, "error": str(error)}
    report = posterior.plan.get("polish") or posterior.plan.get("nuts") or {}
    agreement = {name: report.get(name, [None])[0] for name in ("rhat", "effective")}
    seconds = {"seconds": time.process_time() - began, "error": None}
    return row | scores(band(found, split.test_targets), split.test_targets) | agreement | seconds


def predicted(split: Split, number: int, way: str, most: int) -> tuple[RegressionPrediction, livi.Posterior]:
    """What one way says of the test rows, in the targets' units."""
    _, make, shape = WAYS[way]
    return answered_by(split, number, make, shape, most)


def answered_by(
    split: Split,
    number: int,
    make: Way,
    shape: dict[str, Any],
    most: int,
    answer: Callable[[livi.Posterior, torch.Tensor], Any] = lambda posterior, x: posterior.predict(x, num_samples=400),
) -> tuple[RegressionPrediction, livi.Posterior]:
    """What a posterior says of the test rows, in the targets' units, by an answer on standardised ones."""
    counted = np.ones(len(split.inputs))
    inputs, targets = Scaling.of(split.inputs, counted), Scaling.of(split.targets, counted)
    x, test = (torch.tensor(inputs.inputs(part), dtype=torch.float32) for part in (split.inputs, split.test_inputs))
    y = torch.tensor(targets.standardise(split.targets), dtype=torch.float32)[:, None]
    widths = {"hidden": (16, 16), "outputs": 2, "activation": "relu"} | shape
    net = build_network(x.shape[1], **widths, spread=True, seed=number, dtype=torch.float32)
    posterior = make(net, (x, y), {"seed": number, "most": most})
    found = answer(posterior, test)
    assert isinstance(found, RegressionPrediction)
    return found.rescaled(*map(float, targets)), posterior


def table(rows: list[dict[str, Any]]) -> str:
    """Mean log score / RMSE over splits of each way and data set, R-hat and ESS of predictions, failures, seconds."""
    data = list(dict.fromkeys(row["data"] for row in rows))
    splits = sorted({row["split"] for row in rows})
    lines = [f"Splits {', '.join(map(str, splits))}: log score / RMSE.", ""]
    lines += ["| | " + " | ".join(data) + " | R-hat, ESS | failed | CPU s |", "|---" * (len(data) + 4) + "|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        held = [row for row in own if row["error"] is None]
        cells = []
        for name in data:
            these = [row for row in held if row["data"] == name]
            means = [np.mean([row[key] for row in these]) for key in ("log_score", "rmse")] if these else []
            cells.append(f"{means[0]:.3f} / {means[1]:.3g}" if these else "")
        known = [([row[each] for row in held if row.get(each) is not None], digits) for each, digits in AGREEMENT]
        agreement = ", ".join(f"{np.mean(found):.{digits}f}" for found, digits in known if found)
        seconds = np.mean([row["seconds"] for row in own])
        count = f"{len(own) - len(held)} of {len(own)}"
        lines.append(f"| {own[0]['title']} | {' | '.join(cells)} | {agreement} | {count} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="boston,concrete,energy", help="data sets of `livi bench tables`")
    parser.add_argument("--splits", default="0,1,2,3,4")
    parser.add_argument(
        "--ways", default=",".join(USUAL), help="default: %(default)s; there are long, cooled, nuts and nuts-gelu too"
    )
    parser.add_argument("--held", action="store_true", help="score training rows that are held out, not test rows")
    parser.add_argument("--quick", action="store_true", help="a few steps; the numbers mean nothing")
    parser.add_argument("--out", type=Path, help="rows are written there, and those that are there are not run again")
    parser.add_argument("--read", type=Path, help="print the table of results that were written by --out")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    known = chosen.read or chosen.out
    rows = json.loads(known.read_text()) if known is not None and known.exists() else []

    done = {(row["data"], row["split"], row["way"]) for row in rows}
    for number in map(int, chosen.splits.split(",")) if chosen.read is None else ():
        for name in chosen.data.split(","):
            split = held_out(name, number) if chosen.held else read_split(name, number, uci_folder(), 10_000)
            for way in chosen.ways.split(","):
                if (name, number, way) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rows.append(run(split, number, way, 40 if chosen.quick else LONGEST))
                print(rows[-1], flush=True)
                if chosen.out is not None:
                    chosen.out.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
