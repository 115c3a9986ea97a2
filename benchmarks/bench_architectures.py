"""Every architecture by `livi.fit` without options, on real data, compared with the network that it started from.

    LIVI_DATA_DIR=... python -m benchmarks.bench_architectures --device cuda --jobs 4 --out docs/benchmarks
    python -m benchmarks.bench_architectures --read docs/benchmarks/architectures.json
    python -m benchmarks.bench_architectures --only decoder --choosing --components 1 --seeds 10,11 --device cuda

A fit starts at a MAP estimate, which is scored as a network of its own; seeds choose the first weights, the random
draws of the fit, and which training examples it sees. Scores are of test pictures, or of Python modules that were held
out, then for one character; with --choosing of other training examples, in a file of their own. The file is added to
after every fit, and the same command goes on with it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

import livi
from benchmarks.architecture_cases import CASES, Case
from livi.cli.options import count, names, seeds
from livi.experiments.deadlines import Deadline
from livi.experiments.rows import Row, spread
from livi.experiments.runs import Job, all_jobs, check_names, empty_document, recorded_fit, run_jobs
from livi.experiments.spreading import first_rank
from livi.inference.rules import Size, default_recipe
from livi.posterior.metrics import accuracy, ece, nll
from livi.rivals import fit_map

QUICK = ("--quick", "--seeds", "0")
FULL = ("--out", "results")

FILE, CHOICES = "architectures.json", "architectures-choosing.json"
DRAWS = 30  # networks that answer
QUICK_STEPS = 60
SCORES = ("nll", "ece", "accuracy")


@dataclass(frozen=True)
class Config:
    """What to run. A fit of `quick` is a small network's, of a few examples and steps: its numbers mean little.

    Args:
        choosing: score training examples that were not seen.
        components: of the posterior, in place of livi's own number.
    """

    architectures: tuple[str, ...] = tuple(CASES)
    seeds: tuple[int, ...] = (0, 1, 2)
    quick: bool = False
    choosing: bool = False
    components: int | None = None

    def __post_init__(self) -> None:
        check_names("architectures", self.architectures, tuple(CASES))

    def jobs(self) -> list[Job]:
        """Seed by seed; architectures whose data are not there are left out."""
        there = [name for name in self.architectures if CASES[name].available()]
        return all_jobs(there, [_way(self.components)], self.seeds)


def bench(
    config: Config, out: Path, *, device: str = "cpu", jobs: int = 1, minutes: float | None = None
) -> dict[str, Any]:
    """Run what is not yet in out/architectures.json, and return its content."""
    document = empty_document("architectures", config)
    document["config"] = {"quick": config.quick, "device": device}  # others may be added to the same file
    missing = [CASES[name].title for name in config.architectures if not CASES[name].available()]
    notes = [f"Left out, for their pictures are not in LIVI_DATA_DIR: {', '.join(missing)}."] if missing else []
    return run_jobs(
        out / (CHOICES if config.choosing else FILE),
        document,
        config.jobs(),
        partial(fit_row, config=config, device=device),
        key=lambda row: (row["architecture"], _way(row.get("asked")), row["seed"]),
        notes=notes,
        jobs=jobs,
        summary=summary,
        line=line,
        say=lambda text: print(text, flush=True) if first_rank() else None,
        deadline=Deadline.after(minutes),
        stops_itself=True,  # fits that have begun are finished
    )


def _way(components: int | None) -> str:
    return "livi" if components is None else f"livi, {components}"


def fit_row(job: Job, *, config: Config, device: str) -> Row:
    """The MAP estimate and the fit from it, both scored; ready for JSON."""
    name, _, seed = job
    row: Row = {"architecture": name, "seed": seed, "asked": config.components}
    return recorded_fit(row, (), partial(_both, CASES[name], seed, config, device), 1 if device == "cpu" else None)


def _both(case: Case, seed: int, config: Config, device: str) -> Row:
    steps = QUICK_STEPS if config.quick else None
    options = {"seed": seed, "steps": steps, "components": config.components}
    examples = case.examples(seed, config.quick, config.choosing).to(device)
    net = case.build(seed, quick=config.quick).to(device)
    plan = livi.plan(net, examples.train, livi.Categorical(), **options)
    alone = default_recipe(Size.of(plan.problem))  # a mixture's MAP fits are shorter than a network's own
    row: Row = {
        "weights": sum(p.numel() for p in net.parameters()),
        "examples": len(examples.train[1]),
        "steps": plan.recipe.steps,
        "components": plan.bound.family.num_components,
        "strategy": repr(plan.problem.strategy),
        "map_steps": (alone if steps is None else alone.lasting(steps)).map_steps,
    }
    del plan
    fits = {
        "start": partial(fit_map, steps=row["map_steps"], seed=seed),
        "livi": partial(livi.fit, progress=False, **options),
    }
    for way, fit in fits.items():
        begun = time.perf_counter()
        posterior = fit(net, examples.train, livi.Categorical())
        seconds = time.perf_counter() - begun
        row[way] = scores(posterior, *examples.scored) | {"seconds": seconds}
    return row


def scores(posterior: livi.Posterior, inputs: Tensor, targets: Tensor) -> Row:
    """Of one label each: of a text, that is one character."""
    prediction = posterior.predict(inputs, num_samples=DRAWS)
    labels = targets[0].numel()
    return {
        "nll": nll(prediction, targets) / labels,
        "ece": ece(prediction, targets),
        "accuracy": accuracy(prediction, targets),
    }


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each architecture mean and spread over seeds, before and after, and how often it became better."""
    found = []
    sound = [row for row in rows if row["error"] is None]
    ways = dict.fromkeys((name, row.get("asked")) for name in CASES for row in sound if row["architecture"] == name)
    for name, asked in ways:
        group = [row for row in sound if (row["architecture"], row.get("asked")) == (name, asked)]
        of_both = {
            way: {score: spread([row[way][score] for row in group]) for score in (*SCORES, "seconds")}
            for way in ("start", "livi")
        }
        better = {score: sum(row["livi"][score] < row["start"][score] for row in group) for score in ("nll", "ece")}
        head = {"architecture": name, "asked": asked, "seeds": len(group), "better": better}
        found.append(head | {name: group[0][name] for name in ("weights", "examples", "steps")} | of_both)
    return found


def line(row: Row) -> str:
    head = f"{_title(row)}, seed {row['seed']}: "
    if row["error"] is not None:
        return head + row["error"]
    both = [f"NLL {row[way]['nll']:.3f}, ECE {row[way]['ece']:.1%}" for way in ("start", "livi")]
    return f"{head}{' -> '.join(both)}, {row['livi']['seconds']:.0f} s"


def text(document: Mapping[str, Any]) -> str:
    """The table in Markdown: MAP start -> livi, means over seeds with standard errors."""
    lines = [
        "| architecture | weights | examples | steps | seeds | NLL | ECE, % | accuracy, % | better in NLL, ECE | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for group in document["summary"]:
        cells = [
            " → ".join(_cell(group[way][score], group["seeds"], digits, scale) for way in ("start", "livi"))
            for score, digits, scale in (("nll", 3, 1.0), ("ece", 1, 100.0), ("accuracy", 1, 100.0))
        ]
        better = f"{group['better']['nll']}, {group['better']['ece']} of {group['seeds']}"
        lines.append(
            f"| {_title(group)} | {group['weights']:,} | {group['examples']:,} | {group['steps']:,} | "
            f"{group['seeds']} | {' | '.join(cells)} | {better} | {group['livi']['seconds']['mean']:.0f} |"
        )
    failed = [line(row) for row in document["rows"] if row["error"] is not None]
    return "\n".join([*lines, *([""] if failed else []), *failed, *document.get("notes", [])])


def _title(row: Row) -> str:
    """With the number of components where it is not livi's own."""
    asked = row.get("asked")
    return CASES[row["architecture"]].title + ("" if asked is None else f", components={asked}")


def _cell(values: Mapping[str, float | None], seeds: int, digits: int, scale: float) -> str:
    sd = values["sd"]
    mean = f"{scale * float(values['mean'] or 0.0):.{digits}f}"
    return mean if sd is None else f"{mean} ± {scale * sd / math.sqrt(seeds):.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_architectures", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", type=names, default=tuple(CASES), help="default: " + ",".join(CASES))
    parser.add_argument("--seeds", type=seeds, default=(0, 1, 2))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=count, default=1, help="fits at a time, a process each")
    parser.add_argument("--limit-minutes", type=float, help="stop after so long, ready to go on")
    parser.add_argument("--choosing", action="store_true", help="score training examples that were not seen")
    parser.add_argument("--components", type=count, help="default: livi's own")
    parser.add_argument("--quick", action="store_true", help="small networks, few examples and steps")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--read", type=Path, help="show the table of a file, and run nothing")
    chosen = parser.parse_args()
    if chosen.read is not None:
        print(text(json.loads(chosen.read.read_text(encoding="utf-8"))))
        return
    config = Config(chosen.only, chosen.seeds, chosen.quick, chosen.choosing, chosen.components)
    running = {"device": chosen.device, "jobs": chosen.jobs, "minutes": chosen.limit_minutes}
    document = bench(config, chosen.out, **running)
    if first_rank():
        print(text(document))


if __name__ == "__main__":
    main()
