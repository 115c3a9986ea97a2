"""What suits `livi.fit` on pictures: choices for LeNet on MNIST and WRN-16-4 on CIFAR-10, scored on training pictures.

    LIVI_DATA_DIR=... python -m benchmarks.choose_pictures mnist --device cuda --jobs 3 --out choices
    LIVI_DATA_DIR=... python -m benchmarks.choose_pictures cifar10 --device cuda --out choices --epochs 60

Every choice is a fit of `livi bench mnist | cifar10` with other options, on nine tenths of the training pictures, and
scored on the last tenth. "Strange" is the mean confidence on those with their quarters exchanged crosswise, which look
like nothing a network was trained on. Test pictures and the foreign sets of the tables have no part in it.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

import livi
from livi.experiments.images.methods import Task, fit_livi
from livi.experiments.images.problems import PROBLEMS, load
from livi.experiments.images.scores import Answers
from livi.experiments.rows import Row
from livi.experiments.spreading import run_all
from livi.inference import FitError, Recipe
from livi.network import Layout

Options = dict[str, Any]
Job = tuple[str, str, int]  # problem, choice, seed


def relative(share: float) -> Any:
    return lambda layout: livi.RelativeNoise.for_layout(layout, share)


def latents(side: int) -> Any:
    """The default's generator with other latents."""

    def generator(layout: Layout) -> livi.MMNN:
        sizes = [slot.numel for slot in layout.slots]
        most = None if layout.num_params < 10**6 else 612
        return livi.MMNN.for_layout(
            layout,
            budget=3.0,
            latent_dim=side * side,
            last_bias=False,
            most=most,
            aligned=True,
            offset=True,
            scale_sizes=sizes,
        )

    return generator


CHOICES: dict[str, dict[str, Options]] = {
    "mnist": {
        "default": {},
        "8,000 steps": {"recipe": Recipe(steps=8000)},
        "8 samples": {"recipe": Recipe(num_samples=8)},
        "MAP of 10,000 steps": {"recipe": Recipe(map_steps=10_000)},
        "MAP of 1,000 steps, 8,000 steps": {"recipe": Recipe(map_steps=1000, steps=8000)},
        "rates 3e-3": {"recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3)},
        "rates 3e-4": {"recipe": Recipe(affine_rate=3e-4, nonlinear_rate=3e-4)},
        "noise 0.1": {"noise": relative(0.1)},
        "noise 0.4": {"noise": relative(0.4)},
        "noise 0.05 for all": {"noise": livi.FixedNoise(0.05)},
        "N(0, 0.3^2)": {"prior": livi.Normal(0.3)},
        "N(0, 3^2)": {"prior": livi.Normal(3.0)},
        "d = 1,024": {"generator": latents(32)},
        "batches of 128": {"batch_size": 128},
        "batches of 512": {"batch_size": 512},
        "rates 1e-2": {"recipe": Recipe(affine_rate=1e-2, nonlinear_rate=1e-2)},
        "rates 3e-3, 8,000 steps": {"recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3, steps=8000)},
        "rates 3e-3, hyper 1e-2": {"recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3, hyper_rate=1e-2)},
        "rates 3e-3, MAP at 3e-3": {"recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3, map_rate=3e-3)},
        "rates 1e-3, 3e-3": {"recipe": Recipe(affine_rate=1e-3, nonlinear_rate=3e-3)},
        "rates 3e-3, 1e-3": {"recipe": Recipe(affine_rate=3e-3, nonlinear_rate=1e-3)},
        "rates 3e-3, N(0, 0.3^2)": {
            "recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3),
            "prior": livi.Normal(0.3),
        },
        "rates 3e-3, N(0, 0.5^2)": {
            "recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3),
            "prior": livi.Normal(0.5),
        },
        "rates 2e-3, N(0, 0.3^2)": {
            "recipe": Recipe(affine_rate=2e-3, nonlinear_rate=2e-3),
            "prior": livi.Normal(0.3),
        },
        "rates 3e-3, noise 0.3": {
            "recipe": Recipe(affine_rate=3e-3, nonlinear_rate=3e-3),
            "noise": relative(0.3),
        },
    },
    "cifar10": {
        "default": {},
        "noise 0.2": {"noise": relative(0.2)},
        "noise 0.4": {"noise": relative(0.4)},
        "N(0, 0.1^2)": {"prior": livi.Normal(0.1)},
        "N(0, 1)": {"prior": livi.Normal(1.0)},
        "affine 1e-3": {"recipe": Recipe(affine_rate=1e-3)},
        "rates 1e-4, 3e-4": {"recipe": Recipe(affine_rate=1e-4, nonlinear_rate=3e-4)},
        "d = 1,024": {"generator": latents(32)},
        "4 samples": {"recipe": Recipe(num_samples=4)},
    },
}


def strange(pictures: Tensor) -> Tensor:
    """Quarters exchanged crosswise."""
    return torch.roll(pictures, (pictures.shape[-2] // 2, pictures.shape[-1] // 2), (-2, -1))


def row(job: Job, *, device: str, epochs: int | None, samples: int, out: Path) -> Row:
    problem, choice, seed = job
    warnings.simplefilter("ignore")  # what a fit says of itself is not what is looked at here
    sets = load(PROBLEMS[problem], Path(os.environ["LIVI_DATA_DIR"]), part="validation", device=device)
    task = Task(sets, seed, out / problem, epochs=epochs, samples=samples)
    begun = time.perf_counter()
    try:
        fitted = fit_livi(task, choice, **CHOICES[problem][choice])
    except FitError as error:
        return {"job": job, "error": str(error)}
    seconds = fitted.seconds
    scores = Answers(fitted, sets.scored.inputs).scores(sets.scored.labels)
    odd = Answers(fitted, strange(sets.scored.inputs)).probabilities.amax(-1).mean().item()
    found = {"job": job, "error": None, "seconds": seconds, "strange": odd, **scores}
    bound = fitted.posteriors[0].history[-1]["bound"]
    return found | {"bound": bound, "whole_seconds": time.perf_counter() - begun}


def lines(rows: Sequence[Row]) -> list[str]:
    """A table: means over the seeds."""
    text = ["| choice | seeds | accuracy | NLL | ECE | strange | bound | s |", "|---|---|---|---|---|---|---|---|"]
    for choice in dict.fromkeys(each["job"][1] for each in rows):
        own = [each for each in rows if each["job"][1] == choice and each["error"] is None]
        if not own:
            text.append(f"| {choice} | 0 | failed | | | | | |")
            continue
        a, n, e, odd, b, s = (
            mean(each[name] for each in own) for name in ("accuracy", "nll", "ece", "strange", "bound", "seconds")
        )
        text.append(f"| {choice} | {len(own)} | {a:.2%} | {n:.4f} | {e:.2%} | {odd:.1%} | {b:,.0f} | {s:.0f} |")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_pictures", description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=list(CHOICES))
    parser.add_argument("--choices", help="some of them, with | between (default: all)")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="of networks that fits start from")
    parser.add_argument("--samples", type=int, default=50, help="networks that answer")
    parser.add_argument("--out", type=Path, default=Path("choices"), help="where trained networks are kept")
    given = parser.parse_args()
    names = given.choices.split("|") if given.choices else list(CHOICES[given.problem])
    jobs = [(given.problem, name, seed) for seed in map(int, given.seeds.split(",")) for name in names]
    fit = partial(row, device=given.device, epochs=given.epochs, samples=given.samples, out=given.out)
    rows = []
    for found in run_all(fit, jobs, given.jobs):
        rows.append(found)
        print(found, flush=True)
    print("\n".join(lines(sorted(rows, key=lambda each: jobs.index(tuple(each["job"]))))), flush=True)


if __name__ == "__main__":
    main()
