"""Any module: the same conformance tests over architectures that have little in common.

A new architecture is covered by every test here the moment it is listed in CASES.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from support.modules import (
    BATCH,
    CLASSES,
    Encoder,
    Keywords,
    LanguageModel,
    Pretrained,
    Recurrent,
    Repeated,
    ReturnsDict,
    Scalars,
    TakesDict,
    TwoInputs,
    group_norm_cnn,
    lenet,
    mlp,
    pick_logits,
    segmenter,
    wide_resnet,
)
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import livi
from livi.model.likelihoods import Likelihood
from livi.network import as_call

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


# --- the cases ------------------------------------------------------------------------------------


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def labels(count: int, *shape: int) -> Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(2))


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    num_params: int
    inputs: Callable[[], Any]  # as Bound and estimate_statistics take them
    targets: Callable[[], Tensor] = lambda: labels(CLASSES, BATCH)
    likelihood: Callable[[], Likelihood] = livi.Categorical
    options: Mapping[str, Any] = field(default_factory=dict)  # of the layout
    batchable: bool = True  # vmap can evaluate it

    def layout(self, device: str = "cpu") -> livi.Layout:
        return livi.Layout(self.build().to(device), **self.options)

    def call(self, module: nn.Module) -> Any:
        """The module's own answer, without livi."""
        args, kwargs = as_call(self.inputs())
        return self.options.get("forward", lambda module, *args, **kwargs: module(*args, **kwargs))(
            module, *args, **kwargs
        )


CASES = {
    "MLP": Case(mlp, 109, lambda: numbers(BATCH, 5), lambda: numbers(BATCH), lambda: livi.Gaussian(0.5)),
    "LeNet": Case(lenet, 44_426, lambda: numbers(BATCH, 1, 28, 28), lambda: labels(10, BATCH)),
    "WideResNet": Case(wide_resnet, 3_387, lambda: numbers(BATCH, 3, 8, 8)),
    "GroupNorm CNN": Case(group_norm_cnn, 381, lambda: numbers(BATCH, 2, 8, 8)),
    "segmenter": Case(segmenter, 271, lambda: numbers(BATCH, 2, 6, 6), lambda: labels(CLASSES, BATCH, 6, 6)),
    "transformer": Case(Encoder, 615, lambda: labels(7, BATCH, 5)),
    "LSTM": Case(lambda: Recurrent(nn.LSTM), 458, lambda: numbers(BATCH, 6, 3), batchable=False),
    "GRU": Case(lambda: Recurrent(nn.GRU), 348, lambda: numbers(BATCH, 6, 3), batchable=False),
    "tied weights": Case(LanguageModel, 84, lambda: labels(7, BATCH, 5), lambda: labels(7, BATCH, 5)),
    "shared submodule": Case(Repeated, 48, lambda: numbers(BATCH, 5)),
    "scalars and a buffer": Case(Scalars, 20, lambda: numbers(BATCH, 5)),
    "two inputs": Case(TwoInputs, 67, lambda: (numbers(BATCH, 5), numbers(BATCH, 3))),
    "keywords": Case(Keywords, 18, lambda: {"features": numbers(BATCH, 5), "mask": labels(2, BATCH, 5)}),
    "takes a dict": Case(TakesDict, 18, lambda: ({"features": numbers(BATCH, 5), "bias": numbers(CLASSES)},)),
    "returns a dict": Case(ReturnsDict, 39, lambda: numbers(BATCH, 5), options={"forward": pick_logits}),
    "last layer": Case(Pretrained, 51, lambda: numbers(BATCH, 2, 6, 6), options={"exclude": "backbone.*"}),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def moved(values: Any, device: str) -> Any:
    return pytree.tree_map(lambda value: value.to(device), values)


def around(layout: livi.Layout, num_samples: int) -> Tensor:  # (S, m)
    rng = torch.Generator().manual_seed(3)
    shape = (num_samples, layout.num_params)
    return layout.flatten() + 0.2 * torch.randn(shape, generator=rng).to(layout.device)


def bound_of(case: Case, device: str = "cpu") -> livi.Bound:
    layout = case.layout(device)
    posterior = livi.ImplicitPosterior(
        layout,
        livi.MMNN.for_layout(layout, latent_dim=4, budget=4.0),
        livi.DiagonalNoise(layout.num_params, 0.05),
    )
    return livi.Bound(posterior, case.likelihood(), livi.Normal(1.0), num_data=20, num_samples=4, num_entropy_samples=2)


# --- the tests ------------------------------------------------------------------------------------


@every_case
def test_layout_counts_every_weight_once(case):
    assert case.layout().num_params == case.num_params


@every_case
def test_apply_at_the_modules_own_weights_is_the_module_in_eval_mode(case):
    layout = case.layout()
    args, kwargs = as_call(case.inputs())
    found = layout.apply(layout.flatten(), *args, **kwargs)
    torch.testing.assert_close(found, case.call(layout.module.eval()))


@every_case
def test_apply_at_other_weights_is_a_module_that_holds_them(case):
    layout = case.layout()
    args, kwargs = as_call(case.inputs())
    theta = around(layout, 1)[0]
    found = layout.apply(theta, *args, **kwargs)
    own = layout.apply(layout.flatten(), *args, **kwargs)
    layout.load_(theta)
    torch.testing.assert_close(found, case.call(layout.module.eval()))
    assert not torch.allclose(found, own)


@every_case
def test_outputs_depend_on_every_stochastic_weight(case):
    layout = case.layout()
    args, kwargs = as_call(case.inputs())
    assert layout.verify(*args, **kwargs) == ()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch_statistics", [False, True])
@every_case
def test_strategies_agree_in_values_and_gradients(case, batch_statistics, device):
    layout = case.layout(device)
    args, kwargs = as_call(moved(case.inputs(), device))
    theta = around(layout, 3).requires_grad_()

    def evaluate(strategy: Any) -> tuple[Tensor, Tensor]:
        outputs = livi.apply_many(layout, theta, *args, batch_statistics=batch_statistics, strategy=strategy, **kwargs)
        weights = numbers(*outputs.shape).to(device)
        return outputs, torch.autograd.grad((outputs * weights).sum(), theta)[0]

    loop = evaluate(livi.Loop())
    for row, output in zip(theta, loop[0], strict=True):
        torch.testing.assert_close(output, layout.apply(row, *args, batch_statistics=batch_statistics, **kwargs))
    torch.testing.assert_close(evaluate(None), loop)
    for strategy in (livi.Vmap(), livi.Vmap(chunk_size=2)):
        if case.batchable:
            torch.testing.assert_close(evaluate(strategy), loop)
        else:
            with pytest.raises(RuntimeError, match=r"Batching rule not implemented|have storage"):
                evaluate(strategy)


@pytest.mark.parametrize("device", DEVICES)
@every_case
def test_bound_is_finite_and_reaches_every_parameter(case, device):
    bound = bound_of(case, device)
    terms = bound(moved(case.inputs(), device), moved(case.targets(), device), torch.Generator().manual_seed(4))
    assert terms.non_finite() == ()
    terms.bound.backward()
    for name, parameter in bound.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name
        assert bool(parameter.grad.any()), name


@every_case
def test_two_steps_raise_the_bound_and_leave_the_module_alone(case):
    bound = bound_of(case)
    module = bound.family.layout.module
    before = copy.deepcopy(module.state_dict())
    optimiser = torch.optim.Adam(bound.parameters(), lr=1e-4)

    def evaluate() -> Tensor:
        return bound(case.inputs(), case.targets(), torch.Generator().manual_seed(4)).bound

    values = []
    for _ in range(2):
        optimiser.zero_grad()
        value = evaluate()
        (-value).backward()
        optimiser.step()
        values.append(value.item())
    values.append(evaluate().item())
    assert values == sorted(values)
    assert len(set(values)) == 3
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(layer.training for layer in module.modules())


def test_mlp_generator_fits_an_excluded_backbones_head():
    layout = CASES["last layer"].layout()
    posterior = livi.ImplicitPosterior(
        layout, livi.MLP(3, layout.num_params, hidden=(8,)), livi.DiagonalNoise(layout.num_params)
    )
    bound = livi.Bound(posterior, livi.Categorical(), livi.Normal(), num_data=BATCH, num_samples=2)
    bound(CASES["last layer"].inputs(), CASES["last layer"].targets()).bound.backward()
    assert all(bool(parameter.grad.any()) for parameter in bound.parameters())
    assert all(parameter.grad is None for parameter in layout.module.parameters())


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x):
        return {"mean": self.layer(x), "features": x}


def test_a_fit_to_a_network_with_several_outputs_says_so_and_takes_the_remedy():
    data = torch.ones(4, 1), torch.ones(4)
    with pytest.raises(TypeError, match=r"forward=lambda net, x: net\(x\)\['mean'\]"):
        livi.plan(Several(), data, livi.Gaussian())
    livi.plan(Several(), data, livi.Gaussian(), forward=lambda net, x: net(x)["mean"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_fit_to_a_network_in_half_precision_says_what_to_do(dtype):
    with pytest.raises(ValueError, match=r"fit `net.float\(\)`, with autocast=torch.bfloat16"):
        livi.plan(nn.Linear(1, 1, dtype=dtype), (torch.ones(4, 1), torch.ones(4)), livi.Gaussian())


def test_whole_numbers_are_inputs_of_networks_of_floats_and_of_embeddings():
    x, ids = torch.randn(20, 2), torch.randint(5, (20, 2))
    posterior = livi.rivals.fit_map(nn.Linear(2, 1), (x, x[:, :1]), livi.Gaussian(0.5), steps=5)
    expected = posterior.predict(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).mean
    for given in ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]])):
        torch.testing.assert_close(posterior.predict(given).mean, expected)
    net = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 1))
    words = livi.rivals.fit_map(net, (ids, x[:, :1]), livi.Gaussian(0.5), steps=5)
    assert words.predict(ids).mean.shape == (20,)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.ones(4, 1))])
def test_a_fit_to_a_network_of_torch_jit_says_what_to_do(make):
    data = torch.ones(4, 1), torch.ones(4)
    made = make(nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"got one of torch.jit; pass the module that it was made from"):
        livi.plan(made, data, livi.Gaussian())
    with pytest.raises(TypeError, match=r"got one of torch.jit as '1';"):
        livi.plan(nn.Sequential(nn.Linear(1, 1), made), data, livi.Gaussian())


def test_a_fit_to_a_network_in_data_parallel_takes_the_remedy():
    data, wrapped = (torch.ones(4, 1), torch.ones(4)), nn.DataParallel(nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"got an nn.DataParallel; pass the `.module` inside it"):
        livi.plan(wrapped, data, livi.Gaussian())
    livi.plan(wrapped.module, data, livi.Gaussian())
