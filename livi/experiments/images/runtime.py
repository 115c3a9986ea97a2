"""How long each method takes until the NLL of validation images no longer falls, and with how much memory.

The paper's table of training times, on MNIST. A method is given some gradients (of the log joint density, at one weight
vector, on one batch), then twice as many, and so on, each time from scratch, with its schedule stretched to that
length. It has arrived where twice as many lower the NLL of validation images by no more than a standard error, taken
image by image. Every fit is a process of its own, alone on the machine, so that its memory is no other's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from livi import checks
from livi.experiments.deadlines import Deadline, OutOfTime
from livi.experiments.images.methods import QUICK_SAMPLES, Task, check_method, default_methods, fit_method
from livi.experiments.images.problems import PROBLEMS, Sets, build, load
from livi.experiments.images.runtime_text import line, rung, summary, text
from livi.experiments.images.scores import Answers
from livi.experiments.machine import forget_peak_memory, peak_memory
from livi.experiments.processes import side_by_side
from livi.experiments.rows import Row, started
from livi.experiments.runs import Job, Say, empty_document, listening, run_jobs
from livi.posterior.storage import replace_file

__all__ = ["Config", "arrived", "bench", "measure", "notes", "result_path", "text"]

PROBLEM = "mnist"
DIGITS = 5  # of an image's log probability, in files


@dataclass(frozen=True)
class Config:
    """What to run.

    Args:
        gradients: of the first and shortest fit of each method.
        doublings: of that, at most.
        samples: networks that answer; None leaves that to the problem.
        quick: few methods, images and gradients, to see that everything works; the numbers mean nothing.
    """

    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (300,)
    gradients: int = 2500
    doublings: int = 4
    samples: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        if not self.methods:
            quick = ("map", "mean_field", "livi")
            object.__setattr__(self, "methods", quick if self.quick else default_methods(PROBLEMS[PROBLEM]))
        for name in self.methods:
            check_method(name, PROBLEMS[PROBLEM])
        for name in ("methods", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) != len(given):
                raise ValueError(f"{name}: expected different ones, got {','.join(map(str, given)) or 'none'}.")
        for name in ("gradients", "doublings"):
            checks.positive_int(name, getattr(self, name))

    def jobs(self) -> list[Job]:
        return [(PROBLEM, method, seed) for seed in self.seeds for method in self.methods]


def result_path(config: Config, out: Path) -> Path:
    return out / f"runtime{'-quick' * config.quick}.json"


def bench(
    config: Config, out: Path, folder: Path, *, device: str = "cpu", minutes: float | None = None, say: Say = print
) -> dict[str, Any]:
    """Run what is not yet in out/runtime.json, adding to it after every method; its content.

    What a method's fits gave lies in the folder `runtime` beside it, one file a method and seed, so that a stopped run
    loses one fit at most.

    Args:
        folder: where the images are.
        minutes: to stop after; the fit that is under way then is given up, and begun again by the next run.
    """
    path, deadline = result_path(config, out), Deadline.after(minutes)
    document, place = empty_document("runtime", config, ("methods", "seeds")), checks.device(device)
    document["config"]["device"] = place.type  # seconds and bytes of one are not those of another
    known = {"device": place.type, "versions": document["versions"]}
    here = partial(measure, config=config, folder=folder, device=str(place))
    row = partial(_row, config=config, folder=path.with_suffix(""), known=known, here=here, deadline=deadline, say=say)
    try:
        return run_jobs(
            path,
            document,
            config.jobs(),
            row,
            key=lambda row: (row["problem"], row["method"], row["seed"]),
            notes=notes(config),
            jobs=1,
            summary=summary,
            line=line,
            say=say,
        )
    except OutOfTime:
        say(f"{minutes:g} minutes are over; the same command goes on from here")
        return started(path, document) | {"notes": notes(config)}


def notes(config: Config) -> list[str]:
    """What a reader of the table has to know."""
    found = ["A few images and steps. The numbers mean nothing."] if config.quick else []
    return [
        *found,
        "NLL and accuracy are those of a tenth of the training images, which decided when to stop.",
        "Every fit ran in a process of its own, with nothing beside it.",
    ]


def arrived(lengths: Sequence[Row]) -> tuple[int | None, bool]:
    """Which of these fits, each twice as long as the one before, was long enough, and whether a longer one said so.

    One that failed is none; where a shorter one had not, it is no better.
    """
    best: int | None = None
    for place, one in enumerate(lengths):
        if best is None:
            best = place if one["error"] is None else None
        elif one["error"] is not None or not _clearly_better(one, lengths[best]):
            return best, True
        else:
            best = place
    return best, False


def _clearly_better(one: Row, other: Row) -> bool:
    gains = torch.tensor(one["log_prob"], dtype=torch.float64) - torch.tensor(other["log_prob"], dtype=torch.float64)
    return bool(gains.mean() > gains.std() / len(gains) ** 0.5)


def _row(job: Job, config: Config, folder: Path, known: Row, here: Any, deadline: Deadline, say: Say) -> Row:
    """One method under one seed: fits until it has arrived, those of earlier runs among them.

    Args:
        known: what fits of earlier runs must have in common with these, beside the configuration.
    """
    problem, method, seed = job
    path = folder / f"{method}-{seed}.json"
    facts = {"gradients": config.gradients, "quick": config.quick, "samples": config.samples} | known
    lengths = _earlier(path, facts)
    while not _last(lengths, config) and not arrived(lengths)[1]:
        gradients = 2 * lengths[-1]["gradients"] if lengths else config.gradients
        found = _in_a_process(partial(here, method, seed), gradients, deadline)
        if not found:
            raise OutOfTime
        lengths += found
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, [json.dumps({"facts": facts, "lengths": lengths}).encode()])
        say(f"{method} seed {seed}: {rung(found[0])}")
    best, settled = arrived(lengths)
    told = [{name: value for name, value in one.items() if name != "log_prob"} for one in lengths]
    row = {"problem": problem, "method": method, "seed": seed, "error": None, "warnings": []}
    if best is None:
        return row | {"error": lengths[-1]["error"], "lengths": told}
    return row | told[best] | {"settled": settled, "lengths": told, "whole_seconds": sum(_seconds(told))}


def _last(lengths: Sequence[Row], config: Config) -> bool:
    """Whether the longest fit that may be tried was."""
    return bool(lengths) and lengths[-1]["gradients"] >= config.gradients * 2**config.doublings


def _in_a_process(fit: Callable[[int], Row], gradients: int, deadline: Deadline) -> list[Row]:
    """The row of one fit; none where the time is up before it ends. A process that dies, for want of memory, failed."""
    try:
        return list(side_by_side(fit, [gradients], 1, deadline))
    except BrokenExecutor as trouble:
        return [{"gradients": gradients, "error": f"{type(trouble).__name__}: {trouble}"}]


def _seconds(lengths: Sequence[Row]) -> list[float]:
    return [one["seconds"] for one in lengths if one["error"] is None]


def _earlier(path: Path, facts: Row) -> list[Row]:
    """Fits of an earlier run; none where they were others."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    lengths: list[Row] = found["lengths"] if found["facts"] == facts else []
    return [one for one in lengths if one["error"] is None]


def measure(method: str, seed: int, gradients: int, *, config: Config, folder: Path, device: str) -> Row:
    """One fit with its seconds, memory and scores; for a process of its own. A failure is a row with its `error`."""
    sets = load(PROBLEMS[PROBLEM], folder, part="validation", quick=config.quick, device=device)
    sets = replace(sets, others={})  # not asked for, and they take memory
    samples = config.samples or (QUICK_SAMPLES if config.quick else sets.problem.samples)
    task = Task(sets, seed, folder, quick=config.quick, samples=samples, gradients=gradients)
    _warm_up(sets)
    before, begun = _begin(task.device), time.process_time()
    row: Row = {"gradients": gradients, "error": None}
    with listening() as caught:
        try:
            fitted = fit_method(method, task)
        except Exception as trouble:  # longer fits may do
            return row | {"error": f"{type(trouble).__name__}: {trouble}"}
    memory = _most(task.device)
    row |= {"seconds": fitted.seconds, "cpu_seconds": time.process_time() - begun, "memory": memory}
    row |= {"memory_of_fit": None if memory is None or before is None else memory - before}
    answers = Answers.of(fitted, sets.scored.inputs)
    logs = [round(value, DIGITS) for value in answers.log_prob(sets.scored.labels).tolist()]
    said = list(dict.fromkeys(str(warning.message) for warning in caught))
    scores = {name: answers.scores(sets.scored.labels)[name] for name in ("nll", "accuracy")}
    return row | scores | {"log_prob": logs, "warnings": said}


def _warm_up(sets: Sets) -> None:
    """What the first use of a device takes is nobody's."""
    net = build(sets.problem, 0).to(sets.train.inputs.device)
    F.cross_entropy(net(sets.train.inputs[:64]), sets.train.labels[:64]).backward()
    if sets.train.inputs.is_cuda:
        torch.cuda.synchronize()


def _begin(device: torch.device) -> float | None:
    """MB in use; the most is counted anew from here on."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        forget_peak_memory()
    return _most(device)


def _most(device: torch.device) -> float | None:
    """MB at the most: of tensors on a GPU, else of the whole process."""
    return torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else peak_memory()
