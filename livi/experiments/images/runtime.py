"""Seconds and memory of each method until longer fits no longer lower the NLL of validation images.

The paper's table of training times, on MNIST. A method is given a number of gradients (of the log joint density, at one
weight vector, on one batch), then twice as many, and so on, each time from scratch, with its schedule stretched to that
length. A fit was long enough if one of twice its length lowers the NLL of validation images by no more than a standard
error of the difference, taken image by image. Every fit runs alone, in a process of its own, so that its memory can be
measured.
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
from livi.experiments.images.runtime_text import KIND, fit_line, line, text
from livi.experiments.images.scores import Answers
from livi.experiments.machine import forget_peak_memory, peak_memory
from livi.experiments.processes import side_by_side
from livi.experiments.rows import Row
from livi.experiments.runs import (
    Job,
    Say,
    all_jobs,
    check_different,
    check_seeds,
    empty_document,
    recorded_fit,
    run_jobs,
)
from livi.posterior.storage import replace_file

__all__ = ["Config", "bench", "long_enough", "measure", "notes", "result_path", "text"]

PROBLEM = "mnist"
DIGITS = 5  # decimals of an image's log probability, in files


@dataclass(frozen=True)
class Config:
    """The runs to do: every method under every seed.

    Args:
        gradients: number for the first and shortest fit of each method.
        doublings: how many times it is doubled at most.
        samples: number of networks in a prediction; by default that of the problem.
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
        check_different("methods", self.methods)
        check_seeds(self.seeds)
        for name in ("gradients", "doublings"):
            checks.positive_int(name, getattr(self, name))

    def jobs(self) -> list[Job]:
        return all_jobs([PROBLEM], self.methods, self.seeds)


def result_path(config: Config, out: Path) -> Path:
    return out / f"runtime{'-quick' * config.quick}.json"


def bench(
    config: Config, out: Path, folder: Path, *, device: str = "cpu", minutes: float | None = None, say: Say = print
) -> dict[str, Any]:
    """Run the methods that are not yet in out/runtime.json, adding each one to it, and return its content.

    The single fits are kept in the folder `runtime` next to it, in a file for each method and seed, so that a stopped
    run loses at most one of them.

    Args:
        folder: where the images are.
        minutes: time after which to stop; the fit that is running then is terminated, and the next run repeats it.
    """
    path, deadline = result_path(config, out), Deadline.after(minutes)
    document, used = empty_document("runtime", config, ("methods", "seeds")), checks.device(device)
    document["config"]["device"] = used.type  # seconds and memory depend on it
    row = partial(
        _row,
        config=config,
        folder=path.with_suffix(""),
        shared={"device": used.type, "versions": document["versions"]},
        fit=partial(measure, config=config, folder=folder, device=str(used)),
        deadline=deadline,
        say=say,
    )
    return run_jobs(
        path,
        document,
        config.jobs(),
        row,
        key=KIND.key,
        notes=notes(config),
        jobs=1,
        summary=KIND.summary,
        line=line,
        say=say,
        deadline=deadline,
        stops_itself=True,
    )


def notes(config: Config) -> list[str]:
    """Notes below the table."""
    found = ["A few images and steps. The numbers mean nothing."] if config.quick else []
    return [
        *found,
        "NLL and accuracy are those of a tenth of the training images, which decided when to stop.",
        "Every fit ran in a process of its own, with nothing beside it.",
    ]


def long_enough(fits: Sequence[Row]) -> tuple[int | None, bool]:
    """The index of the fit that was long enough, each being twice as long as the one before, and whether that is sure.

    It is sure if the next longer fit was no clearly better, or failed. Without one, the longest fit is returned.
    """
    best: int | None = None
    for index, fit in enumerate(fits):
        if best is None:
            best = index if fit["error"] is None else None
        elif fit["error"] is not None or not _clearly_better(fit, fits[best]):
            return best, True
        else:
            best = index
    return best, False


def _clearly_better(longer: Row, shorter: Row) -> bool:
    gains = torch.tensor(longer["log_prob"], dtype=torch.float64)
    gains -= torch.tensor(shorter["log_prob"], dtype=torch.float64)
    return bool(gains.mean() > gains.std() / len(gains) ** 0.5)


def _row(
    job: Job, config: Config, folder: Path, shared: Row, fit: Callable[..., Row], deadline: Deadline, say: Say
) -> Row:
    """The row of one method under one seed: fits until one was long enough, after those of earlier runs.

    Args:
        shared: what fits of earlier runs must have in common with these, besides the configuration.
    """
    problem, method, seed = job
    path = folder / f"{method}-{seed}.json"
    facts = {"gradients": config.gradients, "quick": config.quick, "samples": config.samples} | shared
    fits = _earlier(path, facts)
    while not _longest_done(fits, config) and not long_enough(fits)[1]:
        gradients = 2 * fits[-1]["gradients"] if fits else config.gradients
        found = _in_a_process(partial(fit, method, seed), gradients, deadline)
        if not found:
            raise OutOfTime
        fits += found
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, [json.dumps({"facts": facts, "lengths": fits}).encode()])
        say(f"{method} seed {seed}: {fit_line(found[0])}")
    best, settled = long_enough(fits)
    kept = [{name: value for name, value in each.items() if name != "log_prob"} for each in fits]
    row = {"problem": problem, "method": method, "seed": seed, "error": None, "warnings": []}
    if best is None:
        return row | {"error": fits[-1]["error"], "lengths": kept}
    whole_seconds = sum(each["seconds"] for each in kept if each["error"] is None)
    return row | kept[best] | {"settled": settled, "lengths": kept, "whole_seconds": whole_seconds}


def _longest_done(fits: Sequence[Row], config: Config) -> bool:
    """Whether the longest fit allowed is done."""
    return bool(fits) and fits[-1]["gradients"] >= config.gradients * 2**config.doublings


def _in_a_process(fit: Callable[[int], Row], gradients: int, deadline: Deadline) -> list[Row]:
    """The row of one fit, none if the deadline passes first. A process that dies, as out of memory, has failed."""
    try:
        return list(side_by_side(fit, [gradients], 1, deadline))
    except BrokenExecutor as failure:
        return [{"gradients": gradients, "error": f"{type(failure).__name__}: {failure}"}]


def _earlier(path: Path, facts: Row) -> list[Row]:
    """The fits of an earlier run with the same facts that did not fail."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    fits: list[Row] = found["lengths"] if found["facts"] == facts else []
    return [fit for fit in fits if fit["error"] is None]


def measure(method: str, seed: int, gradients: int, *, config: Config, folder: Path, device: str) -> Row:
    """One fit with its seconds, memory and scores; for a process of its own. A failure is a row with its `error`."""
    sets = load(PROBLEMS[PROBLEM], folder, part="validation", quick=config.quick, device=device)
    sets = replace(sets, others={})  # not needed, and they take memory
    samples = config.samples or (QUICK_SAMPLES if config.quick else sets.problem.samples)
    task = Task(sets, seed, folder, quick=config.quick, samples=samples, gradients=gradients)
    _warm_up(sets)
    before = _reset_memory(task.device)

    def fit() -> Row:
        begun = time.process_time()
        fitted = fit_method(method, task)
        cpu_seconds, memory = time.process_time() - begun, _peak(task.device)
        answers = Answers.of(fitted, sets.scored.inputs)
        scores = {name: answers.scores(sets.scored.labels)[name] for name in ("nll", "accuracy")}
        return scores | {
            "seconds": fitted.seconds,
            "cpu_seconds": cpu_seconds,
            "memory": memory,
            "memory_of_fit": None if memory is None or before is None else memory - before,
            "log_prob": [round(value, DIGITS) for value in answers.log_prob(sets.scored.labels).tolist()],
        }

    return recorded_fit({"gradients": gradients}, (), fit, num_threads=None)


def _warm_up(sets: Sets) -> None:
    """Use the device once, so that no fit's seconds and memory include what its first use takes."""
    net = build(sets.problem, 0).to(sets.train.inputs.device)
    F.cross_entropy(net(sets.train.inputs[:64]), sets.train.labels[:64]).backward()
    if sets.train.inputs.is_cuda:
        torch.cuda.synchronize()


def _reset_memory(device: torch.device) -> float | None:
    """Reset the peak of the memory, and return it in MB: the memory in use before a fit."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        forget_peak_memory()
    return _peak(device)


def _peak(device: torch.device) -> float | None:
    """Peak memory in MB: of tensors on a GPU, else of the whole process."""
    return torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else peak_memory()
