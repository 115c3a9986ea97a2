"""The toy experiment over seeds: rows written as they come, and a table of their means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from livi import checks
from livi.experiments.columns import SECONDS
from livi.experiments.deadlines import Deadline
from livi.experiments.rows import Row, Rows, by_method, listed
from livi.experiments.runs import (
    Job,
    Say,
    all_jobs,
    check_different,
    check_names,
    empty_document,
    recorded_fit,
    run_jobs,
)
from livi.experiments.scoreboard import Column, Kind, table
from livi.experiments.toy import CHAINS, method_named, run
from livi.experiments.toy_data import NAMES, reference
from livi.inference import Recipe
from livi.rivals import METHODS as RIVALS

FILE = "toy.json"
KIND = Kind(
    "Toy regression (Figure 1), against NUTS",
    "data",
    "seed",
    {
        "": (
            Column("w2_to_nuts", "W2 to NUTS", "lower", 3),
            Column("elbo", "ELBO, nats", "higher", 1),
            Column("gap_std", "std in the gap", None, 2),
            SECONDS,
        )
    },
    {"": (Column("cpu_seconds", "CPU s", None, 1),)},
    listed="data",
)
QUICK = Recipe(steps=30, map_steps=50, map_restarts=2, num_samples=16)


@dataclass(frozen=True)
class Config:
    """The runs to do: every method on every data set under every seed.

    Args:
        quick: a few steps instead of a fit, to see that everything works; the numbers mean nothing.
    """

    data: tuple[str, ...] = ("A", "B")
    methods: tuple[str, ...] = ("livi",)
    seeds: int = 5
    first_seed: int = 100
    quick: bool = False

    def __post_init__(self) -> None:
        checks.positive_int("seeds", self.seeds)
        check_names("data", self.data, NAMES)
        for method in self.methods:
            method_named(method)
        check_different("methods", self.methods)

    def jobs(self) -> list[Job]:
        return all_jobs(self.data, self.methods, range(self.first_seed, self.first_seed + self.seeds))


def all_methods(components: int = 5) -> tuple[str, ...]:
    """All methods in the order of the paper's Figure 1, from points to mixtures, without NUTS, the reference."""
    checks.positive_int("components", components)
    points = ("map", f"ensemble-{components}")
    ours = ("livi-sampled", "livi", f"livi-mixture-{components}", "livi-polished", "livi-annealed")
    return (*points, *(name for name in RIVALS if name not in ("livi", "map", "ensemble", "nuts")), *ours)


def default_methods(components: int = 5) -> tuple[str, ...]:
    """All methods whose packages are installed."""
    return tuple(method for method in all_methods(components) if method not in RIVALS or RIVALS[method].installed)


def bench(
    config: Config, out: Path, *, jobs: int = 1, minutes: float | None = None, say: Say = print
) -> dict[str, Any]:
    """Run the fits that are not yet in out/toy.json, adding each one to it, and return its content.

    Args:
        jobs: number of fits at a time, each in a process of its own, with one thread.
        minutes: time after which to stop; the next run continues.

    Raises:
        ValueError: the file there belongs to another configuration.
    """
    return run_jobs(
        out / FILE,
        empty_document("toy", config) | {"quick_recipe": asdict(QUICK) if config.quick else None},
        config.jobs(),
        partial(_fit, config=config),
        key=KIND.key,
        notes=notes(config),
        jobs=jobs,
        summary=KIND.summary,
        line=KIND.line,
        say=say,
        deadline=Deadline.after(minutes),
    )


def _fit(job: Job, config: Config) -> Row:
    name, method, seed = job
    less: dict[str, Any] = {"recipe": QUICK, "num_draws": 100} if config.quick else {}
    row = {"data": name, "method": method, "seed": seed}
    return recorded_fit(row, (*KIND.quantities(), "curve"), partial(run, *job, drawn=seed == config.first_seed, **less))


def notes(config: Config) -> list[str]:
    left_out = [name for name in RIVALS if name == "nuts" or not RIVALS[name].installed]
    found = [f"Left out: {name}." for name in left_out if name not in config.methods]
    return [*found, *(f"{method} is Markov chain Monte Carlo." for method in config.methods if method in CHAINS)]


def text(document: Mapping[str, Any]) -> str:
    """The results as a Markdown table, and below it what NUTS has, and whether Markov chains agree."""
    rows = document["rows"]
    sentences = [*map(_reference, dict.fromkeys(row["data"] for row in rows)), *_agreement(rows)]
    return "\n\n".join([table(rows, KIND, KIND.shown()), listed(sentences), KIND.legend()])


def _reference(name: str) -> str:
    truth = reference(name)
    return (
        f"NUTS on {name}: W2 to itself {truth.w2_runs:.3f}, std in the gap {truth.gap_std:.2f}, "
        f"{sum(truth.measured['seconds']):.0f} s for two runs, R-hat at most {truth.rhat.max():.2f}, "
        f"effective draws at least {truth.ess.min():.0f}."
    )


def _agreement(rows: Rows) -> list[str]:
    """The largest R-hat and smallest effective sample size of predictions over all seeds, of methods with chains."""
    chained = by_method([row for row in rows if row.get("chains")], "data")
    return [
        f"{method} on {name}: R-hat at most {max(row['chains']['rhat'][1] for row in group):.2f}, "
        f"effective draws at least {min(row['chains']['effective'][1] for row in group):.0f}."
        for name, methods in chained.items()
        for method, group in methods.items()
    ]
