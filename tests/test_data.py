"""Data of every shape becomes the same batches, in an order that a seed determines."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from livi.model.data import (
    LoaderData,
    TensorData,
    as_data,
    as_tensors,
    default_unpack,
    holds_batches,
    input_batches,
    to_tensor,
)

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


def rows(data, seed):
    return torch.cat([targets for _, targets in data.epoch(seed)]).tolist()


def test_small_tensors_are_one_batch_and_large_ones_shuffled_minibatches():
    small = as_data((torch.randn(10, 2), torch.arange(10)), **KIND)
    assert (small.num_data, small.steps_per_epoch) == (10, 1)
    large = as_data((torch.randn(3000, 2), torch.arange(3000)), **KIND)
    assert large.steps_per_epoch == 12
    assert sorted(rows(large, 0)) == list(range(3000))
    assert rows(large, 0) == rows(large, 0) != rows(large, 1)


def test_the_limit_of_a_full_batch_can_be_lowered():
    data = as_data((torch.randn(300, 2), torch.arange(300)), full_batch=100, **KIND)
    assert data.steps_per_epoch == 2


def test_inputs_and_targets_stay_together():
    x = torch.arange(100.0).reshape(100, 1)
    data = as_data((x, 2 * torch.arange(100)), batch_size=7, **KIND)
    for inputs, targets in data.epoch(3):
        assert torch.equal(2 * inputs[:, 0], targets.double())


def test_arrays_take_the_network_s_dtype_and_labels_stay_integers():
    data = as_data((np.ones((4, 2), np.float32), np.arange(4)), **KIND)
    inputs, targets = data.first()
    assert inputs.dtype == torch.float64
    assert targets.dtype == torch.int64


def test_nested_inputs_are_indexed_together():
    data = as_data(
        ({"a": torch.arange(6.0)[:, None], "b": torch.arange(6.0)[:, None]}, torch.arange(6)), batch_size=2, **KIND
    )
    for inputs, targets in data.epoch(0):
        assert torch.equal(inputs["a"], inputs["b"])
        assert torch.equal(inputs["a"][:, 0], targets.double())


class Noisy(IterableDataset):
    """Seven examples with noise from torch's global stream, as augmentation has it."""

    def __iter__(self):
        yield from ((torch.randn(2), torch.tensor(i)) for i in range(7))


def test_a_loader_without_a_length_is_counted_and_the_global_stream_left_alone():
    state = torch.random.get_rng_state()
    data = as_data(DataLoader(Noisy(), 3), **KIND)
    assert (data.num_data, data.steps_per_epoch) == (7, 3)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_loader_is_counted_by_its_dataset_and_shuffled_by_the_seed():
    loader = DataLoader(TensorDataset(torch.randn(10, 2), torch.arange(10)), batch_size=3, shuffle=True)
    data = as_data(loader, **KIND)
    assert isinstance(data, LoaderData)
    assert (data.num_data, data.steps_per_epoch) == (10, 4)
    state = torch.random.get_rng_state()
    assert rows(data, 0) == rows(data, 0) != rows(data, 1)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_stream_without_a_length_is_counted_by_reading_it():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(torch.ones(2), torch.tensor(float(i))) for i in range(7)])

    data = as_data(DataLoader(Stream(), batch_size=3), **KIND)
    assert (data.num_data, data.steps_per_epoch) == (7, 3)


def test_a_list_of_batches_is_counted_by_reading_it():
    data = as_data([(torch.randn(3, 2), torch.zeros(3)), (torch.randn(2, 2), torch.zeros(2))], **KIND)
    assert (data.num_data, data.steps_per_epoch) == (5, 2)


@pytest.mark.parametrize(
    ("batch", "inputs", "target"),
    [
        ((1, 2), 1, 2),
        ([1, 2, 3], (1, 2), 3),
        ({"input_ids": 1, "mask": 2, "labels": 3}, {"input_ids": 1, "mask": 2}, 3),
    ],
)
def test_usual_batches_unpack_themselves(batch, inputs, target):
    assert default_unpack(batch) == (inputs, target)


def test_other_batches_need_unpack():
    batches = [{"image": torch.ones(2, 3), "class_index": torch.zeros(2)}]
    with pytest.raises(TypeError, match="pass unpack=lambda batch"):
        as_data(batches, **KIND)
    data = as_data(batches, unpack=lambda batch: (batch["image"], batch["class_index"]), **KIND)
    assert data.num_data == 2


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ((torch.ones(3, 2), torch.ones(4)), ValueError, r"one length >= 1, got inputs \(3, 2\) and targets \(4,\)"),
        ((torch.ones(0, 2), torch.ones(0)), ValueError, "one length >= 1"),
        ((torch.full((3, 2), torch.nan), torch.ones(3)), ValueError, "inputs: expected finite numbers"),
        ((torch.ones(3, 2), torch.tensor([1.0, torch.inf, 1.0])), ValueError, "targets: expected finite numbers"),
        (iter([]), TypeError, "got an iterator; pass a list of it"),
        ([], ValueError, "expected batches, got none"),
        (torch.ones(3), TypeError, "expected a DataLoader"),
        ("data.csv", TypeError, "got str"),
    ],
)
def test_bad_data_is_a_clear_error(data, error, message):
    with pytest.raises(error, match=message):
        as_data(data, **KIND)


def test_batches_are_of_one_size_and_hold_every_example_at_least_once():
    data = as_data((torch.randn(2305, 2), torch.arange(2305)), **KIND)
    batches = [targets for _, targets in data.epoch(0)]
    assert len(batches) == data.steps_per_epoch == 10
    assert {len(targets) for targets in batches} == {231}
    assert all(len(targets.unique()) == 231 for targets in batches)
    assert len(torch.cat(batches).unique()) == 2305


def test_a_subset_sampler_counts_its_subset_and_other_samplers_must_say():
    dataset = TensorDataset(torch.randn(100, 2), torch.arange(100))
    subset = DataLoader(dataset, batch_size=8, sampler=SubsetRandomSampler(range(30)))
    assert as_data(subset, **KIND).num_data == 30
    weighted = DataLoader(dataset, batch_size=8, sampler=WeightedRandomSampler(torch.ones(100), 40))
    with pytest.raises(ValueError, match="say how many examples the likelihood stands for with num_data"):
        as_data(weighted, **KIND)
    assert as_data(weighted, num_data=100, **KIND).num_data == 100


def test_augmentation_by_torch_follows_the_epoch_s_seed():
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + torch.randn(2), y

    data = as_data(DataLoader(Noisy(torch.zeros(9, 2), torch.arange(9)), batch_size=3), **KIND)
    one = torch.cat([x for x, _ in data.epoch(5)])
    torch.rand(3)
    torch.testing.assert_close(torch.cat([x for x, _ in data.epoch(5)]), one, rtol=0, atol=0)


def test_a_batch_size_belongs_to_tensors():
    with pytest.raises(ValueError, match="num_data, unpack: expected only with batches"):
        as_data((torch.ones(2, 1), torch.ones(2)), num_data=5, **KIND)
    with pytest.raises(ValueError, match="only with"):
        as_data([(torch.ones(2, 1), torch.ones(2))], batch_size=1, **KIND)
    assert TensorData(torch.ones(5, 1), torch.ones(5), 100).batch_size == 5


@pytest.mark.parametrize("count", [2, 3])
def test_batches_that_are_single_tensors_can_be_unpacked(count):
    data = as_data([torch.ones(4, 3)] * count, unpack=lambda batch: (batch[:, :2], batch[:, 2]), **KIND)
    assert data.num_data == 4 * count


X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
Y = [0.5, 1.5, 2.5]
TABLE = pd.DataFrame({"a": [1.0, 3.0, 5.0], "b": [2, 4, 6], "kind": ["x", "y", "x"]})


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        (torch.tensor(X), Y),
        [torch.tensor(X), torch.tensor(Y)],
        [np.array(X), np.array(Y)],
        (TABLE[["a", "b"]], pd.Series(Y)),
        (TABLE[["a", "b"]].astype(object), Y),
        (np.array(X).astype(">f8"), np.array(Y)[::-1][::-1]),
        TensorDataset(torch.tensor(X), torch.tensor(Y)),
    ],
    ids=["lists", "list", "mixed", "tensors", "arrays", "table", "objects", "strange arrays", "dataset"],
)
def test_a_pair_of_anything_that_holds_numbers_is_a_pair_of_tensors(data):
    inputs, targets = as_data(data, **KIND).first()
    assert torch.equal(inputs, torch.tensor(X, dtype=torch.float64))
    assert torch.equal(targets, torch.tensor(Y, dtype=torch.float64))


def test_two_batches_are_not_taken_for_a_pair():
    batch = torch.tensor(X), torch.tensor(Y)
    for data in ([batch, batch], (batch, batch), [list(batch), list(batch)]):
        assert as_data(data, **KIND).num_data == 6


def test_a_data_set_is_put_into_shuffled_batches():
    class Examples(torch.utils.data.Dataset):
        def __len__(self):
            return 300

        def __getitem__(self, index):
            return torch.ones(2), index

    data = as_data(Examples(), **KIND)
    assert (data.num_data, data.steps_per_epoch) == (300, 2)
    assert sorted(rows(data, 0)) == list(range(300)) != rows(data, 0)
    assert as_data(Examples(), batch_size=100, **KIND).steps_per_epoch == 3
    assert as_data(Subset(Examples(), range(10)), **KIND).num_data == 10


def test_words_beside_the_numbers_are_left_alone():
    inputs = {"text": ["a", "b"], "size": [1, 2], "mode": "fast", "none": None}
    found = as_tensors(inputs, *KIND.values())
    assert found["text"] == ["a", "b"]
    assert torch.equal(found["size"], torch.tensor([1, 2]))
    assert (found["mode"], found["none"]) == ("fast", None)


def test_the_memory_of_a_table_is_not_shared():
    column = pd.Series([1.0, 2.0])
    to_tensor("x", column).zero_()
    assert column.tolist() == [1.0, 2.0]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.ones(2), torch.tensor(1.0))])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (TABLE, TypeError, r"got a DataFrame; pass \(table\[features\], table\[target\]\)"),
        ((TABLE, Y), TypeError, "inputs: expected numbers, got str 'x' in column 'kind'; encode words"),
        ((TABLE[["a"]], TABLE["kind"]), TypeError, "targets: expected numbers, got str 'x'; encode words"),
        ((X, ["x", "y", "x"]), TypeError, "targets: expected numbers, got str 'x'"),
        ((["x", "y", "x"], Y), TypeError, "inputs: expected numbers, got str 'x'"),
        ((pd.Series([1, None, 2], dtype=object), Y), TypeError, "got NoneType None; .*impute what is missing"),
        ((pd.array([1, None, 2]), Y), ValueError, "inputs: expected finite numbers, got NaN"),
        (((), Y), ValueError, "inputs of nothing and targets"),
        (("train.csv", Y), TypeError, "inputs: expected tensors, arrays or lists of numbers, got str"),
        (([[1.0], [1.0, 2.0], [3.0]], Y), ValueError, "inputs: expected rows of one length"),
        ((np.array(X), 3.0), TypeError, "a tuple of 2 with an array in it"),
        ((torch.ones(3), torch.ones(3), torch.ones(3)), TypeError, r"several inputs are a tuple: \(\(x1, x2\), y\)"),
        ((torch.ones(3), (torch.ones(3), torch.ones(3))), TypeError, "several targets the columns of one array"),
        (np.ones((3, 2)), TypeError, r"expected a DataLoader, an \(X, y\) tuple .* got ndarray"),
        ({"x": X, "y": Y}, TypeError, "got dict; read files and take inputs and targets apart"),
        (Stream(), TypeError, "got Stream, which gives examples; wrap it in a DataLoader"),
        ([(1.0, 2.0), (3.0, 4.0)], TypeError, "got float; put single examples into a DataLoader"),
        ([(torch.ones(2), torch.tensor(1.0))] * 3, ValueError, "got a single number; use a DataLoader"),
        ((torch.ones(3, 2), torch.tensor(1.0)), ValueError, r"got inputs \(3, 2\) and targets \(\)"),
    ],
)
def test_what_is_no_data_says_what_to_pass(data, error, message):
    with pytest.raises(error, match=message):
        as_data(data, **KIND)


@pytest.mark.parametrize(("bad", "name"), [(0, "inputs"), (1, "targets")])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("index", [0, 2])
def test_the_batch_with_a_number_that_is_none_is_named(index, bad, name, value):
    batches = [[torch.ones(2, 1), torch.ones(2)] for _ in range(3)]
    batches[index][bad][1] = value
    data = as_data(batches, **KIND)
    with pytest.raises(ValueError, match=f"batch {index}: {name}: expected finite numbers, got NaN or inf"):
        list(data.epoch(0))


def test_large_finite_numbers_are_finite():
    huge = torch.full((10, 1), torch.finfo(torch.float32).max)
    assert as_data((huge, huge[:, 0]), **KIND).num_data == 10


# --- inputs alone ---------------------------------------------------------------------------------


XS, YS = torch.arange(12.0).reshape(6, 2), torch.arange(6)


class Several:
    """An iterable of batches that is nothing else."""

    def __iter__(self):
        return iter([(XS[:4], YS[:4]), (XS[4:], YS[4:])])


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(TensorDataset(XS, YS), batch_size=4),
        DataLoader(TensorDataset(XS), batch_size=4),
        DataLoader(XS, batch_size=4),
        TensorDataset(XS, YS),
        [(XS[:4], YS[:4]), (XS[4:], YS[4:])],
        [[XS[:4]], [XS[4:]]],
        Several(),
        (x for x in (XS[:4], XS[4:])),
    ],
    ids=["pairs", "ones", "tensors", "data set", "list", "list of ones", "iterable", "iterator"],
)
def test_inputs_of_every_kind_of_batches_come_in_order_without_targets(data):
    assert holds_batches(data)
    before = torch.random.get_rng_state()
    torch.testing.assert_close(torch.cat(list(input_batches(data))), XS)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("batch", "inputs"),
    [
        ((XS, XS + 1, YS), (XS, XS + 1)),
        ({"image": XS, "mask": XS + 1, "labels": YS}, {"image": XS, "mask": XS + 1}),
        ({"image": XS, "mask": XS + 1}, {"image": XS, "mask": XS + 1}),
        ({"image": XS}, {"image": XS}),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]),
    ],
    ids=["two and a target", "dict", "dict without target", "one in a dict", "numbers"],
)
def test_a_batch_loses_its_target_by_the_rule_of_fitting_and_nothing_else(batch, inputs):
    [found] = input_batches(iter([batch]))
    torch.testing.assert_close(found, inputs)


def test_two_inputs_without_a_target_need_unpack():
    [found] = input_batches(iter([(XS, XS + 1)]), unpack=lambda batch: (batch, None))
    torch.testing.assert_close(found, (XS, XS + 1))


@pytest.mark.parametrize(
    "inputs",
    [
        XS,
        XS.numpy(),
        [[1.0, 2.0]],
        [1, 2],
        [XS, XS],
        (XS, XS),
        {"x": XS},
        [],
        None,
        3,
        "words",
        pd.DataFrame({"a": [1.0]}),
    ],
    ids=["tensor", "array", "rows", "row", "tensors", "tuple", "dict", "nothing", "none", "int", "str", "table"],
)
def test_the_inputs_of_one_call_are_no_batches(inputs):
    assert not holds_batches(inputs)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataLoader(TensorDataset(XS, YS), batch_size=2, shuffle=True), "that shuffles.*shuffle=False"),
        (
            DataLoader(TensorDataset(XS, YS), batch_size=4, drop_last=True),
            "got all but 2; pass drop_last=False",
        ),
        (iter(()), "expected batches, got none"),
    ],
)
def test_batches_whose_results_could_not_be_matched_with_examples_are_an_error(data, message):
    with pytest.raises(ValueError, match=message):
        list(input_batches(data))


def test_a_loader_that_drops_nothing_may_say_drop_last():
    assert len(list(input_batches(DataLoader(TensorDataset(XS, YS), batch_size=3, drop_last=True)))) == 2
