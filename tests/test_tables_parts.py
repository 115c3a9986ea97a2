"""Coverage by size of the prediction and by group, and what the verdict says of it."""

from dataclasses import replace

import numpy as np
from scipy import stats

from livi.tables.content import RegressionRows
from livi.tables.evaluation import Evaluation, score_regression
from livi.tables.parts import parts_of, worst


def rows_with_noise(noise, *, rows=1000, seed=0):
    """Targets with this noise around means that rise from 0 to 1, predicted with a noise of 1."""
    random = np.random.default_rng(seed)
    mean = np.linspace(0.0, 1.0, rows)
    target = mean + noise(mean) * random.normal(size=rows)
    levels = np.array([0.5, 0.8, 0.9, 0.95])
    reach = stats.norm.ppf(0.5 + levels / 2)[:, None] * np.ones(rows)
    flat, pit = np.ones(rows), stats.norm.cdf(target - mean)
    return RegressionRows(target, mean, 0 * flat, flat, flat, pit, levels, mean - reach, mean + reach)


def test_fifths_show_what_the_average_hides():
    rows = rows_with_noise(lambda mean: np.where(mean < 0.8, 0.85, 1.6))
    evaluation = Evaluation("rows", rows, *score_regression(rows, np.zeros(1000), None, "price"))
    assert "calibrated" in evaluation.verdict[0]
    evaluation = evaluation.with_parts(parts_of(rows, {}, "price"))
    assert [part.rows for part in evaluation.parts] == [200] * 5
    assert evaluation.verdict[0].startswith(
        "Not for all rows alike: of the fifth with the highest predictions of price, 200 rows, the 90% intervals held"
    )
    assert evaluation.verdict[0].endswith("overconfident.")
    assert "90% intervals by part" in str(evaluation)


def test_parts_of_a_calibrated_model_are_rarely_blamed():
    blamed = 0
    for seed in range(60):
        rows = rows_with_noise(np.ones_like, rows=600, seed=seed)
        groups = {"town": [str(place % 6) for place in range(600)]}
        blamed += worst(parts_of(rows, groups, "y")) is not None
    assert blamed <= 8  # 5 % of 60, and 3 standard errors


def test_groups_are_the_frequent_values_of_columns():
    rows = rows_with_noise(lambda mean: 1.0 + (np.arange(len(mean)) % 2))
    groups = {"even": ["no" if place % 2 else "yes" for place in range(1000)], "rare": ["a"] * 999 + ["b"]}
    parts = [part for part in parts_of(rows, groups, "y") if part.kind == "group"]
    assert [(part.name, part.rows) for part in parts] == [("rows with even = no", 500), ("rows with even = yes", 500)]
    assert worst(parts) is parts[0]
    few, many = (
        replace(parts[0], coverage=replace(parts[0].coverage, share=s, low=low))
        for s, low in ((0.7, 0.72), (0.75, 0.87))
    )
    assert worst([few, many]) is many  # few rows are easily far from 90 %


def test_rows_without_a_value_are_a_group_with_a_name():
    rows = rows_with_noise(np.ones_like)
    parts = parts_of(rows, {"town": ["" if place % 2 else "u" for place in range(1000)]}, "y")
    assert {part.name for part in parts if part.kind == "group"} == {"rows with town = (missing)", "rows with town = u"}


def test_few_rows_have_no_fifths():
    rows = rows_with_noise(np.ones_like, rows=60)
    assert parts_of(rows, {}, "y") == ()
    evaluation = Evaluation("rows", rows, *score_regression(rows, np.zeros(60), None, "y"))
    assert evaluation.with_parts(()).verdict == evaluation.verdict == replace(evaluation, parts=()).verdict
