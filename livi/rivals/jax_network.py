"""Translation of networks, likelihoods and priors from torch to jax, for numpyro's NUTS.

A module is traced with torch.fx, and each layer and function of the trace is translated by a table here. `fit_nuts`
verifies the result: before it samples, it compares the log joint density in jax with that in torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from livi.model.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood, Multilabel
from livi.model.likelihoods.located import Located
from livi.model.priors import Laplace, Normal, Prior, Relevance
from livi.rivals.options import needed

INSTALL = 'pip install "livi[baselines]".'

Array = Any  # a jax or numpy array
Weights = Mapping[str, Array]  # by parameter name


def load(function: str) -> tuple[Any, Any]:
    """The modules jax and numpyro.

    Raises:
        ImportError: one is not installed; the message says how to install it.
    """
    return needed(function, "jax", INSTALL), needed(function, "numpyro", INSTALL)


def in_double(jax: Any) -> Any:
    """A context in which jax computes in double precision; its default is single."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return needed("fit_nuts", "jax.experimental", INSTALL).enable_x64()  # before jax 0.8


def translated(module: nn.Module) -> Callable[[Weights, Array], Array]:
    """The module as a jax function of its parameters and one input, without dropout.

    Raises:
        TypeError: a layer or function in its forward has no translation; the message names it.
    """
    try:
        graph = fx.Tracer().trace(module) if not _is_leaf(module) else None
    except Exception as error:  # whatever a forward may do with a proxy
        raise TypeError(
            f"fit_nuts: expected a forward without branches on its values, got {type(error).__name__}: {error}"
        ) from error
    if graph is None:
        layer = _layer(module, "")
        return lambda weights, inputs: layer(weights, inputs)
    steps = [(node, _step(node, module)) for node in graph.nodes]

    def forward(weights: Weights, inputs: Array) -> Array:
        values: dict[fx.Node, Array] = {}
        for node, step in steps:
            if node.op == "placeholder":
                values[node] = inputs
            elif node.op == "output":
                return fx.map_arg(node.args[0], lambda one: values[one])
            else:
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: values[one])
                values[node] = step(weights, *args, **kwargs)
        raise AssertionError("a trace ends with its output")

    return forward


def log_likelihood(likelihood: Likelihood) -> Callable[[Array, Array, Array | None], Array]:
    """The jax function (outputs, targets, log of a learned noise or None) -> log p(target | output) of each example.

    Raises:
        TypeError: the likelihood has no translation.
    """
    jax = needed("fit_nuts", "jax", INSTALL)
    jnp = jax.numpy
    centre, unit = _location(likelihood)
    if type(likelihood) is Gaussian:
        fixed = likelihood.log_std.detach().double().cpu().numpy()

        def gaussian(outputs: Array, targets: Array, log_std: Array | None) -> Array:
            level = fixed if log_std is None else log_std
            gap = (targets.reshape(outputs.shape) - (centre + unit * outputs)) * jnp.exp(-level)
            density = -0.5 * gap**2 - level - 0.5 * jnp.log(2.0 * jnp.pi)
            return density.reshape(len(outputs), -1).sum(1)

        return gaussian
    if type(likelihood) is HeteroscedasticGaussian and likelihood.log_level is None:
        floor = likelihood.floor

        def varying(outputs: Array, targets: Array, _: Array | None) -> Array:
            mean, raw = jnp.split(outputs, 2, -1)
            std = floor + unit * jax.nn.softplus(raw)
            gap = (targets.reshape(mean.shape) - (centre + unit * mean)) / std
            density = -0.5 * gap**2 - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi)
            return density.reshape(len(outputs), -1).sum(1)

        return varying
    if type(likelihood) is Categorical:
        return lambda outputs, targets, _: jnp.take_along_axis(
            jax.nn.log_softmax(outputs, 1), targets[:, None].astype(int), 1
        )[:, 0]
    if type(likelihood) in (Bernoulli, Multilabel):

        def labels(outputs: Array, targets: Array, _: Array | None) -> Array:
            logits, found = outputs.reshape(len(outputs), -1), targets.reshape(len(outputs), -1)
            return (found * logits - jax.nn.softplus(logits)).sum(1)

        return labels
    raise TypeError(
        "fit_nuts: expected livi.Gaussian, HeteroscedasticGaussian, Categorical, Bernoulli or Multilabel, with scales "
        f"that are fixed or a Gaussian's, got {type(likelihood).__name__}."
    )


def _location(likelihood: Likelihood) -> tuple[Array, Array]:
    """The centre and unit with which the likelihood converts outputs into the units of the targets."""
    if not isinstance(likelihood, Located) or likelihood.centre is None:
        return 0.0, 1.0
    unit = torch.as_tensor(likelihood.unit())
    return likelihood.centre.double().cpu().numpy(), unit.detach().double().cpu().numpy()


def log_prior(prior: Prior, num_params: int) -> Callable[[Array], Array]:
    """The jax function theta -> log p(theta), normalised.

    Raises:
        TypeError: the prior has no translation, or its scales are learned.
    """
    jnp = needed("fit_nuts", "jax.numpy", INSTALL)
    learned = any(True for _ in prior.parameters())
    if not isinstance(prior, (Normal, Laplace, Relevance)) or learned:
        raise TypeError(
            "fit_nuts: expected a livi.Normal or livi.Laplace prior of fixed scales, got "
            f"{type(prior).__name__}{' with learned ones' if learned else ''}."
        )
    scale = prior.scale().detach().double().expand(num_params).cpu().numpy()
    if isinstance(prior, Laplace):
        return lambda theta: (-jnp.abs(theta) / scale - jnp.log(2.0 * scale)).sum()
    return lambda theta: (-0.5 * (theta / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2.0 * jnp.pi)).sum()


# --- layers and functions -------------------------------------------------------------------------


def _is_leaf(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)


def _step(node: fx.Node, module: nn.Module) -> Callable[..., Array]:
    """The operation of one node of the trace, as a jax function of the weights and the node's arguments."""
    if node.op in ("placeholder", "output"):
        return lambda *_: None
    if node.op == "get_attr":
        name = str(node.target)
        return lambda weights: weights[name]
    if node.op == "call_module":
        return _layer(module.get_submodule(str(node.target)), str(node.target))
    table = _functions() if node.op == "call_function" else _methods()
    if node.target not in table:
        name = getattr(node.target, "__name__", str(node.target))
        raise TypeError(f"fit_nuts: expected functions with a translation into jax, got {name!r}; use layers instead.")
    function = table[node.target]
    return lambda _, *args, **kwargs: function(*args, **kwargs)


def _layer(layer: nn.Module, name: str) -> Callable[[Weights, Array], Array]:
    jax = needed("fit_nuts", "jax", INSTALL)
    jnp = jax.numpy
    prefix = f"{name}." if name else ""
    if isinstance(layer, nn.Linear):
        return lambda weights, x: x @ weights[f"{prefix}weight"].T + weights.get(f"{prefix}bias", 0.0)
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)) and layer.padding_mode == "zeros":
        return _convolution(layer, prefix)
    if isinstance(layer, nn.LayerNorm):
        axes = tuple(range(-len(layer.normalized_shape), 0))

        def normalised(weights: Weights, x: Array) -> Array:
            centred = x - x.mean(axes, keepdims=True)
            unit = centred / jnp.sqrt((centred**2).mean(axes, keepdims=True) + layer.eps)
            return unit * weights.get(f"{prefix}weight", 1.0) + weights.get(f"{prefix}bias", 0.0)

        return normalised
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
        return lambda _, x: x.reshape(len(x), -1)
    if isinstance(layer, (nn.MaxPool2d, nn.AvgPool2d)):
        return _pool(layer)
    elementwise = _elementwise(jax, layer)
    if elementwise is None:
        raise TypeError(
            "fit_nuts: expected layers among Linear, Conv1d, Conv2d, MaxPool2d, AvgPool2d, LayerNorm, Flatten, Dropout "
            f"and common activations, got {type(layer).__name__}{f' {name!r}' if name else ''}."
        )
    return lambda _, x: elementwise(x)


def _elementwise(jax: Any, layer: nn.Module) -> Callable[[Array], Array] | None:
    nn_, jnp = jax.nn, jax.numpy
    if isinstance(layer, (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)):
        return lambda x: x
    if isinstance(layer, nn.LeakyReLU):
        return lambda x: nn_.leaky_relu(x, layer.negative_slope)
    if isinstance(layer, nn.ELU):
        return lambda x: nn_.elu(x, layer.alpha)
    if isinstance(layer, nn.GELU):
        return lambda x: nn_.gelu(x, approximate=layer.approximate == "tanh")
    if isinstance(layer, nn.Softplus) and layer.beta == 1:
        return lambda x: nn_.softplus(x)
    known: dict[type[nn.Module], Callable[[Array], Array]] = {
        nn.ReLU: nn_.relu,
        nn.Tanh: jnp.tanh,
        nn.Sigmoid: nn_.sigmoid,
        nn.SiLU: nn_.silu,
    }
    return known.get(type(layer))


def _convolution(layer: nn.Conv1d | nn.Conv2d, prefix: str) -> Callable[[Weights, Array], Array]:
    lax = needed("fit_nuts", "jax.lax", INSTALL)
    rank = len(layer.kernel_size)
    padding = layer.padding.upper() if isinstance(layer.padding, str) else [(pad, pad) for pad in layer.padding]

    def convolved(weights: Weights, x: Array) -> Array:
        made = lax.conv_general_dilated(
            x,
            weights[f"{prefix}weight"],
            layer.stride,
            padding,
            rhs_dilation=layer.dilation,
            feature_group_count=layer.groups,
        )
        bias = weights.get(f"{prefix}bias")
        return made if bias is None else made + bias.reshape(-1, *[1] * rank)

    return convolved


def _pool(layer: nn.MaxPool2d | nn.AvgPool2d) -> Callable[[Weights, Array], Array]:
    jax = needed("fit_nuts", "jax", INSTALL)
    size, stride, pad = (_pair(value) for value in (layer.kernel_size, layer.stride, layer.padding))
    if pad != (0, 0) or layer.ceil_mode:
        raise TypeError(f"fit_nuts: expected pooling without padding, got {layer}.")
    window, steps = (1, 1, *size), (1, 1, *stride)
    if isinstance(layer, nn.MaxPool2d):
        return lambda _, x: jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, window, steps, "VALID")
    count = size[0] * size[1]
    return lambda _, x: jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, "VALID") / count


def _pair(value: Any) -> tuple[int, int]:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _functions() -> dict[Any, Callable[..., Array]]:
    jax = needed("fit_nuts", "jax", INSTALL)
    jnp = jax.numpy
    return {
        operator.add: operator.add,
        operator.sub: operator.sub,
        operator.mul: operator.mul,
        operator.truediv: operator.truediv,
        operator.neg: operator.neg,
        operator.pow: operator.pow,
        operator.getitem: operator.getitem,
        torch.add: operator.add,
        torch.mul: operator.mul,
        torch.relu: jax.nn.relu,
        torch.tanh: jnp.tanh,
        torch.sigmoid: jax.nn.sigmoid,
        torch.sin: jnp.sin,
        torch.exp: jnp.exp,
        torch.cat: lambda parts, dim=0: jnp.concatenate(parts, dim),
        torch.flatten: _flattened,
        F.linear: lambda x, weight, bias=None: x @ weight.T + (0.0 if bias is None else bias),
        F.relu: lambda x, inplace=False: jax.nn.relu(x),  # noqa: ARG005
        F.tanh: jnp.tanh,
        F.sigmoid: jax.nn.sigmoid,
        F.silu: lambda x, inplace=False: jax.nn.silu(x),  # noqa: ARG005
        F.elu: lambda x, alpha=1.0, inplace=False: jax.nn.elu(x, alpha),  # noqa: ARG005
        F.gelu: lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
        F.softplus: lambda x: jax.nn.softplus(x),
        F.dropout: lambda x, p=0.5, training=True, inplace=False: x,  # noqa: ARG005
    }


def _methods() -> dict[Any, Callable[..., Array]]:
    jax = needed("fit_nuts", "jax", INSTALL)
    return {
        "relu": jax.nn.relu,
        "tanh": jax.numpy.tanh,
        "sigmoid": jax.nn.sigmoid,
        "flatten": _flattened,
        "view": lambda x, *shape: x.reshape(*shape),
        "reshape": lambda x, *shape: x.reshape(*shape),
        "size": lambda x, axis: x.shape[axis],
        "squeeze": lambda x, axis: x.squeeze(axis),
        "unsqueeze": lambda x, axis: jax.numpy.expand_dims(x, axis),
    }


def _flattened(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    if end_dim != -1:
        raise TypeError(f"fit_nuts: expected flatten to the end, got end_dim={end_dim}.")
    return x.reshape(*x.shape[:start_dim], -1)
