"""Options of `livi.fit` on images: LeNet on MNIST and WRN-16-4 on CIFAR-10, scored on training images.

    LIVI_DATA_DIR=... python -m benchmarks.choose_pictures mnist --device cuda --jobs 3 --out choices
    LIVI_DATA_DIR=... python -m benchmarks.choose_pictures mnist --group unsure --device cuda --jobs 3 --seeds 0,1,2
    LIVI_DATA_DIR=... python -m benchmarks.choose_pictures cifar10 --device cuda --out choices --epochs 60

Every choice is a fit of `livi bench mnist | cifar10` with other options, on nine tenths of the training images, and
scored on the last tenth. Synthetic OOD images are those altered in six ways (`livi.experiments.images.synthetic`); the
tables have the mean confidence on them, and the AUROC by which confidence tells them apart.
Test images and the OOD sets of the tables have no part in it. What all methods are searched over alike is in
`livi bench mnist | cifar10 --search`; here is what livi alone has.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import livi
from benchmarks.choose_fit import relative
from livi.experiments.datasets.pictures import data_folder
from livi.experiments.images.methods import Task, fit_livi
from livi.experiments.images.problems import PROBLEMS, load
from livi.experiments.images.scores import scores
from livi.experiments.rows import Row
from livi.experiments.spreading import run_all
from livi.inference import FitError, Recipe
from livi.network import Layout

Options = dict[str, Any]
Job = tuple[str, str, int]  # problem, choice, seed


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


def rates(rate: float, **more: Any) -> Recipe:
    return Recipe(affine_rate=rate, nonlinear_rate=rate, **more)


def mixture(components: int, map_steps: int, steps: int, samples: int, **options: Any) -> Options:
    """Components that start at MAP fits of so many steps each, and so many samples of each a step."""
    recipe = Recipe(map_steps=map_steps, steps=steps, num_samples=samples)
    return {"components": components, "recipe": recipe} | options


ALONE: Options = {"components": 1}  # but for choices that say otherwise

# Rates of 3e-3, N(0, t^2) with t = 3 / sqrt(fan-in) from 0.3 to 1, noise 0.2: the default. One component is fitted in
# 4,000 steps of 4 samples.
CHOICES: dict[str, dict[str, Options]] = {
    "mnist": {
        "default": {"components": None},
        "one component": {},
        "8,000 steps": {"recipe": Recipe(steps=8000)},
        "8 samples": {"recipe": Recipe(num_samples=8)},
        "MAP of 10,000 steps": {"recipe": Recipe(map_steps=10_000)},
        "MAP of 1,000 steps, 8,000 steps": {"recipe": Recipe(map_steps=1000, steps=8000)},
        "rates 1e-2": {"recipe": rates(1e-2)},
        "rates 1e-3": {"recipe": rates(1e-3)},
        "noise 0.1": {"noise": relative(0.1)},
        "noise 0.4": {"noise": relative(0.4)},
        "noise 0.05 for all": {"noise": livi.FixedNoise(0.05)},
        "N(0, 0.3^2)": {"prior": livi.Normal(0.3)},
        "N(0, 0.5^2)": {"prior": livi.Normal(0.5)},
        "N(0, 1)": {"prior": livi.Normal(1.0)},
        "d = 1,024": {"generator": latents(32)},
        "batches of 128": {"batch_size": 128},
        "batches of 512": {"batch_size": 512},
        "hyper 1e-2": {"recipe": Recipe(hyper_rate=1e-2)},
        "MAP at 3e-3": {"recipe": Recipe(map_rate=3e-3)},
        "rates 1e-3, N(0, 1)": {"recipe": rates(1e-3), "prior": livi.Normal(1.0)},
        "rates 1e-3, N(0, 0.5^2)": {"recipe": rates(1e-3), "prior": livi.Normal(0.5)},
        "2,000 steps, N(0, 0.5^2)": {"recipe": Recipe(steps=2000), "prior": livi.Normal(0.5)},
        "noise 0.3, N(0, 0.5^2)": {"noise": relative(0.3), "prior": livi.Normal(0.5)},
        "noise 0.3": {"noise": relative(0.3)},
        "noise 0.5": {"noise": relative(0.5)},
        "noise 0.5, N(0, 0.5^2)": {"noise": relative(0.5), "prior": livi.Normal(0.5)},
        "5, MAP 1,500, 3,500 steps of 1": mixture(5, 1500, 3500, 1),
        "5, MAP 2,500, 2,500 steps of 1": mixture(5, 2500, 2500, 1),
        "5, MAP 1,200, 950 steps of 4": mixture(5, 1200, 950, 4),
        "3, MAP 2,000, 3,200 steps of 2": mixture(3, 2000, 3200, 2),
        "3, MAP 2,000, 3,200 steps of 2, noise 0.5": mixture(3, 2000, 3200, 2, noise=relative(0.5)),
        "5, MAP 1,500, 3,500 steps of 1, noise 0.3": mixture(5, 1500, 3500, 1, noise=relative(0.3)),
        "5, MAP 1,500, 3,500 steps of 1, N(0, 0.5^2)": mixture(5, 1500, 3500, 1, prior=livi.Normal(0.5)),
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


# What might make a posterior less sure of OOD digits: the default before, and steps from it to the default.
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "mnist": {
        "unsure": (
            "one component",
            "N(0, 0.5^2)",
            "N(0, 1)",
            "rates 1e-3, N(0, 0.5^2)",
            "2,000 steps, N(0, 0.5^2)",
            "noise 0.3, N(0, 0.5^2)",
            "noise 0.3",
            "noise 0.5",
            "noise 0.5, N(0, 0.5^2)",
        ),
        # 25,000 gradients each, as an ensemble of five has, but for one component (21,000)
        "mixtures": (
            "one component",
            "default",
            "5, MAP 1,500, 3,500 steps of 1",
            "5, MAP 2,500, 2,500 steps of 1",
            "5, MAP 1,200, 950 steps of 4",
            "3, MAP 2,000, 3,200 steps of 2",
            "3, MAP 2,000, 3,200 steps of 2, noise 0.5",
            "5, MAP 1,500, 3,500 steps of 1, noise 0.3",
            "5, MAP 1,500, 3,500 steps of 1, N(0, 0.5^2)",
        ),
    },
    "cifar10": {},
}


def row(job: Job, *, device: str, epochs: int | None, samples: int, out: Path, quick: bool = False) -> Row:
    problem, choice, seed = job
    warnings.simplefilter("ignore")  # what a fit says of itself is not what is looked at here
    folder = data_folder()
    sets = load(PROBLEMS[problem], folder, part="validation", quick=quick, device=device)
    task = Task(sets, seed, out / problem, epochs=epochs, samples=samples, quick=quick)
    begun = time.perf_counter()
    try:
        fitted = fit_livi(task, choice, **ALONE | CHOICES[problem][choice])
    except FitError as error:
        return {"job": job, "error": str(error)}
    found = scores(fitted, sets)
    row = {"job": job, "error": None, "seconds": fitted.seconds, "bound": fitted.posteriors[0].history[-1]["bound"]}
    row |= {name: found[name] for name in ("accuracy", "nll", "ece", "brier", "others")}
    row |= {"strange": found["others_mean"]["confidence"], "apart": found["others_mean"]["auroc"]}
    return row | {"whole_seconds": time.perf_counter() - begun}


def lines(rows: Sequence[Row]) -> list[str]:
    """A table: means over the seeds."""
    head = "| choice | seeds | accuracy | NLL | ECE | synthetic OOD: confidence | AUROC | bound | s |"
    text = [head, "|---|---|---|---|---|---|---|---|---|"]
    for choice in dict.fromkeys(each["job"][1] for each in rows):
        own = [each for each in rows if each["job"][1] == choice and each["error"] is None]
        if not own:
            text.append(f"| {choice} | 0 | failed | | | | | | |")
            continue
        names = ("accuracy", "nll", "ece", "strange", "apart", "bound", "seconds")
        accuracy, nll, ece, odd, apart, bound, seconds = (mean(each[name] for each in own) for name in names)
        cells = [f"{accuracy:.2%}", f"{nll:.4f}", f"{ece:.2%}", f"{odd:.1%}", f"{apart:.2%}", f"{bound:,.0f}"]
        text.append(f"| {choice} | {len(own)} | {' | '.join(cells)} | {seconds:.0f} |")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choose_pictures", description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=list(CHOICES))
    parser.add_argument("--choices", help="some of them, with | between (default: all)")
    parser.add_argument("--group", help="a few that belong together: unsure or mixtures, of mnist")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="of networks that fits start from")
    parser.add_argument("--samples", type=int, default=50, help="networks that answer")
    parser.add_argument("--out", type=Path, default=Path("choices"), help="where trained networks are kept")
    parser.add_argument("--quick", action="store_true", help="a few images and steps; the numbers mean nothing")
    given = parser.parse_args()
    known, groups = CHOICES[given.problem], GROUPS[given.problem]
    if given.group is not None and given.group not in groups:
        parser.error(f"--group: expected one of {', '.join(groups) or 'none here'}, got {given.group!r}")
    names = given.choices.split("|") if given.choices else list(groups.get(given.group, known))
    for name in names:
        if name not in known:
            parser.error(f"--choices: expected some of {' | '.join(known)}, got {name!r}")
    jobs = [(given.problem, name, seed) for seed in map(int, given.seeds.split(",")) for name in names]
    fit = partial(
        row, device=given.device, epochs=given.epochs, samples=given.samples, out=given.out, quick=given.quick
    )
    rows = []
    for found in run_all(fit, jobs, given.jobs):
        rows.append(found)
        print(found, flush=True)
    print("\n".join(lines(sorted(rows, key=lambda each: jobs.index(tuple(each["job"]))))), flush=True)


if __name__ == "__main__":
    main()
