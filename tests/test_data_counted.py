"""The number of examples that a likelihood stands for, beside what a DataLoader has."""

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset, WeightedRandomSampler

from livi import FitWarning
from livi.model.data import as_data

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}
ROWS = TensorDataset(torch.randn(60, 2), torch.randn(60))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


def test_a_number_that_contradicts_a_loader_is_warned_of():
    with pytest.warns(FitWarning, match=r"expected 60, .*dataset, got 6,000: the likelihood will count 100 times"):
        data = as_data(DataLoader(ROWS, batch_size=8, shuffle=True), num_data=6000, **KIND)
    assert data.num_data == 6000
    with pytest.warns(FitWarning, match=r"num_data: expected 60, .* got 30: the likelihood will count 0.5 times"):
        as_data(ROWS, num_data=30, unpack=tuple, **KIND)
    sampler = WeightedRandomSampler(torch.ones(60), 40)
    with pytest.warns(FitWarning, match=r"expected 60, .*dataset, of which a sampler draws 40, got 50"):
        as_data(DataLoader(ROWS, batch_size=8, sampler=sampler), num_data=50, **KIND)


@pytest.mark.parametrize(
    ("loader", "num_data"),
    [
        (DataLoader(ROWS, batch_size=8), 60),
        (DataLoader(ROWS, batch_size=8, drop_last=True), 56),
        (DataLoader(ROWS, batch_size=8, sampler=WeightedRandomSampler(torch.ones(60), 40)), 40),
        (DataLoader(ROWS, batch_size=8, sampler=WeightedRandomSampler(torch.ones(60), 90)), 60),
        (DataLoader(ROWS, batch_size=8, sampler=DistributedSampler(ROWS, num_replicas=4, rank=0)), 60),
        (DataLoader(Stream(), batch_size=8), 6000),
        ([ROWS[:8], ROWS[8:16]], 60),
    ],
)
def test_a_number_that_a_loader_may_stand_for_is_taken(loader, num_data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_data(loader, num_data=num_data, **KIND).num_data == num_data
