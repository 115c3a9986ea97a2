"""Many weight vectors at once: strategies, falling back, what is counted."""

from __future__ import annotations

import pytest
import torch
from support.networks import Net, assert_unchanged, snapshot
from torch import Tensor, nn

from livi.network import Layout, Loop, Vmap, apply_many, multiplications, suitable_strategy
from livi.network.evaluation import out_of_memory


def test_apply_many_stacks_structured_outputs():
    net = nn.Linear(2, 3)
    layout = Layout(net, forward=lambda module, x: {"out": module(x), "parts": (module(x).sum(), x)})
    x, theta = torch.randn(4, 2), torch.randn(5, layout.num_params)
    for strategy in (Vmap(), Vmap(chunk_size=2), Loop()):
        outputs = apply_many(layout, theta, x, strategy=strategy)
        assert outputs["out"].shape == (5, 4, 3)
        assert outputs["parts"][0].shape == (5,)
        torch.testing.assert_close(outputs["parts"][1], x.expand(5, 4, 2))


@pytest.mark.parametrize("strategy", ["vmap", Vmap, Loop, 2])
def test_strategy_is_an_object(strategy):
    with pytest.raises(TypeError, match=r"strategy: expected livi\.Vmap\(\), livi\.Loop\(\) or None"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(2, 3), torch.zeros(4, 2), strategy=strategy)


def test_chunk_size_must_be_positive():
    with pytest.raises(ValueError, match="chunk_size"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(2, 3), torch.zeros(4, 2), strategy=Vmap(chunk_size=0))


def test_module_that_decides_by_its_values_falls_back_to_the_loop():
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        out = module(x)
        return out if out.sum() > 0 else -2 * out

    layout = Layout(nn.Linear(2, 1), forward=forward)
    x, theta = torch.rand(4, 2), torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    torch.testing.assert_close(apply_many(layout, theta, x), apply_many(layout, theta, x, strategy=Loop()))
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        apply_many(layout, theta, x, strategy=Vmap())


def test_error_of_the_module_itself_reaches_the_user():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(2, 3), torch.zeros(4, 5))


def failing(error: Exception, calls: list[int]) -> Layout:
    """A linear network that raises an error of its own and counts how often."""

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        calls.append(1)
        raise error

    return Layout(nn.Linear(2, 1), forward=forward)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried 8 TB."),
    ],
    ids=["cuda", "cpu"],
)
def test_out_of_memory_is_raised_at_once_and_not_tried_again(error):
    calls: list[int] = []
    with pytest.raises(RuntimeError, match="allocate") as caught:
        apply_many(failing(error, calls), torch.zeros(2, 3), torch.zeros(4, 2))
    assert caught.value is error
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="allocate"):
        suitable_strategy(failing(error, calls), torch.zeros(4, 2))
    assert len(calls) == 2


def test_the_cpu_runs_out_of_memory_with_the_words_that_are_looked_for():
    layout = Layout(nn.Linear(2, 1), forward=lambda module, x: module(x) + torch.empty(2**57)[0])
    with pytest.raises(RuntimeError) as caught:
        apply_many(layout, torch.zeros(2, 3), torch.zeros(4, 2))
    assert out_of_memory(caught.value)


def test_an_error_of_the_module_itself_comes_alone_after_one_more_run():
    calls: list[int] = []
    with pytest.raises(RuntimeError, match="expected a mask") as caught:
        apply_many(failing(RuntimeError("expected a mask"), calls), torch.zeros(5, 3), torch.zeros(4, 2))
    assert len(calls) == 2  # under vmap, and at the first theta without
    assert caught.value.__cause__ is None
    with pytest.raises(RuntimeError, match="expected a mask"):
        suitable_strategy(failing(RuntimeError("expected a mask"), calls), torch.zeros(4, 2))


def test_an_lstm_is_looped_over():
    layout = Layout(nn.LSTM(2, 3, batch_first=True), forward=lambda module, x: module(x)[0])
    theta, x = torch.randn(3, layout.num_params), torch.randn(4, 5, 2)
    torch.testing.assert_close(apply_many(layout, theta, x), apply_many(layout, theta, x, strategy=Loop()))
    assert suitable_strategy(layout, x) == Loop()


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ({"norm.runing_mean": torch.zeros(4)}, r"got 'norm\.runing_mean'; known: \['norm\.num_batches_tracked'"),
        ({"norm.weight": torch.zeros(4)}, "expected the module's buffer names"),
        ({"norm.running_mean": torch.zeros(5)}, r"expected shape \(4,\).*got \(5,\)"),
        ({"norm.running_mean": torch.zeros(3, 4)}, r"expected shape \(4,\).*got \(3, 4\)"),
    ],
)
def test_unknown_or_misshapen_buffers_are_an_error(buffers, message):
    layout = Layout(Net())
    x, theta = torch.randn(3, 2, 4, 4), layout.flatten()
    with pytest.raises(ValueError, match=message):
        layout.apply(theta, x, buffers=buffers)
    with pytest.raises(ValueError, match=message):
        apply_many(layout, theta.expand(2, -1), x, buffers=buffers)


def test_the_strategy_follows_from_the_module_and_its_sizes():
    x = torch.randn(3, 4, 2)
    rnn = Layout(nn.RNN(2, 3, batch_first=True), forward=lambda module, x: module(x)[0])
    assert suitable_strategy(rnn, x) == Loop()  # which vmap cannot batch
    net = Net()
    before = snapshot(net)
    assert suitable_strategy(Layout(net), torch.randn(3, 2, 4, 4)) == Vmap()
    assert_unchanged(net, before)
    convolution = Layout(nn.Conv2d(1, 16, 3))
    assert suitable_strategy(convolution, torch.randn(2, 1, 8, 8)) == Vmap()
    assert suitable_strategy(convolution, torch.randn(64, 1, 28, 28)) == Loop()  # slow as a grouped one, on a CPU
    assert suitable_strategy(Layout(nn.Linear(500, 500)), torch.randn(64, 500)) == Vmap()


def test_no_clock_decides_how_many_weight_vectors_are_evaluated(monkeypatch):
    def refuse() -> float:
        raise AssertionError("a clock was read")

    monkeypatch.setattr("time.perf_counter", refuse)
    assert suitable_strategy(Layout(nn.Linear(2, 1)), torch.zeros(4, 2)) == Vmap()


def test_a_strategy_is_not_chosen_for_a_module_that_cannot_run():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        suitable_strategy(Layout(nn.Linear(2, 1)), torch.zeros(4, 5))


def test_multiplications_are_counted_for_tokens_pixels_and_time_steps():
    assert multiplications(Layout(nn.Linear(4, 3, bias=False)), torch.zeros(5, 4)) == 5 * 12
    assert multiplications(Layout(nn.Linear(4, 3, bias=False)), torch.zeros(5, 7, 4)) == 5 * 7 * 12
    assert multiplications(Layout(nn.Conv2d(1, 2, 3, bias=False)), torch.zeros(5, 1, 6, 6)) == 5 * 16 * 18
    lstm = Layout(nn.LSTM(2, 3, batch_first=True), forward=lambda module, x: module(x)[0])
    assert multiplications(lstm, torch.zeros(5, 7, 2)) == 5 * 7 * lstm.num_params
    own = Layout(nn.ParameterDict({"a": torch.ones(6)}), forward=lambda module, x: x + module["a"].sum())
    assert multiplications(own, torch.zeros(5, 1)) == 5 * 6  # at least one for each weight and example


def test_what_is_fixed_and_comes_first_counts_once_for_all_weight_vectors():
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 676, 4), nn.Linear(4, 2))
    head, x = Layout(net, include="3.*"), torch.randn(8, 1, 28, 28)
    before, own, after = 8 * 16 * 676 * 9, 8 * 16 * 676 * 4, 8 * 8
    assert multiplications(head, x) == before + own + after
    assert multiplications(head, x, strategy=Loop()) == before + own + after
    assert multiplications(head, x, strategy=Vmap()) == own + after
    assert multiplications(Layout(net), x, strategy=Vmap()) >= before + own + after
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))  # which is written out, without torch's vmap
    rows = torch.randn(7, 6)
    assert (
        multiplications(Layout(plain, include="2.*"), rows, strategy=Vmap()) == 7 * 24
    )  # one for each weight at least
    assert multiplications(Layout(plain, include="2.weight"), rows, strategy=Vmap()) == 7 * 20


def test_convolutions_with_fixed_weights_are_vectorised_on_a_cpu():
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 576, 4))
    x = torch.randn(64, 1, 28, 28)
    assert suitable_strategy(Layout(net), x) == Loop()
    assert suitable_strategy(Layout(net, include="3.*"), x) == Vmap()
    assert suitable_strategy(Layout(net, include="1.*"), x) == Loop()
