"""The mean gradient of the log-determinant over whole fits, as the default estimates it, against the exact one.

    python -m benchmarks.bench_gradient --out docs/benchmarks
    LIVI_DATA_DIR=... python -m benchmarks.bench_gradient --only lenet --seeds 0 --device cuda --out results
    python -m benchmarks.bench_gradient --tolerances 0.3,0.1,0.03,0.01 --seeds 0 --out solvers
    python -m benchmarks.bench_gradient --read docs/benchmarks/gradient.json

`livi.fit` without options, by networks of more than 5,000 weights, whose entropy is `Lanczos` by default, and whose
generators are small enough for the exact gradient: to handwritten digits of 8 x 8 pixels (Alpaydin and Kaynak, 1998,
which come with scikit-learn), and to MNIST on a GPU. A fit is looked at several times on its way, and the bias there is
found by `benchmarks/gradient_bias.py`. Solvers beside the default are tried on the same fits, which the default drives.
"""

from __future__ import annotations

import argparse
import importlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import livi
from benchmarks.gradient_bias import bias_of
from livi.cli.options import count, names, seeds
from livi.experiments.datasets import pictures
from livi.experiments.networks import lenet
from livi.experiments.processes import threads
from livi.experiments.rows import Row
from livi.experiments.runs import Job, all_jobs, empty_document, run_jobs
from livi.family.entropy import Lanczos
from livi.family.implicit import ImplicitPosterior
from livi.inference import Trainer, begin
from livi.inference.callbacks import Callback, Callbacks, Run

QUICK = ("--seeds", "0", "--only", "dense", "--steps", "60", "--moments", "3", "--probes", "4")
FULL = ("--out", "results")

FILE = "gradient.json"
LIMIT = 0.01  # of projection and norm, that the default must keep


def dense() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    first, second = ([nn.Conv2d(*pair, 3, 2, 1), nn.BatchNorm2d(pair[1]), nn.ReLU()] for pair in ((1, 16), (16, 32)))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(128, 10))


def digits() -> tuple[Tensor, Tensor]:  # (1,797, 1, 8, 8), (1,797,)
    found = importlib.import_module("sklearn.datasets").load_digits()
    return torch.tensor(found.images, dtype=torch.float32)[:, None] / 16.0, torch.tensor(found.target)


def mnist() -> tuple[Tensor, Tensor]:  # (60,000, 1, 28, 28), (60,000,)
    found = pictures.read(pictures.data_folder(), "mnist", "train")
    assert found.labels is not None
    return found.images.float() / 255.0, found.labels.long()


Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]
NETWORKS: dict[str, Case] = {"dense": (dense, digits), "convolutions": (convolutions, digits), "lenet": (lenet, mnist)}
SMALL = ("dense", "convolutions")


@dataclass(frozen=True)
class Config:
    """What to measure.

    Args:
        tolerances, most: solvers beside the default: CG's tolerances, and its most iterations; None for the default's.
        moments: how often a fit is looked at: at its start, its end, and in between.
        steps: of a fit; None for the default's.
    """

    only: tuple[str, ...] = SMALL
    seeds: tuple[int, ...] = (0, 1, 2)
    tolerances: tuple[float, ...] = ()
    most: int | None = None
    moments: int = 8
    probes: int = 16
    steps: int | None = None


class Watch(Callback):
    """Measures the bias of every solver at the moments that are asked for."""

    def __init__(
        self, posterior: ImplicitPosterior, solvers: Mapping[str, Lanczos], moments: Sequence[int], probes: int
    ) -> None:
        self.posterior, self.solvers, self.moments, self.probes = posterior, solvers, moments, probes
        self.rows: list[Row] = []

    def on_start(self, run: Run) -> None:
        self.on_step(run)

    def on_step(self, run: Run) -> None:
        if run.step in self.moments:
            for name, solver in self.solvers.items():
                found = bias_of(self.posterior, solver, probes=self.probes, seed=1000 * run.step)
                self.rows.append({"step": run.step, "solver": name} | asdict(found))


def watched(job: Job, *, config: Config, device: str = "cpu") -> Row:
    """One fit: a row, with the bias at every moment."""
    name, _, seed = job
    with warnings.catch_warnings(), threads(1):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        build, data = NETWORKS[name]
        examples = tuple(part.to(device) for part in data())
        net = build().to(device)
        plan = livi.plan(net, examples, livi.Categorical(), seed=seed, steps=config.steps, components=1)
        default, posterior = plan.bound.entropy, plan.bound.family
        assert isinstance(default, Lanczos)
        assert isinstance(posterior, ImplicitPosterior)
        solvers = {"default": default} | {
            f"{tolerance:g}": replace(
                default, tolerance=tolerance, max_iterations=config.most or default.max_iterations
            )
            for tolerance in config.tolerances
        }
        begin(plan, seed)
        steps = plan.recipe.steps
        moments = [round(steps * share / (config.moments - 1)) for share in range(config.moments)]
        watch = Watch(posterior, solvers, moments, config.probes)
        Trainer(plan.bound, plan.data, plan.recipe, seed=seed, callbacks=Callbacks([watch])).run()
    generator = posterior.generators[0]
    head = {"network": name, "seed": seed, "error": None, "weights": generator.num_params, "steps": steps}
    return head | {"latent_dim": generator.latent_dim, "entropy": repr(default), "moments": watch.rows}


def text(document: Mapping[str, Any]) -> str:
    """For each network, solver and moment, the means over seeds, and the worst of all."""
    lines = [
        "| network | weights, d | solver | step | projection | norm | iterations | missed | raw projection |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    worst: dict[str, float] = {}
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in document["rows"]:
        for moment in row["moments"]:
            groups.setdefault((row["network"], moment["solver"], moment["step"]), []).append(row | moment)
    for (network, solver, step), group in groups.items():
        off = max(abs(row[name] - 1.0) for row in group for name in ("projection", "norm"))
        worst[solver] = max(worst.get(solver, 0.0), off)
        mean = {name: sum(row[name] for row in group) / len(group) for name in group[0] if name in NUMBERS}
        lines.append(
            f"| {network} | {group[0]['weights']:,}, {group[0]['latent_dim']} | {solver} | {step:,} | "
            f"{mean['projection']:.4f} | {mean['norm']:.4f} | {mean['iterations']:.1f} | {mean['missed']:.0%} | "
            f"{mean['raw_projection']:.3f} ± {_error(group):.3f} |"
        )
    said = [f"- {solver}: at most {100 * off:.2f} % off, over all fits and steps." for solver, off in worst.items()]
    return "\n".join([*lines, "", *said])


NUMBERS = ("projection", "norm", "iterations", "missed", "raw_projection")


def _error(group: Sequence[Mapping[str, Any]]) -> float:
    return sum(row["raw_error"] ** 2 for row in group) ** 0.5 / len(group)


def worst_of(rows: Sequence[Row], solver: str = "default") -> float:
    """The largest error of projection or norm."""
    moments = [moment for row in rows for moment in row["moments"] if moment["solver"] == solver]
    return max(abs(moment[name] - 1.0) for moment in moments for name in ("projection", "norm"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_gradient", description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=names, default=SMALL, help=f"some of {', '.join(NETWORKS)}")
    parser.add_argument("--seeds", type=seeds, default=(0, 1, 2))
    parser.add_argument("--tolerances", type=lambda text: tuple(map(float, names(text))), default=())
    parser.add_argument("--most", type=count, help="iterations of these solvers")
    parser.add_argument("--moments", type=count, default=8)
    parser.add_argument("--probes", type=count, default=16)
    parser.add_argument("--steps", type=count)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=count, default=1, help="fits at a time, a process each")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--read", type=Path, help="show the table of a file, and run nothing")
    chosen = parser.parse_args()
    if chosen.read is not None:
        print(text(json.loads(chosen.read.read_text(encoding="utf-8"))))
        return
    solvers = (chosen.tolerances, chosen.most, chosen.moments, chosen.probes, chosen.steps)
    config = Config(chosen.only, chosen.seeds, *solvers)
    document = empty_document("gradient", config)
    document["config"] = {name: value for name, value in asdict(config).items() if name not in ("only", "seeds")}
    document = run_jobs(
        chosen.out / FILE,
        document,
        all_jobs(config.only, ["livi"], config.seeds),
        partial(watched, config=config, device=chosen.device),
        key=lambda row: (row["network"], "livi", row["seed"]),
        notes=[],
        jobs=chosen.jobs,
        summary=lambda _: [],
        line=lambda row: f"{row['network']}, seed {row['seed']}: {100 * worst_of([row]):.2f} % off at most",
        say=lambda text: print(text, flush=True),
    )
    print(text(document))


if __name__ == "__main__":
    main()
