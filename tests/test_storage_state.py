"""Nested state and checkpoints: everything comes back as it was."""

import json
from collections import Counter, OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.saved_posteriors import affine, assert_identical, network, same

from livi.posterior import storage
from livi.posterior.storage import StorageError, flatten_state, load_parts, save_posterior, unflatten_state

TENSOR_KINDS = st.sampled_from(
    [
        torch.tensor(1.5),
        torch.arange(3),
        torch.zeros(0, 2),
        torch.tensor([True]),
        torch.tensor([1.0, float("nan")]).bfloat16(),
        torch.Generator().manual_seed(3).get_state(),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.booleans() | st.none()
STATES = st.recursive(
    SCALARS | TENSOR_KINDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(prefix=st.text(max_size=5), state=STATES)
def test_nested_state_comes_back_exactly(prefix, state):
    tensors, skeleton = flatten_state(prefix, state)
    text = json.dumps(skeleton, allow_nan=False)
    assert all(name.isascii() and name.isprintable() for name in tensors)
    assert_identical(unflatten_state(tensors, json.loads(text)), state)


@settings(max_examples=25, deadline=None)
@given(state=STATES)
def test_nested_state_comes_back_exactly_from_a_file(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "checkpoint"
    storage.write_checkpoint(path, state)
    assert_identical(storage.read_checkpoint(path), state)


def test_tensors_have_readable_and_different_names():
    one = torch.ones(1)
    tensors, _ = flatten_state("adam", {"state": {0: {"step": one}, "0": {"step": one}}, "state.0": [one], "ä b": one})
    assert list(tensors) == ["adam.state.0.step", "adam.state.0.step~2", "adam.state.0.0", "adam.__b"]


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ({"a": [0, {1}]}, r"run\.a\.1: expected None, numbers, .*got set; convert or drop it"),
        ({"optimiser": {torch.ones(1): 2}}, r"run\.optimiser: expected keys that are .*got Tensor"),
        (lambda: 1, "run: expected .*got function"),
    ],
)
def test_state_of_another_kind_is_named(state, match):
    with pytest.raises(TypeError, match=match):
        flatten_state("run", state)


def test_a_skeleton_without_its_tensors_is_refused():
    _, skeleton = flatten_state("a", {"b": torch.ones(1)})
    with pytest.raises(ValueError, match=r"got tensor 'a.b'; pass all of its tensors"):
        unflatten_state({}, skeleton)
    with pytest.raises(ValueError, match="got object"):
        unflatten_state({}, {"object": {"class": "MLP", "arguments": {}}})


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_an_interrupted_optimisation_goes_on_bit_for_bit(path, name):
    def start():
        net = network()
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimiser = getattr(torch.optim, name)(net.parameters(), lr=0.01, **options)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 3, 3], gamma=0.3)
        return net, optimiser, scheduler, torch.Generator().manual_seed(1)

    def run(net, optimiser, scheduler, rng, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            net(torch.randn(8, 2, generator=rng)).square().mean().backward()
            optimiser.step()
            scheduler.step()

    torch.manual_seed(0)
    net, *rest = start()
    run(net, *rest, 3)
    optimiser, scheduler, rng = rest
    assert isinstance(scheduler.state_dict()["milestones"], Counter)
    parts = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "scheduler": scheduler.state_dict()}
    storage.write_checkpoint(path, parts | {"rng": rng.get_state()})
    run(net, *rest, 4)

    torch.manual_seed(99)
    again, optimiser, scheduler, rng = start()
    state = storage.read_checkpoint(path)
    again.load_state_dict(state["net"])
    optimiser.load_state_dict(state["optimiser"])
    scheduler.load_state_dict(state["scheduler"])
    rng.set_state(state["rng"])
    run(again, optimiser, scheduler, rng, 4)
    for one, other in zip(net.parameters(), again.parameters(), strict=True):
        same(one, other)
    assert scheduler.state_dict() == rest[1].state_dict()


def test_kinds_of_files_are_told_apart(path):
    storage.write_checkpoint(path, {"step": 1})
    with pytest.raises(StorageError, match="expected a posterior, got a checkpoint"):
        load_parts(path, network())
    save_posterior(path, affine())
    with pytest.raises(StorageError, match="expected a checkpoint, got a posterior"):
        storage.read_checkpoint(path)
