"""Any module: the same conformance tests over architectures that have little in common.

A new architecture is covered by every test here the moment it is listed in CASES.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

import livi
from livi.model.likelihoods import Likelihood
from livi.network import as_call

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
BATCH, CLASSES = 4, 3


# --- the modules ----------------------------------------------------------------------------------


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))


def lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


class WideBlock(nn.Module):
    """BatchNorm, ReLU, convolution, twice, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.dropout = nn.Dropout(0.3)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(x))
        inner = self.dropout(F.relu(self.norm2(self.conv1(x))))
        return self.conv2(inner) + self.shortcut(x)


def wide_resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        *(WideBlock(4, 8, 1), WideBlock(8, 12, 2)),
        *(nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, CLASSES)),
    )


def group_norm_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.SiLU(), nn.Conv2d(6, 6, 3, groups=2), nn.GroupNorm(2, 6)),
        *(nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, CLASSES)),
    )


def segmenter() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, CLASSES, 4, 2, 1))


class Encoder(nn.Module):
    """Tokens to classes by an encoder layer of torch's own; a kept buffer holds the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.register_buffer("positions", torch.randn(5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens) + self.positions).mean(1))


class Recurrent(nn.Module):
    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = layer(3, 5, num_layers=2, dropout=0.4, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class LanguageModel(nn.Module):
    """The embedding is the output layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.mix = nn.Linear(6, 6)
        self.unembed = nn.Linear(6, 7, bias=False)
        self.unembed.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:  # (B, T) -> (B, V, T)
        return self.unembed(torch.tanh(self.mix(self.embed(tokens)))).transpose(1, 2)


class Repeated(nn.Module):
    """One submodule under two names, used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = self.first
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(torch.tanh(self.first(x)))))))


class Positive(nn.Module):
    """A parametrisation: the weight is the softplus of the parameter."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class Scalars(nn.Module):
    """Parameters without axes, a reparametrised weight, and a buffer that every call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor(-0.5))
        self.linear = nn.Linear(5, CLASSES)
        parametrize.register_parametrization(self.linear, "weight", Positive())
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.gain * self.linear(x) + self.shift + self.calls


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(5, 4), nn.Linear(3, 4)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(torch.tanh(torch.cat([self.left(x), self.right(y)], 1)))


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, CLASSES)

    def forward(self, *, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.linear(features if mask is None else features * mask)


class TakesDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, CLASSES)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.linear(batch["features"]) + batch["bias"]


class ReturnsDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> dict[str, Tensor | None]:
        hidden = torch.tanh(self.body(x))
        return {"logits": self.head(hidden), "hidden": hidden, "loss": None}


class Pretrained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


def pick_logits(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)["logits"]


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
    module = bound.posterior.layout.module
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
