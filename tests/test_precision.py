"""Digits that data lose in the network's dtype: said once, of columns that need them, and of no others."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.inference import FitWarning
from livi.model.data import as_data
from livi.model.data.precision import lost_digits
from livi.model.problem import Problem
from livi.tables.estimators import LIVIRegressor

NUM = 200
RNG = np.random.default_rng(0)
ORDINARY = RNG.normal(size=(NUM, 3))
DATES = 2_460_000 + RNG.uniform(-50, 50, NUM)
SECONDS = 1.7e9 + 20 * RNG.normal(size=NUM)
REMEDY = r"; subtract an offset first, in float64, or fit `net.double\(\)`\.$"


def posed(inputs, targets, net=None, **options):
    columns = 1 if np.ndim(inputs) == 1 else np.shape(inputs)[1]
    net = nn.Linear(columns, 1, dtype=torch.float32) if net is None else net
    return Problem.of(net, (inputs, targets), livi.Gaussian(), **options)


def with_dates():
    return np.column_stack([ORDINARY[:, :1], DATES, ORDINARY[:, 1:]])


@pytest.mark.parametrize("kind", [torch.from_numpy, pd.DataFrame, np.ndarray.tolist], ids=["tensor", "table", "list"])
def test_columns_that_lose_their_digits_are_named(kind):
    with pytest.warns(
        FitWarning, match=r"^inputs\[:, 1\]: .* float32 .* deviation of 2\d\.\d+, .* 0\.12\d+ in float32" + REMEDY
    ):
        posed(kind(with_dates()), ORDINARY[:, 0])


@pytest.mark.parametrize("targets", [SECONDS, SECONDS.round().astype(np.int64)], ids=["float64", "int64"])
def test_targets_that_lose_their_digits_are_named(targets):
    with pytest.warns(FitWarning, match=r"^targets: .* a mean of 1699999\d+.* to \d+\.?\d* in float32" + REMEDY):
        posed(ORDINARY, targets)


def test_several_columns_are_one_warning():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        posed(np.column_stack([DATES, SECONDS, ORDINARY]), ORDINARY[:, 0])
    texts = [str(one.message) for one in heard if "float32" in str(one.message)]
    assert len(texts) == 1
    assert texts[0].startswith("inputs[:, 1] and 1 other column: ")


def test_a_fit_says_so_once():
    net, recipe = nn.Linear(4, 1, dtype=torch.float32), livi.Recipe(steps=5, map_steps=5, map_restarts=1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        livi.fit(net, (with_dates(), ORDINARY[:, 0]), livi.Gaussian(), recipe=recipe, progress=False, polish=False)
    assert sum("rounded by" in str(one.message) for one in heard) == 1


def test_of_a_loader_the_first_batch_is_looked_at():
    pairs = TensorDataset(torch.from_numpy(with_dates()), torch.from_numpy(ORDINARY[:, 0]))
    data = as_data(DataLoader(pairs, 50, shuffle=True), device=torch.device("cpu"), dtype=torch.float32)
    data.first()
    (text,) = data.lost
    assert text.startswith("batch 0: inputs[:, 1]: expected a spread")


def test_inputs_of_several_parts_are_named_by_their_place():
    leaves = {"x": torch.from_numpy(ORDINARY), "when": torch.from_numpy(DATES)}
    (text,) = lost_digits(leaves, torch.zeros(NUM), torch.float32)
    assert text.startswith("inputs['when']: ")
    pictures = torch.from_numpy(RNG.normal(size=(NUM, 2, 3)))
    pictures[:, 1, 2] += 1e6
    (text,) = lost_digits((pictures,), torch.zeros(NUM), torch.float32)
    assert text.startswith("inputs[0][:, 1, 2]: ")


@pytest.mark.parametrize(
    "column",
    [
        np.full(NUM, 0.1),
        np.full(NUM, 1 / 3) * np.where(ORDINARY[:, 0] > 0, 1, 1 + 2e-16),  # constant but for rounding
        2000.0 + RNG.integers(0, 30, NUM),
        230_000 + 60_000 * ORDINARY[:, 0],
        2_460_000.0 + RNG.integers(-50, 50, NUM),  # whole days, which float32 has
        101_325 + 100 * ORDINARY[:, 0],
        1e-30 * ORDINARY[:, 0],
        np.where(np.arange(NUM) == 7, 1e12, ORDINARY[:, 0]),
        DATES - DATES.mean(),
    ],
    ids=["constant", "rounded", "years", "prices", "days", "pressure", "small", "outlier", "offset"],
)
def test_ordinary_columns_are_not_spoken_of(column):
    assert not list(lost_digits(np.column_stack([column, ORDINARY]), column, torch.float32))


@pytest.mark.parametrize(
    ("inputs", "targets", "dtype"),
    [
        (with_dates(), SECONDS, torch.float64),
        (with_dates().astype(np.float32), SECONDS.astype(np.float32), torch.float32),
        (torch.from_numpy(SECONDS).long(), torch.arange(NUM), torch.float32),
        (with_dates()[:3], SECONDS[:3], torch.float32),
    ],
    ids=["double", "single already", "whole inputs", "few"],
)
def test_what_is_not_cast_or_has_no_spread_is_not_spoken_of(inputs, targets, dtype):
    assert not list(lost_digits(inputs, targets, dtype))


def test_of_many_numbers_some_are_looked_at():
    dates = 2_460_000 + torch.rand(3_000_000, 4, dtype=torch.float64)
    (text,) = lost_digits(dates, torch.zeros(len(dates)), torch.float32)
    assert "and 3 other columns: " in text


def test_tables_are_scaled_before_they_lose_digits():
    plain, moved = np.column_stack([DATES - 2_460_000, ORDINARY]), with_dates()[:, [1, 0, 2, 3]]
    answers = np.sin(plain[:, 0] / 20) + 0.1 * ORDINARY[:, 0]
    options = {"noise": "constant", "target_scale": "plain", "steps": 100, "random_state": 0}
    near = LIVIRegressor(**options).fit(plain, answers)
    far = LIVIRegressor(**options).fit(moved, 1.7e9 + answers)
    np.testing.assert_allclose(far.predict(moved) - 1.7e9, near.predict(plain), atol=1e-3)
