"""The table of README.md and the image tables of docs/benchmarks/images.md are those of the result files."""

import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import pytest

ROOT = Path(__file__).parents[1]
LIVI, POOL = "livi@epochs=50@fit=10", "livi-pooled-3@epochs=90@fit=5@noise=0.1"
FIVE = "livi-pooled-5@epochs=50@fit=10@noise=0.1"

# The lines of README's table: data, quantity, problem, methods in the order of the columns, score.
README = [
    ("MNIST", "NLL", "mnist", ("map", "ensemble-5", "livi"), "nll"),
    ("MNIST", "AUROC", "mnist", ("map", "ensemble-5", "livi"), "auroc"),
    ("Fashion-MNIST", "NLL", "fashion-mnist", ("ensemble-5", "livi"), "nll3"),
    ("Fashion-MNIST", "AUROC", "fashion-mnist", ("ensemble-5", "livi"), "auroc"),
    ("CIFAR-10", "NLL", "cifar10", ("map", LIVI), "nll3"),
    ("CIFAR-10", "ECE", "cifar10", ("map", LIVI), "ece"),
    ("the same", "NLL", "cifar10", ("ensemble-5", POOL), "nll3"),
    ("the same", "AUROC", "cifar10", ("ensemble-5", POOL), "auroc"),
    ("CIFAR-100", "NLL", "cifar100", ("map", "livi"), "nll3"),
    ("CIFAR-100", "ECE", "cifar100", ("map", "livi"), "ece"),
]
# The first accuracy of a row of images.md, by which it is found, is that of this problem and method.
IMAGES = [
    *[("mnist", method) for method in ("livi", "livi-mixture-1", "livi-smallest", "mnf", "ensemble-5", "ensemble-10")],
    *[("mnist", method) for method in ("swag", "laplace_last_layer", "map", "mean_field", "laplace_linearised")],
    *[("fashion-mnist", method) for method in ("livi", "livi-mixture-1", "ensemble-5")],
    *[("cifar10", method) for method in ("map", LIVI, "ensemble-5", POOL, FIVE)],
]


@cache
def rows(problem: str, method: str) -> list[dict]:
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "results" / problem).glob("*.json")]
    found = [row for document in documents if document["experiment"] == problem for row in document["rows"]]
    return [row for row in found if row["method"] == method and row["error"] is None]


def values(problem: str, method: str, score: str) -> list[float]:
    """One a seed. AUROC is the mean over those OOD sets that all seeds and methods have."""
    some = rows(problem, method)
    if score != "auroc":
        return [row[score] for row in some]
    names = ("svhn", "tiny-imagenet") if problem == "cifar10" else tuple(some[0]["others"])
    return [fmean(row["others"][name]["auroc"] for name in names) for row in some]


def in_words(problem: str, method: str, score: str) -> str:
    digits = 3 if score == "nll3" else 4
    found = fmean(values(problem, method, score.removesuffix("3")))
    return f"{found:.{digits}f}".lstrip("0") if score.startswith("nll") else f"{100 * found:.1f} %"


def with_error(numbers: list[float], digits: int, percent: bool) -> str:
    scale = 100.0 if percent else 1.0
    error = stdev(numbers) / len(numbers) ** 0.5
    texts = [f"{scale * number:.{digits}f}" for number in (fmean(numbers), error)]
    return " ± ".join(text if percent else text.lstrip("0") for text in texts)


def test_readme_has_the_means_of_the_result_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("**", "")
    rows_of_table = text.partition("| one network | ensemble of 5 | livi |\n")[2].partition("\n\n")[0].splitlines()[1:]
    lines = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows_of_table]
    assert len(lines) == len(README)
    name = ""
    for (data, quantity, problem, methods, score), (first, second, *cells) in zip(README, lines, strict=True):
        name = first.replace("[", "") or name
        assert re.match(rf"{data}(?![\w-])", name)
        assert second.startswith(quantity)
        assert [cell for cell in cells if cell] == [in_words(problem, method, score) for method in methods]


@pytest.mark.parametrize(("problem", "method"), IMAGES)
def test_image_tables_have_the_means_and_standard_errors_of_the_result_files(problem: str, method: str) -> None:
    lines = (ROOT / "docs" / "benchmarks" / "images.md").read_text(encoding="utf-8").replace("**", "").splitlines()
    expected = [
        with_error(values(problem, method, "accuracy"), 2, percent=True),
        with_error(values(problem, method, "nll"), 4, percent=False),
        with_error(values(problem, method, "ece"), 2, percent=True),
    ]
    assert any(f"| {' | '.join(expected)} |" in line for line in lines), expected
