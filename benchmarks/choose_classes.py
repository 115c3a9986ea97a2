"""How to infer the last layer of a classifier: log score and CPU seconds of several ways, on validation rows.

    python -m benchmarks.choose_classes --seeds 100,101,102
    python -m benchmarks.choose_classes --data digits --methods ensemble,sampled,chains,chains@1:3 --seeds 100

The network, inputs and prior of `LIVIClassifier()`: one hidden layer of 50 SiLU units on standardised inputs. A fifth
of the training part of a split is held out; the split's own test rows are not looked at, and tables of results are of
splits below 100 or from 200 on. Beside the sets of `livi bench tables` three are made, of 400 and 4,000 rows, and three
of 400 rows and one or two columns.

    livi, ...      methods of `livi bench tables`: LIVIClassifier(), ensemble, boosting, ...
    sampled        all layers by the generator: `last_layer="sampled"` with the recipe of `LIVIClassifier`
    long           the same with the recipe of `livi.fit`
    conditional    the last layer given the others: `last_layer="conditional"`, the rules' recipe
    learned        the same, and the prior's scales are learned
    chains         8 microcanonical Langevin chains of 1,000 steps from as many short MAP fits: about what the exact
                   posterior of this model is worth, with R-hat of the predictions
    plain, pieces  LIVIClassifier() with columns as they are, and with columns in 16 pieces as well
    pieces@1.5:4   the fit behind the latter under prior scales of 1.5 / sqrt(fan-in), and 4 in the last layer; a third
                   number is that of the pieces
    chains@1:3     chains under prior scales of 1 / sqrt(fan-in), and 3 in the last layer, in place of 3 and 8
    conditional@1:3  likewise
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_circles, make_classification, make_moons
from torch import Tensor

import livi
from livi.experiments.scoreboard import standard_error
from livi.experiments.table_data import BUNDLED, PACKAGED, Run, Split, read_split
from livi.experiments.table_methods import METHODS, fit_livi
from livi.experiments.table_scores import Classes
from livi.inference import Recipe
from livi.model.likelihoods import Categorical
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.rivals import fit_ensemble
from livi.tables.estimators.classifier import PIECES_HIDDEN
from livi.tables.estimators.network import build_network
from livi.tables.estimators.pieces import Pieces
from livi.tables.estimators.prior import prior_of
from livi.tables.estimators.recipe import quick_recipe
from livi.tables.estimators.scaling import Scaling

HIDDEN, SHARE = (50,), 5
MADE = {  # rows, classes, columns, columns that matter
    "made-2": (500, 2, 20, 6),
    "made-4": (500, 4, 12, 6),
    "made-large": (5000, 4, 12, 6),
}
NARROW = ("wave", "moons", "circles")
PACKAGED_SETS = tuple(name for name, table in PACKAGED.items() if table.task == "classification")
SETS = (*(name for name, task in BUNDLED.items() if task == "classification"), *MADE, *NARROW, *PACKAGED_SETS)


class Rows(NamedTuple):
    """Standardised rows to fit to, and inputs of others to score."""

    inputs: Tensor
    labels: Tensor
    new_inputs: Tensor

    @classmethod
    def of(cls, split: Split) -> Rows:
        scaling = Scaling.of(split.inputs, np.ones(len(split.inputs)))
        parts = (split.inputs, split.test_inputs)
        mine, new = (torch.from_numpy(scaling.inputs(part).astype(np.float32)) for part in parts)
        return cls(mine, torch.from_numpy(split.targets), new)

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


def held_out(name: str, seed: int) -> Split:
    """The training part of a split, or made rows, with a fifth held out in the place of the test rows."""
    inputs, labels = _made(name, seed) if name in (*MADE, *NARROW) else _training_part(name, seed)
    order = np.random.default_rng(seed + 7).permutation(len(inputs))
    held, kept = order[: len(order) // SHARE], order[len(order) // SHARE :]
    return Split(name, "classification", inputs[kept], labels[kept], inputs[held], labels[held], len(kept))


def _made(name: str, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    if name in NARROW:
        return _narrow(name, seed)
    rows, classes, columns, mattering = MADE[name]
    inputs, labels = make_classification(
        rows, columns, n_informative=mattering, n_redundant=2, n_classes=classes, flip_y=0.05, random_state=seed
    )
    return inputs, labels


def _narrow(name: str, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    if name == "wave":
        rng = np.random.default_rng(seed)
        inputs = rng.uniform(-3.0, 3.0, (500, 1))
        return inputs, (rng.uniform(size=500) < 1.0 / (1.0 + np.exp(-3.0 * np.sin(2.0 * inputs[:, 0])))).astype(
            np.int64
        )
    if name == "moons":
        moons: tuple[NDArray[Any], NDArray[Any]] = make_moons(500, noise=0.3, random_state=seed)
        return moons
    circles: tuple[NDArray[Any], NDArray[Any]] = make_circles(500, noise=0.15, factor=0.5, random_state=seed)
    return circles


def _training_part(name: str, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    split = read_split(name, seed, None, 10_000)
    return split.inputs, split.targets


def network(rows: Rows, seed: int) -> torch.nn.Module:
    return build_network(rows.inputs.shape[1], HIDDEN, rows.classes, "silu", seed=seed, dtype=torch.float32)


def scaled(gains: str) -> Callable[[Layout], livi.Relevance]:
    """The prior with these scales, of the first and of the last layer."""
    first, last = map(float, gains.split(":"))
    return lambda layout: livi.Relevance.for_layout(layout, gain=first, gains={"2.weight": last}, learned=False)


def fitted(rows: Rows, seed: int, last_layer: str, scales: str, recipe: Recipe | None = None) -> Posterior:
    prior = scaled(scales) if ":" in scales else prior_of(scales, 1, classes=True)
    options: dict[str, Any] = {"prior": prior, "last_layer": last_layer, "recipe": recipe, "standardise": False}
    return livi.fit(network(rows, seed), rows[:2], Categorical(), seed=seed, progress=False, **options)


def sampled(rows: Rows, seed: int) -> Posterior:
    recipe = quick_recipe(Layout(network(rows, seed)), len(rows.labels), 1)
    return fitted(rows, seed, "sampled", "fan_in", recipe)


def long(rows: Rows, seed: int) -> Posterior:
    return fitted(rows, seed, "sampled", "fan_in")


def conditional(rows: Rows, seed: int, gains: str = "fan_in") -> Posterior:
    return fitted(rows, seed, "conditional", gains)


def learned(rows: Rows, seed: int) -> Posterior:
    return fitted(rows, seed, "conditional", "learned")


def chains(rows: Rows, seed: int, gains: str = "3:8") -> Posterior:
    options: dict[str, Any] = {"prior": scaled(gains), "members": 8, "steps": 300, "seed": seed}
    start = fit_ensemble(network(rows, seed), rows[:2], Categorical(), **options)
    polished = livi.polish(start, rows[:2], chains=8, steps=1000, draws=200, seed=seed, progress=False)
    print(f"R-hat of the predictions of chains: {polished.plan['polish']['rhat'][0]:.3f}")
    return polished


def cut(split: Split, seed: int, settings: str) -> tuple[Rows, Posterior]:
    """Columns in pieces, under any prior scales: the posterior of a network on them."""
    first, last, count, *_ = map(float, (*settings.split(":"), 16))
    counted = np.ones(len(split.inputs))
    pieces = Pieces.of(split.inputs, counted, int(count))
    assert pieces is not None
    scaling = Scaling.of(split.inputs, counted)
    parts = (
        np.concatenate([scaling.inputs(part), pieces.inputs(part)], 1) for part in (split.inputs, split.test_inputs)
    )
    mine, new = (torch.from_numpy(part.astype(np.float32)) for part in parts)
    rows = Rows(mine, torch.from_numpy(split.targets), new)

    def prior(layout: Layout) -> livi.Relevance:
        return livi.Relevance.for_layout(layout, gain=first, gains={"4.weight": last}, learned=False)

    net = build_network(mine.shape[1], PIECES_HIDDEN, rows.classes, "silu", seed=seed, dtype=torch.float32)
    options: dict[str, Any] = {"prior": prior, "standardise": False, "seed": seed, "progress": False}
    return rows, livi.fit(net, rows[:2], Categorical(), **options)


def method_of(name: str) -> Callable[[Rows, int], Posterior]:
    way, _, gains = name.partition("@")
    make = {each.__name__: each for each in (sampled, long, conditional, learned, chains)}[way]
    return partial(make, gains=gains) if gains else make


def probabilities(split: Split, method: str, seed: int) -> NDArray[np.float64]:
    """Probabilities of the classes of the held-out rows."""
    if method in METHODS:
        answer = METHODS[method](split, Run(seed))
        assert isinstance(answer, Classes)
        return answer.probabilities
    if method in ("plain", "pieces"):
        answer = fit_livi(split, Run(seed), pieces=16 if method == "pieces" else 0)
        assert isinstance(answer, Classes)
        return answer.probabilities
    if method.startswith("pieces@"):
        rows, posterior = cut(split, seed, method.removeprefix("pieces@"))
    else:
        rows = Rows.of(split)
        posterior = method_of(method)(rows, seed)
    found = posterior.predict(rows.new_inputs, num_samples=200, rng=torch.Generator().manual_seed(seed))
    return found.probabilities.double().numpy()


def score(name: str, method: str, seed: int) -> tuple[float, float]:
    """The mean log probability of the held-out labels, and CPU seconds of fit and predictions."""
    split = held_out(name, seed)
    began = time.process_time()
    found = probabilities(split, method, seed)[np.arange(len(split.test_targets)), split.test_targets]
    seconds = time.process_time() - began
    value = float(np.log(np.maximum(found, 1e-15)).mean())
    print(f"{name} {method} {seed}: {value:.4f}, {seconds:.0f} s", flush=True)
    return value, seconds


def _with_error(leads: NDArray[np.float64]) -> str:
    error = standard_error(leads)
    return f"{leads.mean():+.4f}" + ("" if error is None else f" ± {error:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_classes", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--methods", default="ensemble,sampled,conditional,learned")
    parser.add_argument("--seeds", default="100,101,102")
    chosen = parser.parse_args()
    methods, seeds = chosen.methods.split(","), list(map(int, chosen.seeds.split(",")))
    warnings.simplefilter("ignore")
    lines = []
    for name in chosen.data.split(","):
        cells = []
        first: NDArray[np.float64] | None = None
        for method in methods:
            found = np.array([score(name, method, seed) for seed in seeds])
            first = found[:, 0] if first is None else first
            print(f"{name} {method} leads {methods[0]} by {_with_error(found[:, 0] - first)}", flush=True)
            cells.append(f"{found[:, 0].mean():.3f} ({found[:, 0].min():.3f}), {found[:, 1].mean():.0f} s")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nMean log score of {len(seeds)} splits (the worst), CPU seconds\n")
    print("\n".join(["| data | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|", *lines]))


if __name__ == "__main__":
    main()
