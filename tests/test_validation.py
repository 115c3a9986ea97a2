"""Validation: which examples are held out, how they are scored, and that the fit does not notice."""

import math

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import livi
from livi.inference import Recipe
from livi.inference.ranks import Alone
from livi.inference.validation import DRAWS, Validation, split_off, validation_of
from livi.model.data import Part, TensorData, as_data
from livi.posterior.storage import read_checkpoint

QUICK = Recipe(steps=60, map_steps=30, map_restarts=2, num_samples=8, num_entropy_samples=2)
PLACE = {"device": torch.device("cpu"), "dtype": torch.float32}


def network(outputs=1, norm=False):
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(5)] if norm else []
    return nn.Sequential(nn.Linear(1, 5), *middle, nn.Tanh(), nn.Linear(5, outputs))


def data(count=24, seed=1):
    x = torch.linspace(-1, 1, count)[:, None]
    return x, torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(count, generator=torch.Generator().manual_seed(seed))


def classes(count=24, seed=1):
    x, y = data(count, seed)
    return x, (y > 0).long()


def quick_fit(train=None, likelihood=None, net=None, **options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "sampled"} | options
    return livi.fit(net or network(), train or data(), likelihood or livi.Gaussian(), **options)


def draws(posterior):
    return posterior.sample(5, torch.Generator().manual_seed(9))


def same(one, other):
    torch.testing.assert_close(draws(one), draws(other), rtol=0, atol=0)
    terms = ("step", "bound", "log_likelihood", "log_prior", "entropy", "rate")
    assert [[row[name] for name in terms] for row in one.history] == [
        [row[name] for name in terms] for row in other.history
    ]


def scored(posterior):
    return {
        int(row["step"]): {n: v for n, v in row.items() if n.startswith("validation_")} for row in posterior.history
    }


def loader(pair, **options):
    return DataLoader(TensorDataset(*pair), batch_size=8, **options)


class Pairs(Dataset):
    """A Dataset that is no TensorDataset."""

    def __init__(self, count):
        self.x, self.y = data(count)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


# --- the fit does not notice ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"last_layer": "exact"},
        {"components": 2},
        {"batch_size": 7},
        {"net": lambda: network(norm=True), "batch_size": 8},
        {"train": lambda: loader(data(), shuffle=True)},
        {"train": lambda: loader(data(), shuffle=True, generator=torch.Generator().manual_seed(5))},
        {
            "train": lambda: loader(data(), shuffle=True, generator=torch.Generator().manual_seed(5)),
            "net": lambda: network(norm=True),
        },
        {"recipe": Recipe(steps=60, map_steps=30, map_restarts=2, num_samples=8, averaging=0.9)},
    ],
    ids=["plain", "exact", "mixture", "batches", "norm", "loader", "own stream", "own stream, norm", "averages"],
)
@pytest.mark.parametrize("kind", ["pair", "loader"])
def test_a_fit_ends_the_same_with_validation_and_without(case, kind):
    def options():
        return {name: value() if callable(value) else value for name, value in case.items()}

    held = data(10, seed=2) if kind == "pair" else loader(data(10, seed=2), shuffle=True)
    with_validation = quick_fit(**options(), validation=held, validate_every=20)
    same(with_validation, quick_fit(**options()))
    found = scored(with_validation)
    assert [step for step, scores in found.items() if scores] == [20, 40, 60]
    assert all(found[step].keys() == {"validation_nll", "validation_rmse"} for step in (20, 40, 60))
    assert all(math.isfinite(value) for step in (20, 40, 60) for value in found[step].values())


def test_the_global_random_stream_is_left_alone():
    held, net, train = loader(data(10, seed=2), shuffle=True), network(), data()
    before = torch.random.get_rng_state()
    quick_fit(train, net=net, validation=held)
    assert torch.equal(before, torch.random.get_rng_state())


# --- the scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "metrics"),
    [
        ({}, ("nll", "rmse")),
        ({"last_layer": "exact"}, ("nll", "rmse")),
        ({"net": network(norm=True)}, ("nll", "rmse")),
        ({"train": classes(), "likelihood": livi.Categorical(), "net": network(2)}, ("nll", "accuracy")),
    ],
    ids=["numbers", "exact", "BatchNorm", "classes"],
)
def test_scores_are_the_metrics_of_the_posterior_s_predictions(case, metrics):
    x, y = (classes if metrics[1] == "accuracy" else data)(10, seed=2)
    posterior = quick_fit(**case, validation=(x, y))
    prediction = posterior.predict(x, num_samples=DRAWS)
    expected = {f"validation_{name}": livi.metrics.METRICS[name](prediction, y) for name in metrics}
    assert scored(posterior)[60] == pytest.approx(expected, rel=1e-5)


def test_scores_of_batches_are_those_of_all_examples():
    posterior = quick_fit()
    x, y = data(30, seed=2)
    whole = Validation(as_data((x, y), **PLACE), 10).scores(posterior)
    parts = Validation(TensorData(x, y, 7), 10).scores(posterior)
    assert parts == pytest.approx(whole, rel=1e-5)
    first = Validation(TensorData(x, y, 7), 10).scores(posterior, batches=1)
    assert first != pytest.approx(whole, rel=1e-5)


class OneOfTwo(Alone):
    """One of two ranks, of which the first is asked first and leaves its numbers in `said` for the other."""

    def __init__(self, rank, said):
        self.rank, self.said = rank, said

    def part(self, data, *_, **__):
        return Part(data, self.rank, 2)

    def total(self, numbers):
        if self.rank == 0:
            self.said.append(numbers)
            return numbers
        return [one + other for one, other in zip(self.said.pop(0), numbers, strict=True)]


def test_two_ranks_score_every_example_once_also_of_batches_with_fewer_examples_than_ranks():
    x, y = data(7)
    batches = as_data([(x[:4], y[:4]), (x[4:6], y[4:6]), (x[6:], y[6:] + 9.0)], **PLACE)
    posterior, said = quick_fit(), []
    for rank in range(2):
        together = Validation(batches, 10, OneOfTwo(rank, said)).scores(posterior)
    assert together == pytest.approx(Validation(batches, 10).scores(posterior), rel=1e-5)


def test_labels_that_do_not_count_do_not_count():
    posterior = quick_fit(classes(), livi.Categorical(ignore_index=-1), network(2))
    x, y = classes(30, seed=2)
    y[:13] = -1
    found = Validation(TensorData(x, y, 6), 10).scores(posterior)
    expected = livi.metrics.accuracy(posterior.predict(x, num_samples=DRAWS), y)
    assert found["accuracy"] == pytest.approx(expected)


def test_labels_between_yes_and_no_have_their_nll_alone():
    x, _ = data()
    soft = torch.sigmoid(3 * x[:, 0])
    posterior = quick_fit((x, soft), livi.Bernoulli(), validation=(x, soft))
    assert scored(posterior)[60].keys() == {"validation_nll"}
    one_of_two_batches = TensorData(x, torch.cat([soft[:12].round(), soft[12:]]), 12)
    assert Validation(one_of_two_batches, 10).scores(posterior).keys() == {"nll"}
    assert Validation(TensorData(x, soft.round(), 12), 10).scores(posterior).keys() == {"nll", "accuracy"}


def test_a_likelihood_of_the_user_s_own_has_its_nll():
    laplace = livi.FunctionLikelihood(lambda out, y: -(out.squeeze(-1) - y).abs() - math.log(2.0))
    posterior = quick_fit(likelihood=laplace, validation=0.25)
    assert scored(posterior)[60].keys() == {"validation_nll"}


@pytest.mark.parametrize(
    ("every", "steps", "per_epoch", "expected"),
    [
        (None, 400, 1, list(range(20, 401, 20))),
        (None, 60, 1, [10, 20, 30, 40, 50, 60]),
        (25, 95, 1, [30, 50, 80, 95]),
        (5, 35, 1, [10, 20, 30, 35]),
        ("epoch", 60, 17, [20, 40, 60]),
        (1000, 60, 1, [60]),
    ],
)
def test_validations_are_due_at_logged_steps_and_at_the_last(every, steps, per_epoch, expected):
    validation = validation_of(data(), every, steps=steps, steps_per_epoch=per_epoch, **PLACE)
    logged = [step for step in range(1, steps + 1) if step % 10 == 0 or step == steps]
    assert [step for step in logged if validation.due(step, steps)] == expected


def test_scores_are_in_checkpoints_and_tensorboard(tmp_path):
    path = tmp_path / "c.livi"
    posterior = quick_fit(validation=0.25, checkpoint=path, log_dir=tmp_path / "logs")
    assert read_checkpoint(path)["state"]["history"] == posterior.history
    events = EventAccumulator(str(tmp_path / "logs")).Reload().Scalars("validation_nll")
    expected = [(int(row["step"]), row["validation_nll"]) for row in posterior.history if "validation_nll" in row]
    assert [(event.step, event.value) for event in events] == [(s, pytest.approx(v, rel=1e-6)) for s, v in expected]
    same(quick_fit(validation=0.25, checkpoint=path), posterior)
    with pytest.raises(ValueError, match="num_data was 18 and is 12"):
        quick_fit(validation=0.5, checkpoint=path)


# --- holding out ----------------------------------------------------------------------------------


def test_a_share_is_split_off_by_the_seed():
    x, y = data(20)
    (kept_x, kept_y), (held_x, held_y) = split_off((x, y), 0.3, seed=0)
    assert (len(kept_y), len(held_y)) == (14, 6)
    rows = torch.cat([kept_x, held_x])[:, 0]
    assert torch.equal(rows.sort().values, x[:, 0])
    assert all(float(y[x[:, 0] == row]) == float(target) for row, target in zip(held_x[:, 0], held_y, strict=True))
    assert torch.equal(split_off((x, y), 0.3, seed=0)[1][1], held_y)
    assert not torch.equal(split_off((x, y), 0.3, seed=1)[1][1], held_y)


def test_a_share_of_arrays_dicts_and_datasets_is_split_off():
    x, y = data(20)
    kept, held = split_off(({"a": x.numpy(), "b": x}, y.tolist()), 0.25, seed=0)
    assert kept[0]["a"].shape == kept[0]["b"].shape == (15, 1)
    assert held[1].shape == (5,)
    assert split_off((np.zeros((4, 1)), np.zeros(4)), 0.5, 0)[1][0].shape == (2, 1)
    assert split_off(TensorDataset(x, y), 0.25, seed=0)[0][1].shape == (15,)
    kept, held = split_off(Pairs(20), 0.25, seed=0)
    assert (len(kept), len(held)) == (15, 5)


def test_a_share_and_its_rows_given_make_the_same_fit():
    kept, held = split_off(data(), 0.25, seed=3)
    one = quick_fit(validation=0.25, seed=3)
    two = quick_fit(kept, validation=held, seed=3)
    same(one, two)
    assert one.history == two.history
    assert one.plan["num_data"] == 18


def test_a_loader_over_a_dataset_gives_a_share_in_batches_like_its_own():
    def collate(examples):
        x, y = zip(*examples, strict=True)
        return {"input": torch.stack(x), "targets": torch.stack(y)}

    x, y = data(20)
    for shuffle in (False, True):
        whole = DataLoader(TensorDataset(x, y), 4, shuffle=shuffle, collate_fn=collate, drop_last=True)
        kept, held = split_off(whole, 0.3, seed=0)
        rows = [torch.cat([batch["input"][:, 0] for batch in part]) for part in (kept, held)]
        assert [len(part) for part in rows] == [12, 6]  # 14 without those that do not fill a batch
        order = (rows[0], rows[0].sort().values)
        assert torch.equal(*order) != shuffle
        expected = split_off((x, y), 0.3, seed=0)[1][0][:, 0]
        assert torch.equal(rows[1], expected)
        assert not set(rows[0].tolist()) & set(expected.tolist())


@pytest.mark.parametrize(
    "uneven",
    [
        {"sampler": WeightedRandomSampler(torch.ones(24), 24)},
        {"sampler": RandomSampler(range(24), replacement=True)},
        {"batch_sampler": [[0, 1], [2, 3]]},
        {"batch_size": None},
    ],
    ids=["weights", "replacement", "batches", "examples"],
)
def test_a_loader_with_a_choice_of_its_own_gives_none(uneven):
    with pytest.raises(TypeError, match="a DataLoader over all of one, to split a share off, got DataLoader with"):
        split_off(DataLoader(Pairs(24), **uneven), 0.25, seed=0)


def test_a_loader_gives_a_share_to_fit_and_compare():
    posterior = quick_fit(DataLoader(Pairs(24), 6, shuffle=True), validation=0.25)
    assert posterior.plan["num_data"] == 18
    assert scored(posterior)[60]
    net = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))
    found = livi.compare(net, DataLoader(Pairs(20), 6), methods=["map"], gradients=50, validation=0.25, progress=False)
    assert (found.num_train, found.num_held_out) == (15, 5)


def test_a_dataset_gives_a_share_too():
    posterior = quick_fit(Pairs(24), validation=0.25)
    assert posterior.plan["num_data"] == 18
    assert scored(posterior)[60]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"validation": 1.5}, ValueError, r"validation: expected a share strictly between 0 and 1, got 1\.5"),
        ({"validation": True}, ValueError, r"expected a share .* got 1\.0"),
        ({"validation": 0.001}, ValueError, "at least one example on each side, got 0 of 24"),
        ({"validation": 0.1, "train": list(loader(data()))}, TypeError, "got list, which comes in batches; split"),
        (
            {"validation": 0.1, "train": DataLoader(Pairs(24), sampler=SubsetRandomSampler(range(24)))},
            TypeError,
            "got DataLoader with a sampler of its own or examples of no known number, which comes in batches; split",
        ),
        ({"validation": 0.1, "validate_every": "step"}, ValueError, "validate_every: expected a number of steps or"),
        ({"validation": 0.1, "validate_every": 0}, ValueError, "validate_every: expected at least 1"),
        ({"validate_every": 10}, ValueError, "validate_every: expected only with validation data"),
        (
            {"validation": (torch.zeros(4, 3), torch.zeros(4))},
            ValueError,
            r"validation: the first batch cannot be scored: inputs: .* fit, \(B, 1\), got \(4, 3\)",
        ),
        ({"validation": (torch.zeros(4, 1), torch.zeros(3))}, ValueError, "inputs and targets of one length"),
    ],
    ids=["above 1", "bool", "too few", "batches", "sampler", "word", "zero", "no data", "network fails", "lengths"],
)
def test_what_cannot_be_validated_on_is_an_error_before_any_work(options, kind, message, monkeypatch):
    monkeypatch.setattr("livi.inference.map_fits.MapStart.run", None)
    with pytest.raises(kind, match=message):
        quick_fit(**options)


def test_what_is_wrong_with_the_validation_examples_is_said_of_these():
    inputs, targets = torch.linspace(-1.0, 1.0, 20)[:, None], torch.zeros(20)
    net = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    wrong = targets.clone()
    wrong[3] = float("nan")
    with pytest.raises(ValueError, match=r"validation: targets: expected finite numbers, got NaN or inf in 1 of 20"):
        livi.fit(net, (inputs, targets), livi.Gaussian(), steps=5, validation=(inputs, wrong), progress=False)
