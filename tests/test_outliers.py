"""Codes and slips among numbers: found, left out of what columns are standardised by, and named."""

import numpy as np
import pytest
import torch
from torch import nn

import livi
from livi.outliers import far_out


@pytest.fixture
def numbers():
    return np.random.default_rng(0).standard_normal(500)


@pytest.mark.parametrize(
    "codes",
    [{7: 99999.0}, dict.fromkeys(range(9), -999.0), dict.fromkeys(range(160), 1e5), {3: 400.0, 4: -500.0, 5: 9e9}],
    ids=["one", "nine", "a third", "both sides"],
)
def test_what_stands_apart_is_found(numbers, codes):
    numbers[list(codes)] = list(codes.values())
    numbers[20] = np.nan if len(codes) < 20 else numbers[20]
    assert np.flatnonzero(far_out(numbers)).tolist() == sorted(codes)


@pytest.mark.parametrize(
    "values",
    [
        np.exp(np.random.default_rng(0).standard_normal(500)),
        np.repeat([0.0, 1.0], [495, 5]),  # a rare flag
        np.concatenate([np.zeros(300), np.arange(1.0, 201.0)]),  # mostly zero
        np.concatenate([np.random.default_rng(0).standard_normal(300), 1e4 + np.arange(200.0)]),  # two groups
        np.full(30, 7.0),
        np.full(30, np.nan),
        np.arange(5.0),
        np.array([]),
    ],
    ids=["a tail", "a flag", "zeros", "groups", "constant", "gaps", "few", "none"],
)
def test_tails_flags_and_groups_are_not(values):
    assert not far_out(values).any()


def test_a_fit_of_a_network_names_the_column(numbers):
    x = torch.from_numpy(np.stack([numbers, numbers**2], 1)).float()
    x[:3, 1] = 99999.0
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    with pytest.warns(livi.FitWarning, match="inputs: column 1 has 3 numbers such as 99999 where all others are"):
        livi.Problem.of(net, (x, x[:, 0]), livi.Gaussian())


def test_three_codes_do_not_spoil_a_table(numbers):
    pytest.importorskip("sklearn")
    x = np.random.default_rng(1).standard_normal((500, 2))
    y, coded = np.sin(2 * x[:, 0]) + x[:, 1], x.copy()
    coded[:3, 0] = 99999.0
    model = livi.LIVIRegressor(random_state=0, steps=300, noise="constant").fit(coded[:300], y[:300])
    assert np.std(model.predict(x[300:]) - y[300:]) < 0.3 * np.std(y[300:])
