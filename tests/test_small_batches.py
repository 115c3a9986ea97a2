"""Batches of one example, which BatchNorm has nothing to normalise by."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.model.data import LoaderData, Part, as_data, default_unpack, epoch_seed, remaining_batches
from livi.model.problem import Problem

BRIEF = livi.Recipe(steps=12, map_steps=6, map_restarts=2, num_samples=4, num_entropy_samples=2)


def rows(count):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, x[:, 0]


def normed():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).double()


def pictures(count):
    return torch.randn(count, 1, 6, 6), torch.arange(count) % 2


def convolutional(*, pooled):
    after = [nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(2)] if pooled else [nn.BatchNorm2d(2)]
    return nn.Sequential(nn.Conv2d(1, 2, 3), *after, nn.Flatten(), nn.LazyLinear(2))


def loader_data(loader):
    return LoaderData(loader, default_unpack, torch.device("cpu"), torch.float64)


def sizes(data, seed=0):
    return [len(targets) for _, targets in data.epoch(seed)]


@pytest.mark.parametrize(
    ("count", "size", "expected"), [(33, 8, [8, 8, 8, 9]), (32, 8, [8] * 4), (5, 1, [2, 3]), (9, 8, [9]), (3, 2, [3])]
)
def test_a_batch_of_one_joins_another_and_every_example_comes_once(count, size, expected):
    x, y = rows(count)
    data = loader_data(DataLoader(TensorDataset(x, y), size, shuffle=True)).at_least(2)
    assert sizes(data) == expected
    assert (data.num_data, data.steps_per_epoch) == (count, len(expected))
    seen = torch.cat([targets for _, targets in data.epoch(0)])
    assert seen.sort().values.tolist() == y.sort().values.tolist()


@pytest.mark.filterwarnings("ignore::livi.FitWarning")  # so short a fit is not converged
def test_tensors_whose_last_batch_is_left_with_one_example_are_fitted():
    x, y = rows(257)
    posterior = livi.fit(normed(), (x, y), livi.Gaussian(0.3), batch_size=8, recipe=BRIEF, progress=False)
    assert posterior.predict(x[:3]).mean.shape == (3,)
    problem = Problem.of(normed(), (x, y), livi.Gaussian(0.3), batch_size=8)
    batches = [len(targets) for _, targets in problem.batches(100)]
    assert (sum(batches), min(batches) > 1) == (257, True)


def test_batches_of_other_sizes_at_other_epochs_are_put_together_then():
    x, y = rows(9)

    class Buckets:
        """Batches of 3 at first, and of one example later."""

        def __init__(self):
            self.asked = 0

        def __iter__(self):
            self.asked += 1
            return iter([(x[i : i + size], y[i : i + size]) for i, size in self.places()])

        def places(self):
            return [(0, 3), (3, 3), (6, 3)] if self.asked < 4 else [(0, 4), (4, 4), (8, 1)]

        def __len__(self):
            return 3

    data = loader_data(Buckets()).at_least(2)
    found = [sizes(data, epoch) for epoch in range(5)]
    assert {sum(batches) for batches in found} == {9}
    assert found[-1] == [4, 5]


def test_batches_of_all_kinds_are_counted_as_they_come():
    x, y = rows(10)
    uneven = [(x[:4], y[:4]), (x[4:5], y[4:5]), (x[5:9], y[5:9]), (x[9:], y[9:])]
    sampler = [[0, 1, 2], [3], [4, 5, 6], [7, 8], [9]]
    for loader in (uneven, DataLoader(TensorDataset(x, y), batch_sampler=sampler)):
        data = loader_data(loader).at_least(2)
        assert data.steps_per_epoch == len(sizes(data))
        assert min(sizes(data)) >= 2
        assert sum(sizes(data)) == 10
    whole = loader_data(uneven[:1] + uneven[2:3])
    assert whole.at_least(2) is whole
    drops = loader_data(DataLoader(TensorDataset(x, y), 3, drop_last=True))
    assert drops.at_least(2) is drops


def test_a_fit_with_a_last_batch_of_one_ends_and_says_what_was_done(capsys):
    loader = DataLoader(TensorDataset(*rows(17)), 4)
    posterior = livi.fit(normed(), loader, livi.Gaussian(), recipe=BRIEF)
    assert posterior.plan["steps_per_epoch"] == 4
    assert "batches of one example join another, for BatchNorm" in capsys.readouterr().err
    assert "batches of one example join another" in str(livi.plan(normed(), loader, livi.Gaussian(), recipe=BRIEF))
    assert posterior.predict(rows(1)[0]).mean.isfinite().all()


def test_each_batch_is_scaled_to_all_examples():
    problem = Problem.of(normed(), DataLoader(TensorDataset(*rows(9)), 4), livi.Gaussian(0.5))
    theta = problem.layout.flatten()[None]
    batch = list(problem.data.epoch(0))[-1]
    assert len(batch[1]) == 5
    expected = 9.0 * problem.log_likelihood(theta, batch).mean(1)
    torch.testing.assert_close(problem.on_batch(theta, batch)[0], expected)


def test_networks_that_take_one_example_get_the_batches_as_they_are():
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    for net, data, likelihood in (
        (plain, rows(9), livi.Gaussian(0.5)),
        (convolutional(pooled=False), pictures(9), livi.Categorical()),
    ):
        net(data[0])  # for the lazy layer
        loader = DataLoader(TensorDataset(*data), 4)
        problem = Problem.of(net, loader, likelihood, standardise=False)
        assert sizes(problem.data) == [4, 4, 1]


def test_behind_a_pooling_one_picture_is_too_few():
    net, data = convolutional(pooled=True), pictures(9)
    net(data[0])
    problem = Problem.of(net, DataLoader(TensorDataset(*data), 4), livi.Categorical(), standardise=False)
    assert sizes(problem.data) == [4, 5]
    fixed = copy.deepcopy(net)
    fixed_norm = Problem.of(
        fixed, DataLoader(TensorDataset(*data), 4), livi.Categorical(), exclude="2.*", standardise=False
    )
    assert sizes(fixed_norm.data) == [4, 4, 1]  # whose statistics are part of the network


@pytest.mark.parametrize("data", [rows(1), DataLoader(TensorDataset(*rows(1)), 4)])
def test_a_single_example_is_refused_before_the_fit(data):
    with pytest.raises(ValueError, match="expected at least 2 examples in a batch, for the network's BatchNorm"):
        livi.plan(normed(), data, livi.Gaussian())


def test_batches_of_one_that_were_asked_for_are_refused():
    with pytest.raises(ValueError, match="got 1; pass a larger batch_size"):
        livi.plan(normed(), rows(9), livi.Gaussian(), batch_size=1)


def test_a_resumed_run_enters_an_epoch_of_joined_batches_where_it_left_it():
    data = loader_data(DataLoader(TensorDataset(*rows(9)), 4, shuffle=True)).at_least(2)
    whole = [targets for _, targets in remaining_batches(data, 0, 0, 7)]
    later = [targets for _, targets in remaining_batches(data, 0, 3, 7)]
    for one, other in zip(whole[3:], later, strict=True):
        torch.testing.assert_close(one, other)
    assert sizes(data, epoch_seed(0, 1)) == [4, 5]


def test_parts_of_joined_batches_are_parts_of_the_same_ones():
    data = loader_data(DataLoader(TensorDataset(*rows(9)), 4)).at_least(2)
    parts = [list(Part(data, index, 2).epoch(0)) for index in range(2)]
    assert [len(one[1]) + len(other[1]) for one, other in zip(*parts, strict=True)] == [4, 5]
    assert as_data(data, device=torch.device("cpu"), dtype=torch.float32) is data


@pytest.mark.parametrize(
    "batches", [lambda x, y: DataLoader(TensorDataset(x, y), 8), lambda x, y: [(x[:8], y[:8]), (x[8:], y[8:])]]
)
def test_parts_that_batch_norm_could_not_normalise_are_the_whole_batch_as_a_half(batches):
    x, y = rows(11)
    problem = livi.plan(normed(), batches(x, y), livi.Gaussian()).problem
    parts = [list(Part(problem.data, index, 2, fewest=problem.fewest).epoch(0)) for index in range(2)]
    assert [[(len(targets), weight) for _, targets, weight, _ in part] for part in parts] == [[(4, 0.5), (3, 0.5)]] * 2
    for inputs, targets, _, _ in parts[0]:
        log_likelihood, _ = problem.on_batch(problem.layout.flatten()[None], (inputs, targets))
        assert bool(log_likelihood.isfinite().all())
