"""Laplace with narrower priors than that of the evidence, by sampled weights and by the linearised network.

    LIVI_DATA_DIR=... python -m benchmarks.laplace_prior

A LeNet of 44,426 weights, trained on 5,000 MNIST digits and scored on 1,000 others, all of them training images. One
curvature in two forms, each with the prior precision that maximises its evidence, and with larger ones.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

import livi
from livi.experiments.images.problems import PROBLEMS, build, load
from livi.network.linearised import Linearised
from livi.rivals import fit_laplace_linearised, fit_laplace_low_rank, fit_map

TRAINING, HELD_OUT = 5_000, 1_000
PRECISIONS = (None, 100.0, 1000.0, 10_000.0)  # None is that of the evidence
RECIPE = livi.Recipe(map_steps=1500, map_restarts=1)
FORMS = {"low rank": fit_laplace_low_rank, "Kronecker factors": fit_laplace_linearised}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    problem = PROBLEMS["mnist"]
    sets = load(problem, Path(os.environ["LIVI_DATA_DIR"]), part="validation")
    train = sets.train.inputs[:TRAINING], sets.train.labels[:TRAINING]
    inputs, labels = sets.scored.inputs[:HELD_OUT], sets.scored.labels[:HELD_OUT]

    def score(posterior: livi.Posterior) -> str:
        prediction = posterior.predict(inputs, num_samples=50)
        return f"{livi.metrics.nll(prediction, labels):.3f}, {livi.metrics.accuracy(prediction, labels):.1%}"

    same = {"recipe": RECIPE, "seed": 0, "progress": False}
    found = fit_map(build(problem, 0), train, livi.Categorical(), **same)
    size = float(found.sampler.sample(1).square().mean().sqrt())
    print(f"MAP {score(found)}; root mean square of its weights {size:.3f}\n")
    print("| curvature | precision of the prior | its width | sampled weights: NLL, accuracy | linearised |")
    print("|---|---|---|---|---|")
    for name, fit in FORMS.items():
        posterior = fit(build(problem, 0), train, livi.Categorical(), **same)
        sampler, tuned = posterior.sampler, posterior.plan["prior_precision"]
        plain, kept = livi.Layout(sampler.layout.module), sampler.precision.clone()
        for precision in PRECISIONS:
            chosen = tuned if precision is None else precision
            with torch.no_grad():
                sampler.precision.copy_(kept + (chosen - tuned))
            scores = []
            for layout in (plain, Linearised(plain, sampler.centre)):
                sampler.layout = layout
                scores.append(score(posterior))
            width = f"{chosen:,.0f}{' by the evidence' if precision is None else ''} | {chosen**-0.5:.3f}"
            print(f"| {name} | {width} | {' | '.join(scores)} |", flush=True)


if __name__ == "__main__":
    main()
