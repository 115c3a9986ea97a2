"""A step of `livi.fit` against a plain training step of the same network, and against other ways to a posterior.

    python -m benchmarks.bench_step --device cuda --limit-minutes 9 --out results     # again, until all is done
    python -m benchmarks.bench_step --only LeNet,dense --ways plain,livi --samples 1
    python -m benchmarks.bench_step --read docs/benchmarks/step-cuda.json --out docs/benchmarks

LeNet, WRN-16-4, WRN-28-10, a ViT and a GPT (small ones on a CPU), then dense networks from 10^4 to 10^8 weights: the
seconds of a step and where they go, the memory of a step and of a whole fit, and what `livi.plan` had said of both.
Results go to step-DEVICE.json after every measurement, and from there into a table and two figures.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks import step_plot, step_tables
from benchmarks.step_cases import NETWORKS, cases
from benchmarks.step_measure import PEERS, WAYS, Bench, forget
from livi import checks
from livi.cli.options import count, names
from livi.experiments.deadlines import Deadline
from livi.experiments.rows import Row
from livi.experiments.runs import Job, check_names, empty_document, run_jobs

QUICK = ("--only", "LeNet", "--ways", "plain,livi", "--samples", "1")
FULL = ("--out", "results")

SAMPLES = (1, 2, 4)
BASIC = (("plain", 1), ("livi", 1))  # ways, and their samples a step, of every network; of dense ones no others


@dataclass(frozen=True)
class Config:
    """What to measure. TF32 is allowed on a GPU, for all ways alike."""

    device: str = "cpu"
    only: tuple[str, ...] = ()  # how names begin
    ways: tuple[str, ...] = tuple(WAYS)
    samples: tuple[int, ...] = SAMPLES
    tf32: bool = True

    def __post_init__(self) -> None:
        check_names("ways", self.ways, tuple(WAYS))
        if not self.chosen():
            raise ValueError(f"only: expected beginnings of {', '.join(cases(self.kind))}, got {','.join(self.only)}.")

    @property
    def kind(self) -> str:
        return torch.device(self.device).type

    def chosen(self) -> list[str]:
        return [name for name in cases(self.kind) if not self.only or name.startswith(self.only)]

    def jobs(self) -> list[Job]:
        """All networks by plain and livi's steps first, all that dense ones have; then more samples, other ways."""
        each = [(way, samples) for way in self.ways for samples in (self.samples if way == "livi" else (1,))]
        first, others = [one for one in each if one in BASIC], [one for one in each if one not in BASIC]
        named = [name for name in self.chosen() if name in NETWORKS[self.kind]]
        return [(name, *one) for name in self.chosen() for one in first] + [
            (name, *one) for one in others for name in named
        ]


def bench(config: Config, out: Path, minutes: float | None = None) -> tuple[Path, dict[str, Any]]:
    """Measure what is not yet in the file, and return it with its content."""
    path = out / f"step-{config.kind}.json"
    torch.backends.cuda.matmul.allow_tf32 = config.tf32
    document = empty_document("step", config)
    document["config"] = {"device": config.device, "tf32": config.tf32}  # others may be added to the same file
    missing = [name for name, package in PEERS.items() if find_spec(package) is None]
    notes = [f"Not installed there: {', '.join(missing)}."] if missing else []
    document = run_jobs(
        path,
        document,
        config.jobs(),
        partial(measured, device=checks.device(config.device)),
        key=lambda row: (row["network"], row["way"], row["samples"]),
        notes=notes,
        jobs=1,  # what runs beside a measurement is measured too
        summary=lambda _: [],
        line=line,
        say=lambda text: print(text, flush=True),
        deadline=Deadline.after(minutes),
    )
    return path, document


def measured(job: Job, *, device: torch.device) -> Row:
    """One way on one network, ready for JSON, with what prevented it."""
    name, way, samples = job
    row: Row = {"network": name, "way": way, "samples": samples, "error": None, "prevented": None}
    if way in PEERS and find_spec(PEERS[way]) is None:
        return row | {"prevented": "not installed"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random data: nothing is learned here
        try:
            row |= WAYS[way](Bench.of(cases(device.type)[name], device), samples)
        except Exception as trouble:  # the other ways are worth having
            row["prevented"] = f"{type(trouble).__name__}: {str(trouble).splitlines()[0][:200]}"
    forget(device)
    return row


def line(row: Row) -> str:
    head = f"{row['network']}, {row['way']}, S = {row['samples']}: "
    return head + (row["prevented"] or f"{1e3 * row['seconds']:.2f} ms")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_step", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", type=names, default=(), help="networks, by how their names begin; dense: all scales")
    parser.add_argument("--ways", type=names, default=tuple(WAYS), help="default: " + ",".join(WAYS))
    parser.add_argument("--samples", type=lambda text: tuple(map(count, names(text))), default=SAMPLES)
    parser.add_argument("--tf32", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--limit-minutes", type=float, help="stop after so long, ready to go on")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--read", type=Path, help="table and figures of a file; nothing is measured")
    chosen = parser.parse_args(arguments)
    if chosen.read is not None:
        path, document = chosen.read, json.loads(chosen.read.read_text(encoding="utf-8"))
    else:
        try:
            config = Config(chosen.device, chosen.only, chosen.ways, chosen.samples, chosen.tf32)
        except ValueError as error:
            parser.error(str(error))
        path, document = bench(config, chosen.out, chosen.limit_minutes)
    print(step_tables.text(document))
    if find_spec("matplotlib") is not None:
        for drawn in step_plot.draw(document, chosen.out / path.stem):
            print(f"drawn: {drawn}")


if __name__ == "__main__":
    main()
