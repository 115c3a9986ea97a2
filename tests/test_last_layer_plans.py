"""When a plan integrates the last layer out, and what it says where it does not."""

import math
import sys

import pytest
import torch
from support.last_layers import (
    QUICK,
    Scaled,
    Shifted,
    data,
    fitted,
    made,
    network,
    planned,
    sequential,
)
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import livi


def test_it_is_the_default_where_it_is_possible_and_said_in_the_plan():
    assert "6 of the last layer integrated out" in str(livi.plan(network(), data(), livi.Gaussian(), recipe=QUICK))
    rows = data(20_001)
    assert livi.plan(network(), rows, livi.Gaussian(), recipe=QUICK).problem.integrated is None
    assert livi.plan(network(), rows, livi.Gaussian(), recipe=QUICK, last_layer="exact").problem.integrated is not None
    assert (
        livi.plan(network(2), (rows[0], (rows[1] > 0).long()), livi.Categorical(), recipe=QUICK).problem.integrated
        is None
    )
    sampled = livi.plan(network(), data(), livi.Gaussian(), recipe=QUICK, last_layer="sampled")
    assert sampled.problem.integrated is None
    assert sampled.layout.num_params == 21


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": livi.Categorical()}, "the likelihood is Categorical, not Gaussian"),
        ({"net": Scaled().double()}, "the output is not that of an nn.Linear: something comes after 'last'"),
        ({"batch_size": 10}, "every step needs all examples, and batches of 10 were asked for"),
        ({"generator": livi.MLP(4, 21, hidden=(4,)).double()}, "the generator is of 21 weights, and 15 come before"),
        ({"noise": livi.DiagonalNoise(21).double()}, "the noise is of 21 weights, and 15 come before"),
        ({"prior": livi.Laplace(1.0)}, "the prior is Laplace"),
        ({"last_layer": "integrated"}, "expected one of 'sampled', 'exact', 'conditional', 'exact if possible', got"),
    ],
)
def test_what_it_needs_is_said_where_it_is_missing(options, message):
    if "likelihood" in options:
        options = options | {"net": network(2), "rows": (data()[0], (data()[1] > 0).long())}
    with pytest.raises(ValueError, match=message):
        fitted(**options)
    if "last_layer" not in options:
        posterior = fitted(**options, last_layer="exact if possible")
        assert isinstance(posterior.sampler, livi.ImplicitPosterior)
        said = "where there are 300 to 5,000 weights, and there are 27" if "likelihood" in options else message
        assert said in posterior.plan["last_layer_reason"]


@pytest.mark.parametrize(
    ("units", "rows", "options", "reason"),
    [
        (5, 40, {}, "where there are 300 to 5,000 weights, and there are 27"),
        (2000, 40, {}, "where there are 300 to 5,000 weights, and there are 10,002"),
        (80, 40, {"batch_size": 10}, "where all examples are one batch, and they come in 4"),
        (80, 40, {"augment": lambda inputs, _: inputs}, "augmentation makes other examples at every epoch"),
        (80, 15_000, {}, "where all examples are one batch, and they come in 59"),
    ],
)
def test_of_labels_the_plan_names_the_sizes_by_which_the_last_layer_is_sampled(units, rows, options, reason):
    x, y = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0)), torch.arange(rows) % 2
    net = nn.Sequential(nn.Linear(2, units), nn.Tanh(), nn.Linear(units, 2))
    plan = livi.plan(net, (x, y), livi.Categorical(), recipe=QUICK, **options)
    assert plan.problem.integrated is None
    assert reason in plan.summary()["last_layer_reason"]


def test_a_wide_layer_and_many_rows_get_fewer_samples():
    wide = nn.Sequential(nn.Linear(2, 100), nn.Tanh(), nn.Linear(100, 1))
    x, y = data(1000)
    plan = livi.plan(wide, (x.float(), y.float()), livi.Gaussian())
    assert plan.recipe.num_samples == 4
    wider = nn.Sequential(nn.Linear(2, 250), nn.Tanh(), nn.Linear(250, 1))  # too dear to be chosen by itself
    assert livi.plan(wider, (x.float(), y.float()), livi.Gaussian(), recipe=QUICK).problem.integrated is None
    assert math.isfinite(plan.seconds_per_step)


def test_the_plan_says_why_the_last_layer_is_sampled():
    plan = planned(made(Shifted))
    reason = "the output is not that of an nn.Linear: something comes after 'last', or beside it"
    assert plan.problem.integrated is None
    assert f"last layer  sampled: {reason}" in str(plan)
    assert plan.summary()["last_layer_reason"] == reason
    assert "last layer  sampled: as asked" in str(planned(sequential(), last_layer="sampled"))
    assert "sampled" not in str(planned(sequential()))


@pytest.mark.parametrize("last_layer", ["exact if possible", "sampled"])
@pytest.mark.parametrize(
    ("outputs", "targets", "likelihood"),
    [
        (3, torch.zeros(20), livi.Gaussian()),
        (3, torch.zeros(20, 2), livi.Gaussian()),
        (3, torch.zeros(20, 3), livi.HeteroscedasticGaussian()),
        (3, torch.zeros(20), livi.Bernoulli()),
        (3, torch.full((20,), 3), livi.Categorical()),
        (2, torch.zeros(20, 2), livi.Gaussian([0.1, 0.2, 0.3])),
    ],
)
def test_outputs_are_checked_against_targets_before_anything_else(
    outputs, targets, likelihood, last_layer, monkeypatch
):
    monkeypatch.setattr(sys.modules["livi.inference.planning"], "integrate_last_layer", None)
    with pytest.raises(ValueError, match=r"outputs: expected|targets: expected"):
        planned(sequential(outputs=outputs), (data()[0], targets), likelihood, last_layer=last_layer)


# --- batches --------------------------------------------------------------------------------------


class Augmented(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + torch.randn(2), self.y[index]


def batches(count=20, size=7):
    return [(x, y) for x, y in zip(*(part.split(size) for part in data(count)), strict=True)]


@pytest.mark.parametrize(
    "rows",
    [
        batches(),
        DataLoader(TensorDataset(*data()), 7, shuffle=True),
        DataLoader(TensorDataset(*data()), 7, shuffle=True, generator=torch.Generator()),
        TensorDataset(*data()),
        torch.utils.data.Subset(TensorDataset(*data(40)), range(20)),
    ],
    ids=["list", "DataLoader", "generator", "TensorDataset", "Subset"],
)
def test_batches_are_put_together(rows):
    plan = planned(made(sequential), rows)
    assert plan.problem.integrated is not None
    inputs, targets = plan.data.first()
    x, y = data(20) if not isinstance(rows, torch.utils.data.Subset) else (part[:20] for part in data(40))
    order, expected = targets.argsort(), y.argsort()
    assert torch.equal(targets[order], y[expected])
    assert torch.equal(inputs[order], x[expected])
    again = planned(made(sequential), rows)
    assert torch.equal(again.data.first()[0], inputs)  # in one order, however it is shuffled
    if isinstance(rows, list):
        assert torch.equal(inputs, x)


class Uneven:
    """Batches that differ in more than their examples."""

    def __iter__(self):
        yield data(4)[0][:, :, None], torch.zeros(4)
        yield data(4)[0][:, :, None].repeat(1, 1, 2), torch.zeros(4)


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        (DataLoader(Augmented(*data()), 7), {}, "another epoch hold other examples, as with augmentation"),
        (
            DataLoader(TensorDataset(*data()), 7, sampler=RandomSampler(range(20), replacement=True)),
            {},
            "another epoch hold other examples, as with augmentation or resampling",
        ),
        (DataLoader(TensorDataset(*data()), 7, drop_last=True), {}, "an epoch has 14 of 20 examples"),
        (batches(), {"num_data": 100}, "an epoch has 20 of 100 examples"),
        (batches(), {"num_data": 20_001}, "there are 20,001 examples, more than 20,000"),
        ([((x, x[:, 0].sum()), y) for x, y in batches()], {}, r"a tensor of shape \(\), not a row per example"),
        ([((x, "word"), y) for x, y in batches()], {}, "a str, not a row per example"),
        (Uneven(), {}, "the batches are of several shapes"),
    ],
    ids=["augmented", "resampled", "dropped", "more", "many", "scalar", "word", "uneven"],
)
def test_batches_that_are_not_all_of_the_data_are_refused(rows, options, reason):
    forward = lambda net, x, *_: net(x.flatten(1)[:, :2])  # noqa: E731
    plan = planned(made(sequential), rows, forward=forward, **options)
    assert plan.problem.integrated is None
    assert reason in plan.summary()["last_layer_reason"].replace("(", r"\(").replace(")", r"\)")


def test_batches_that_do_not_fit_in_memory_are_not_read(monkeypatch):
    monkeypatch.setattr("livi.model.data.gather.MEMORY", 400)
    monkeypatch.setattr("livi.family.last_layer.problem.gathered", None)
    assert "all batches together are" in planned(made(sequential), batches()).summary()["last_layer_reason"]
