"""The toy experiment over seeds: rows written as they come, and a table of their means and standard deviations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from livi import checks
from livi.experiments.deadlines import Deadline
from livi.experiments.rows import Row, spread
from livi.experiments.runs import Job, empty_document, recorded_fit, run_jobs
from livi.experiments.toy import CHAINS, method_named, run
from livi.experiments.toy_data import check_name, reference
from livi.inference import Recipe
from livi.rivals import METHODS as RIVALS

FILE = "toy.json"
QUANTITIES = ("elbo", "w2_to_nuts", "gap_std", "seconds", "cpu_seconds")
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
        for name in self.data:
            check_name(name)
        for method in self.methods:
            method_named(method)

    def jobs(self) -> list[Job]:
        """(data, method, seed), ordered by seed, so that an interrupted run has every method equally often."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [(name, method, seed) for seed in seeds for name in self.data for method in self.methods]


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
    config: Config,
    folder: str | Path,
    say: Callable[[str], None] = print,
    *,
    jobs: int = 1,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Run the fits that are not yet in folder/toy.json, adding each one to it, and return its content.

    Args:
        jobs: number of fits at a time, each in a process of its own, with one thread.
        minutes: time after which to stop; the next run continues.

    Raises:
        ValueError: the file there belongs to another configuration.
    """
    left_out = [name for name in RIVALS if name == "nuts" or not RIVALS[name].installed]
    notes = [f"Left out: {name}." for name in left_out if name not in config.methods]
    notes += [f"{method} is Markov chain Monte Carlo." for method in config.methods if method in CHAINS]
    return run_jobs(
        Path(folder) / FILE,
        empty_document("toy", config) | {"quick_recipe": asdict(QUICK) if config.quick else None},
        config.jobs(),
        partial(_fit, config=config),
        key=_key,
        notes=notes,
        jobs=jobs,
        summary=summary,
        line=_line,
        say=say,
        deadline=Deadline.after(minutes),
    )


def _fit(job: Job, config: Config) -> Row:
    name, method, seed = job
    less: dict[str, Any] = {"recipe": QUICK, "num_draws": 100} if config.quick else {}
    row = {"data": name, "method": method, "seed": seed}
    return recorded_fit(row, (*QUANTITIES, "curve"), partial(run, *job, drawn=seed == config.first_seed, **less))


def summary(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """For each data set and method: number of seeds, and mean, sd, min and max over them of every quantity."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["method"]), []).append(row)
    return [
        {"data": data, "method": method, "seeds": sum(row.get("error") is None for row in group)}
        | {name: spread([row[name] for row in group if row.get(name) is not None]) for name in QUANTITIES}
        for (data, method), group in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The summary as markdown: mean ± sd over seeds, with the smallest and the largest in brackets."""
    lines = [
        "| data | method | seeds | ELBO (nats) | W2 to NUTS | std in the gap | s per fit | CPU s | R-hat, ESS |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    shown = []
    for group in summary(rows):
        if group["data"] not in shown:
            shown.append(group["data"])
            truth = reference(group["data"])
            lines.append(
                f"| {group['data']} | NUTS | | | {truth.w2_runs:.3f} (itself) | {truth.gap_std:.2f} | "
                f"{sum(truth.measured['seconds']):.0f} (two runs) | | {truth.rhat.max():.2f}, {truth.ess.min():.0f} |"
            )
        cells = [_cell(group[name], digits) for name, digits in zip(QUANTITIES, (1, 3, 2, 0, 0), strict=True)]
        cells.append(_agreement([row for row in rows if all(row[name] == group[name] for name in ("data", "method"))]))
        lines.append(f"| {group['data']} | {group['method']} | {group['seeds']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["data"], row["method"], row["seed"]


def _agreement(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest R-hat and smallest effective sample size of predictions over all seeds; empty without chains."""
    chains = [row["chains"] for row in rows if row.get("chains")]
    if not chains:
        return ""
    return f"{max(each['rhat'][1] for each in chains):.2f}, {min(each['effective'][1] for each in chains):.0f}"


def _cell(spread: Mapping[str, float | None] | None, digits: int) -> str:
    if spread is None:
        return "–"
    if spread["sd"] is None:
        return f"{spread['mean']:.{digits}f}"
    return (
        f"{spread['mean']:.{digits}f} ± {spread['sd']:.{digits}f} [{spread['min']:.{digits}f}, "
        f"{spread['max']:.{digits}f}]"
    )


def _line(row: Mapping[str, Any]) -> str:
    if row["error"] is not None:
        return f"{row['data']} {row['method']} seed {row['seed']}: {row['error']}"
    bound = "" if row["elbo"] is None else f"ELBO {row['elbo']:.1f}, "
    chains = row.get("chains")
    agreed = f", R-hat {chains['rhat'][1]:.2f}, {chains['effective'][1]:.0f} effective draws" if chains else ""
    return (
        f"{row['data']} {row['method']} seed {row['seed']}: {bound}W2 {row['w2_to_nuts']:.3f}, {row['seconds']:.0f} s"
        f"{agreed}"
    )
