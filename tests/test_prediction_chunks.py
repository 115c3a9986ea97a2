"""Outputs of many weights: in any chunks, below a memory limit, as functions of the inputs."""

import math

import pytest
import torch
from support.samplers import convolutional, sampler_for, x_for
from torch import nn

from livi import Categorical, Loop, Posterior, Vmap, apply_many, estimate_statistics
from livi.posterior.prediction import FunctionDraws, evaluate
from livi.posterior.prediction import chunks as chunking


class Coupled(nn.Module):
    """Every output depends on the whole batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Recurrent(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.cell = nn.LSTM(3, 4, batch_first=batch_first)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.cell(x)[0])


class Similarity(nn.Module):
    """Of each x to each row of a table, or to its own row."""

    def __init__(self, paired):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.paired = paired

    def forward(self, x, table):
        return (self.layer(x) * table) if self.paired else self.layer(x) @ table.T


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, *, scale, power=1):
        return self.layer(x) * scale[:, None] ** power


CASES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), lambda: x_for(11, 3)),
    "convolutional": (convolutional, lambda: x_for(11, 1, 6, 6)),
    "recurrent": (Recurrent, lambda: x_for(11, 5, 3)),
    "time first": (lambda: Recurrent(batch_first=False), lambda: x_for(11, 5, 3)),
    "coupled": (Coupled, lambda: x_for(11, 3)),
    "keywords": (Keywords, lambda: {"x": x_for(11, 3), "scale": x_for(11).exp(), "power": 2}),
    "positional": (lambda: Similarity(paired=True), lambda: (x_for(11, 3), x_for(11, 2))),
    "two leading sizes": (lambda: Similarity(paired=False), lambda: (x_for(11, 3), x_for(7, 2))),
    "one leading size by chance": (lambda: Similarity(paired=False), lambda: (x_for(11, 3), x_for(11, 2))),
}


UNBATCHABLE = ("recurrent", "time first")  # vmap has no rule for LSTM
STRATEGIES = [
    (case, strategy)
    for case in CASES
    for strategy in (None, Vmap(2), Loop())
    if case not in UNBATCHABLE or not isinstance(strategy, Vmap)
]


@pytest.mark.parametrize("memory_limit", [1, 3_000, 40_000, None])
@pytest.mark.parametrize(("case", "strategy"), STRATEGIES)
def test_chunks_do_not_change_the_outputs(case, memory_limit, strategy):
    build, inputs = CASES[case]
    sampler, batch = sampler_for(build()), inputs()
    args, kwargs = chunking.as_call(batch)
    whole = torch.stack([sampler.layout.apply(row, *args, **kwargs) for row in sampler.theta])
    outputs = evaluate(sampler.layout, sampler.theta, batch, memory_limit=memory_limit, strategy=strategy)
    torch.testing.assert_close(outputs, whole)


def watched_calls(monkeypatch):
    calls = []

    def recording(layout, theta, *args, **kwargs):
        calls.append((theta.shape[0], args[0].shape[0]))
        return apply_many(layout, theta, *args, **kwargs)

    monkeypatch.setattr(chunking, "apply_many", recording)
    return calls


@pytest.mark.parametrize("batch", [30, 150])
@pytest.mark.parametrize("memory_limit", [100_000, 1_000_000])
@pytest.mark.parametrize("build", [convolutional, CASES["perceptron"][0]], ids=["convolutional", "perceptron"])
def test_activations_stay_below_the_memory_limit(monkeypatch, build, memory_limit, batch):
    sampler = sampler_for(build(), num_samples=40)
    x = x_for(batch, 1, 6, 6) if build is convolutional else x_for(batch, 3)
    calls = watched_calls(monkeypatch)
    with torch.no_grad(), chunking._Watch() as watch:
        outputs = evaluate(sampler.layout, sampler.theta, x, memory_limit=memory_limit)
    result = outputs.untyped_storage().nbytes()
    assert max(watch.levels) <= memory_limit + 2 * result  # chunks, and what they are joined into
    assert sum(s * b for s, b in calls) >= 40 * batch
    # Not by being timid: the largest chunk takes a good part of the limit, or is everything.
    with torch.no_grad(), chunking._Watch() as alone:
        s, b = max(calls, key=math.prod)
        apply_many(sampler.layout, sampler.theta[:s], x[:b])
    assert max(alone.levels) > memory_limit / 5 or (s, b) == (40, batch)


def test_on_a_cpu_weight_vectors_together_take_no_more_than_the_c_library_keeps(monkeypatch):
    calls = watched_calls(monkeypatch)
    sampler = sampler_for(nn.Sequential(nn.Linear(3, 100), nn.Tanh(), nn.Linear(100, 1)), num_samples=40)
    x = x_for(4_000, 3)
    with torch.no_grad(), chunking._Watch() as watch:
        outputs = evaluate(sampler.layout, sampler.theta, x)
    assert max(watch.levels) <= 2**25 + 2 * outputs.untyped_storage().nbytes()
    assert {examples for _, examples in calls[3:]} == {4_000}  # of which none are split, far from the limit of a GiB
    assert max(rows for rows, _ in calls) > 1


def test_a_network_is_measured_once_for_inputs_of_a_kind(monkeypatch):
    measured, levels = [], chunking._levels

    def counted(outputs, call):
        measured.append(call[0][0].shape)
        return levels(outputs, call)

    monkeypatch.setattr(chunking, "_levels", counted)
    sampler, other = sampler_for(convolutional()), sampler_for(convolutional())
    few, many = x_for(5, 1, 6, 6), x_for(40, 1, 6, 6)
    whole = apply_many(sampler.layout, sampler.theta, many)
    for x in (few, many, few):
        evaluate(sampler.layout, sampler.theta, x)
    assert measured == [(1, 1, 6, 6), (4, 1, 6, 6)]
    for limit in (20_000, None):  # the same numbers, whatever they are held against
        torch.testing.assert_close(evaluate(sampler.layout, sampler.theta, many, memory_limit=limit), whole)
    assert len(measured) == 2
    evaluate(sampler.layout, sampler.theta, many[:1])  # nothing is known of one alone
    evaluate(sampler.layout, sampler.theta, many.clone().requires_grad_())  # which keeps more
    evaluate(sampler.layout, sampler.theta, many, strategy=Loop())
    evaluate(other.layout, other.theta, many)
    assert len(measured) == 2 + 4 * 2


def test_what_is_known_of_a_network_is_of_so_many_kinds_of_inputs_at_most():
    sampler = sampler_for(Recurrent())
    for length in range(1, chunking._MOST_KINDS + 3):
        evaluate(sampler.layout, sampler.theta[:1], x_for(2, length, 3))
    assert len(chunking._COSTS[sampler.layout]) == chunking._MOST_KINDS


def test_examples_that_depend_on_each_other_are_not_split(monkeypatch):
    calls = watched_calls(monkeypatch)
    for case in ("coupled", "time first"):
        sampler, x = sampler_for(CASES[case][0]()), CASES[case][1]()
        calls.clear()
        evaluate(sampler.layout, sampler.theta, x, memory_limit=1)
        assert calls[-6:] == [(1, 11)] * 6
    sampler, x = sampler_for(CASES["perceptron"][0]()), CASES["perceptron"][1]()
    evaluate(sampler.layout, sampler.theta, x, memory_limit=1)
    assert calls[-11:] == [(1, 1)] * 11


def test_an_error_of_the_module_itself_reaches_the_user():
    sampler = sampler_for(nn.Linear(3, 1))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        evaluate(sampler.layout, sampler.theta, torch.ones(4, 2))


@pytest.mark.parametrize("memory_limit", [1, 20_000, None])
@pytest.mark.parametrize("per_sample", [True, False])
def test_batch_norm_statistics_go_with_their_samples(per_sample, memory_limit):
    sampler = sampler_for(convolutional())
    x = x_for(11, 1, 6, 6)
    buffers = estimate_statistics(sampler.layout, sampler.theta, [2.0 * x + 1.0], per_sample=per_sample)
    posterior = Posterior(sampler, Categorical(), buffers=buffers)
    prediction = posterior.predict(x, num_samples=6, memory_limit=memory_limit)
    for i, row in enumerate(sampler.theta):
        own = {name: buffer[i] if per_sample else buffer for name, buffer in buffers.items()}
        torch.testing.assert_close(prediction.logits[i], sampler.layout.apply(row, x, buffers=own))


def test_draws_are_joint_functions_of_the_inputs():
    sampler = sampler_for(CASES["perceptron"][0]())
    draws = FunctionDraws(sampler.layout, sampler.theta)
    one, two = x_for(4, 3), x_for(9, 3)[4:]
    torch.testing.assert_close(draws(torch.cat([one, two])), torch.cat([draws(one), draws(two)], 1))
    assert len(draws) == 6
    assert draws(one).shape == (6, 4, 1)
    torch.testing.assert_close(draws[-1](one), draws(one)[-1])
    torch.testing.assert_close(draws[1:3](one), draws(one)[1:3])
    torch.testing.assert_close(torch.stack([draw(one) for draw in draws]), draws(one))
    assert torch.equal(draws[2].theta, sampler.theta[2])
    with pytest.raises(IndexError, match="expected -6 to 5, got 6"):
        draws[6]


def test_draws_take_their_rows_of_the_buffers():
    sampler = sampler_for(convolutional())
    x = x_for(11, 1, 6, 6)
    buffers = estimate_statistics(sampler.layout, sampler.theta, [2.0 * x + 1.0], per_sample=True)
    draws = FunctionDraws(sampler.layout, sampler.theta, buffers)
    torch.testing.assert_close(draws[3](x), draws(x)[3])


def test_drawn_functions_can_be_differentiated_in_their_inputs():
    sampler = sampler_for(CASES["perceptron"][0]())
    for memory_limit in (1, None):
        draws = FunctionDraws(sampler.layout, sampler.theta, memory_limit=memory_limit)
        x = x_for(4, 3).requires_grad_()
        gradient = torch.autograd.grad(draws(x)[2].sum(), x)[0]
        step = torch.zeros_like(x)
        step[1, 2] = 1e-6
        numeric = (draws(x + step)[2] - draws(x - step)[2]).sum() / 2e-6
        torch.testing.assert_close(gradient[1, 2], numeric, rtol=1e-6, atol=1e-8)
