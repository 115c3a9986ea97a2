"""Every line of a table of docs/benchmarks/ whose rows are kept has the numbers of these rows.

The numbers are what a command prints of a file, or are computed from its rows here. A page may leave out lines and
columns, and name the others in its own words.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from benchmarks import (
    bench_architectures,
    bench_components,
    bench_gradient,
    bench_head,
    bench_polish,
    bench_toy_starts,
    bench_truth,
    entropy_tables,
    uci_tables,
)
from livi.experiments import density_bench, entropy_bench, plain_bench, public_bench, table_bench
from livi.experiments.datasets import uci

ROOT = Path(__file__).parents[1]
DOCS = "docs/benchmarks"
UCI = [ROOT / "results" / "uci"]
IMAGES = [f"{DOCS}/cifar10-{name}.json" for name in ("before", "pools", "same-starts", "temperature")]
IMAGES += [f"results/{name}/{name}.json" for name in ("mnist", "fashion-mnist", "cifar10", "cifar100")]
IMAGES.append("results/mnist/mnist-ensemble-10.json")
CIFAR_OOD = ("svhn", "tiny-imagenet")  # of which all methods have all seeds
SMALL, LARGE = ("boston", "concrete", "energy", "wine-red", "yacht"), ("kin8nm", "naval", "power", "protein")
TABLES = ("diabetes", "boston", "concrete", "energy", "yacht", "wine-red", "kin8nm", "power", "naval", "protein")
TIMED = ("boston", "concrete", "energy", "yacht", "diabetes", "wine-red", "kin8nm", "power", "naval", "protein")
TOY = (
    ("elbo", 1),
    ("w2_to_nuts", 3),
    ("gap_std", 2),
    ("seconds", 0),
    ("seconds", 1),
    ("cpu_seconds", 0),
    ("cpu_seconds", 1),
)

Rows = list[dict[str, Any]]


def kept(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def rows(*patterns: str) -> Rows:
    documents = [kept(str(path)) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [row for document in documents for row in document["rows"] if row.get("error") is None]


def values(found: Rows, score: str, data: str, method: str) -> list[float]:
    some = [row for row in found if (row["data"], row["method"]) == (data, method)]
    return [row[score] for row in sorted(some, key=lambda row: row.get("split", 0)) if row.get(score) is not None]


def log_scores(found: Rows, data: str, method: str) -> list[float]:
    """By cell where targets are steps."""
    return values(found, "cell_score" if data in ("wine-red", "naval") else "log_score", data, method)


def line(cells: Iterable[str]) -> str:
    return f"| | {' | '.join(cells)} |"


def with_error(numbers: list[float], digits: int) -> str:
    if len(numbers) < 2:
        return "".join(f"{number:.{digits}f}" for number in numbers)
    return f"{fmean(numbers):.{digits}f} ± {stdev(numbers) / len(numbers) ** 0.5:.{digits}f}"


def rmse(number: float) -> str:
    return f"{number:.3g}" if number > 1e-3 else f"{number:.6f}"


def of_tables() -> Iterator[str]:
    found = rows("results/tables/*.json")
    for method in dict.fromkeys(row["method"] for row in found):
        scores = [log_scores(found, data, method) for data in TABLES]
        yield line(f"{fmean(some):.3f}" if some else "" for some in scores)
        errors = [values(found, "rmse", data, method) for data in TABLES]
        errors[TABLES.index("naval")] = [1e6 * number for number in errors[TABLES.index("naval")]]
        yield line(f"{float(f'{fmean(some):.3g}'):,g}" if some else "" for some in errors)
        shares = [values(found, "coverage", data, method) for data in TABLES]
        yield line(f"{100 * fmean(some):.0f}" if some else "" for some in shares)


def of_livi_and_bde() -> Iterator[str]:
    found, timed = rows("results/tables/*.json"), rows("docs/benchmarks/tables-times.json")
    for data in TABLES:
        ours, theirs = (log_scores(found, data, method) for method in ("livi", "bde"))
        lead = with_error([mine - other for mine, other in zip(ours, theirs, strict=True)], 3)
        errors = [rmse(fmean(values(found, "rmse", data, method))) for method in ("livi", "bde")]
        shares = [f"{100 * fmean(values(found, 'coverage', data, method)):.0f} %" for method in ("livi", "bde")]
        sign = "" if lead.startswith("-") else "+"
        yield line([f"{fmean(ours):.3f}", f"{fmean(theirs):.3f}", f"{sign}{lead}", *errors, *shares])
    for method in ("livi", "bde"):
        yield line(f"{fmean(values(timed, 'seconds', data, method)):.0f}" for data in TIMED)


def of_toys() -> Iterator[str]:
    """Every quantity as a mean, with its standard error, and with its range too."""
    for files in (
        "results/toy/*.json",
        "docs/benchmarks/toy-sampled.json",
        "results/toy-chains/*",
        "results/toy-rivals/*",
    ):
        found = rows(files)
        for data, method in dict.fromkeys((row["data"], row["method"]) for row in found):
            own = [row for row in found if (row["data"], row["method"]) == (data, method)]
            cells = [str(len(own))]
            for score, digits in TOY:
                numbers = values(own, score, data, method)
                if numbers:
                    spread = f" [{min(numbers):.{digits}f}, {max(numbers):.{digits}f}]" if len(numbers) > 1 else ""
                    cells += [f"{fmean(numbers):.{digits}f}", with_error(numbers, digits)]
                    cells += [with_error(numbers, digits) + spread]
            chains = [row["chains"] for row in own if row.get("chains")]
            if chains:
                rhat, effective = max(each["rhat"][1] for each in chains), min(each["effective"][1] for each in chains)
                cells.append(f"{rhat:.2f}, {effective:.0f}")
            yield line(cells)


def of_images() -> Iterator[str]:
    """With as many digits as any table has, with and without errors, and over the OOD sets of one or of all."""
    for file in IMAGES:
        found = [row for row in kept(file)["rows"] if row["error"] is None]
        everything = found[0]["others"]
        subsets = [names for names in (everything, CIFAR_OOD) if set(names) <= set(everything)]
        for method, chosen in product(dict.fromkeys(row["method"] for row in found), subsets):
            own = [row for row in found if row["method"] == method]
            cells = ["60", "300"]  # epochs, which are not in the rows
            for score, scale, forms in (
                ("accuracy", 100.0, "2"),
                ("nll", 1.0, "43"),
                ("ece", 100.0, "21"),
                ("brier", 1.0, "43"),
            ):
                cells += forms_of([scale * row[score] for row in own], forms)
            for score, forms in (("confidence", "1"), ("auroc", "21"), ("fpr95", "1")):
                there = [[row["others"][name][score] for name in chosen if name in row["others"]] for row in own]
                cells += forms_of([100.0 * fmean(some) for some in there if some], forms)
            cells += ["5,000", "21,000", "25,000", "50,000"]  # gradients, likewise
            worse = [[shift["nll"][level] for row in own for shift in row["shifts"].values()] for level in (1, 5)]
            cells += [f"{fmean(worse[0]):.3f}, {fmean(worse[1]):.2f}"] if all(worse) else []
            timed = [
                (row["start_seconds"] or 0.0, row["seconds"], row["memory"])
                for row in own
                if row["seconds"] is not None
            ]
            if timed:
                start, seconds, memory = map(fmean, zip(*timed, strict=True))
                cells += [f"{seconds:.0f}", f"{start:.0f} + {seconds:.0f}", f"{memory:.1f}"]
            yield line(cells)


def forms_of(numbers: list[float], digits: str) -> list[str]:
    return [form for each in map(int, digits) for form in (f"{fmean(numbers):.{each}f}", with_error(numbers, each))]


def of_uci() -> Iterator[str]:
    everything = uci_tables.scores(UCI)
    yield from uci_tables.means_table(everything, uci.NAMES).splitlines()
    yield from uci_tables.differences_table(everything, uci.NAMES).splitlines()
    yield from uci_tables.means_table(uci_tables.scores(UCI, range(5)), SMALL).splitlines()
    yield from uci_tables.means_table(uci_tables.scores(UCI, [0]), LARGE).splitlines()


def printed(text: Callable[[Any], str], *paths: str) -> Callable[[], Iterator[str]]:
    return lambda: (line for path in paths for line in text(kept(path)).splitlines())


# A page, what the heads of the tables that are checked begin with, and the lines that they are of.
QUOTED: list[tuple[str, str, Callable[[], Iterator[str]]]] = [
    (
        "architectures",
        r"architecture \| weights \| examples",
        printed(bench_architectures.text, f"{DOCS}/architectures.json", f"{DOCS}/architectures-lstm.json"),
    ),
    ("cifar10", r"\| accuracy, % \| NLL \| ECE", of_images),
    ("classes", r"data \| method", printed(table_bench.text, "results/classes/tables.json")),
    ("densities", "target", printed(density_bench.text, "results/densities/densities.json")),
    (
        "entropy",
        "noise",
        printed(
            lambda document: entropy_tables.render(document["rows"]),
            f"{DOCS}/entropy-cpu.json",
            f"{DOCS}/entropy-cuda.json",
        ),
    ),
    ("entropy", "network", printed(bench_gradient.text, f"{DOCS}/gradient.json")),
    ("head", r"problem \| method", printed(bench_head.table, f"{DOCS}/head.json")),
    ("images", r"\| (epochs \| )?accuracy, % \| NLL \| ECE", of_images),
    ("plain", r"problem \| method", printed(plain_bench.text, "results/plain/plain.json")),
    ("polish", r"\| waves", printed(bench_polish.table, f"{DOCS}/polish.json")),
    ("polish", "[AB]: W2", printed(bench_toy_starts.table, f"{DOCS}/toy-starts.json")),
    ("public", "data", printed(public_bench.text, "results/public/public.json")),
    ("reweight", "problem", printed(bench_components.table, f"{DOCS}/components.json")),
    ("small-tables", "log score / RMSE", printed(bench_truth.table, f"{DOCS}/truth.json")),
    ("small-tables", r"\| (log score: livi|boston \| concrete)", of_livi_and_bde),
    ("tables", r"\| diabetes", of_tables),
    ("toy", "data", of_toys),
    ("uci", r"(\| boston|livi, then chains, minus|\| kin8nm)", of_uci),
    ("vae-entropy", "data", printed(entropy_bench.text, f"{DOCS}/vae-entropy.json")),
]


def numbers(row: str) -> list[str]:
    """The cells that hold numbers alone, without bold print, zeros in front of the point, and how many repeats."""
    cells = [re.sub(r"\*\*| \(\d+\)$", "", cell.strip()) for cell in row.split("|")[1:-1]]
    cells = [re.sub(r"(?<![\d.,])0\.", ".", cell) for cell in cells]
    return [cell for cell in cells if re.fullmatch(r"[-+\d.,±→/%()\[\] ]+", cell)]


def tables(page: str, head: str) -> list[str]:
    """The rows of the tables of a page whose head begins so."""
    text = (ROOT / DOCS / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [row for block in blocks if re.match(rf"\| {head}", block) for row in block.splitlines()[2:]]


@pytest.mark.parametrize(("page", "head", "expected"), QUOTED, ids=[f"{page}: {head}" for page, head, _ in QUOTED])
def test_tables_have_the_numbers_of_the_rows_that_are_kept(page: str, head: str, expected: Callable[[], Any]) -> None:
    known = [numbers(row) for row in expected()]
    quoted = [row for row in tables(page, head) if not re.search("not kept|published|NUTS \\|", row)]
    assert sum(bool(numbers(row)) for row in quoted) > 1

    def follows(row: str) -> bool:
        return any(all(cell in rest for cell in numbers(row)) for rest in map(iter, known))

    assert [row for row in quoted if not follows(row)] == []
