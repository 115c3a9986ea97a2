"""The flat parameter vector theta of a module: which parameters are in it, in which order, and back again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from glob import escape
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.func import functional_call
from torch.utils import _pytree as pytree

from livi import checks
from livi.draws import normal
from livi.network.entered import Entered
from livi.network.modes import all_batch_norms, attributes_kept, evaluation_mode
from livi.network.scaling import InputScaling, scaled
from livi.network.slots import chosen_slots, grouped
from livi.network.text import table
from livi.network.turns import turn_of

Forward = Callable[..., Any]

_CHECKPOINTED = (
    "module: expected activations to be kept for the backward pass, got gradient checkpointing "
    "(torch.utils.checkpoint) or another hook for saved tensors, by which they would be computed again at the module's "
    "own weights; turn it off, as by net.gradient_checkpointing_disable() or net.set_grad_checkpointing(False)."
)
_NEARBY = 1e-3  # distance from the weights at which a parameter that seems unused is checked again


class _Called(nn.Module):
    """A user's forward function over the module, so that functional_call reaches every parameter."""

    def __init__(self, module: nn.Module, function: Forward) -> None:
        super().__init__()
        self.module = module
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.module, *args, **kwargs)


class Layout:
    """A one-to-one map between a module's chosen parameters and a flat vector theta of `num_params` numbers.

    Parameters are chosen by shell-style patterns over their dotted names: a parameter is stochastic if it matches any
    `include` and no `exclude` pattern. The rest stays fixed at the module's current values and receives no gradient;
    so do parameters with requires_grad=False, unless a pattern other than "*" includes them.
    Tied parameters are one slot, and a pattern that matches any of their names chooses them. A pattern that
    matches nothing is an error.

    The module is evaluated as a deterministic function of theta: dropout is off, BatchNorm layers use the buffers
    (or the batch's statistics while fitting, see `apply`; a BatchNorm layer whose own parameters are all fixed is part
    of a frozen backbone and always uses its buffers). The user's module is never modified.

    Args:
        module: any nn.Module whose chosen parameters share one floating dtype and one device.
        include, exclude: patterns such as "*", "head.*", ("*.lora_A", "*.lora_B").
        forward: `forward(module, *args, **kwargs)`, called instead of `module(*args, **kwargs)`.
        scaling: of the first argument, before the module or `forward` sees it.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> layout = Layout(net, exclude="0.*")
    >>> layout.num_params, [slot.name for slot in layout.slots]
    (4, ['2.weight', '2.bias'])
    >>> layout.apply(layout.flatten(), torch.ones(5, 2)).shape
    torch.Size([5, 1])
    """

    overwrites: bool | None = None  # whether the module writes over its inputs; None before its first pass

    def __init__(
        self,
        module: nn.Module,
        include: str | Sequence[str] = "*",
        exclude: str | Sequence[str] = (),
        *,
        forward: Forward | None = None,
        scaling: InputScaling | None = None,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}.")
        self.module = module
        self.include, self.exclude, self.forward = _patterns(include), _patterns(exclude), forward
        self.scaling = scaling
        self._root, self._prefix = (module, "") if forward is None else (_Called(module, forward), "module.")
        self.slots, self.fixed = chosen_slots(module, self.include, self.exclude)
        self._places = _places(module)
        self.num_params: int = self.slots[-1].stop
        self.batch_norms = _batch_norms(module, self.fixed)
        self.groups = grouped(self.slots)

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """A lock: `with layout.turn:` keeps other threads from running or reading this network meanwhile."""
        return turn_of(self.module)

    @property
    def dtype(self) -> torch.dtype:
        with self.turn:
            return self.module.get_parameter(self.slots[0].name).dtype

    @property
    def device(self) -> torch.device:
        with self.turn:
            return self.module.get_parameter(self.slots[0].name).device

    @property
    def group_sizes(self) -> tuple[int, ...]:
        return tuple(group.numel for group in self.groups)

    @property
    def patterns(self) -> list[str]:
        """Patterns that match exactly these parameters, for another layout of the same ones."""
        return [escape(slot.name) for slot in self.slots]

    def flatten(self, tensors: Mapping[str, Tensor] | None = None) -> Tensor:  # (m,)
        """The module's current weights, or those of a state dict, as one detached vector."""
        with self.turn:
            found = dict(self.module.named_parameters()) if tensors is None else tensors
        parts = []
        for slot in self.slots:
            name = next((name for name in slot.names if name in found), None)
            if name is None:
                raise ValueError(f"tensors: expected a tensor for {slot.name!r}, got names {sorted(found)[:8]}.")
            if found[name].shape != slot.shape:
                raise ValueError(f"{name}: expected shape {tuple(slot.shape)}, got {tuple(found[name].shape)}.")
            parts.append(found[name].detach().reshape(-1))
        return checks.vector("weights", torch.cat(parts), self.num_params)

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:  # (..., m) -> name: (..., *shape)
        """Theta as a dict of named parameters: views, except copies of those on a GPU that are not 16-byte aligned.

        Kernels for convolutions assume that alignment.
        """
        if theta.shape[-1:] != (self.num_params,):
            raise ValueError(f"theta: expected a last axis of {self.num_params}, got shape {tuple(theta.shape)}.")
        rows, step = theta.shape[:-1], 16 // theta.dtype.itemsize
        # Split at once: slices one by one would each have a gradient of m numbers.
        parts = zip(self.slots, theta.split([slot.numel for slot in self.slots], -1), strict=True)
        found = {slot.name: part.reshape(rows + slot.shape) for slot, part in parts}
        if theta.is_cuda and not rows:
            first = theta.storage_offset()
            found |= {slot.name: found[slot.name].clone() for slot in self.slots if (first + slot.start) % step}
        return found

    def load_(self, theta: Tensor) -> None:
        """Write theta into the module, in place."""
        checks.vector("theta", theta, self.num_params)
        with torch.no_grad():
            for name, value in self.unflatten(theta).items():
                self.module.get_parameter(name).copy_(value)

    def apply(
        self,
        theta: Tensor,  # (m,)
        *args: Any,
        batch_statistics: bool = False,
        buffers: Mapping[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The module's output with its stochastic parameters replaced by theta, or that of one layer (`Entered`).

        Of an object with `.logits`, as transformers return it, those are the output, unless there is a `forward`.

        Args:
            batch_statistics: BatchNorm normalises by the batch at hand and leaves its buffers alone (fitting).
            buffers: replacements for named buffers, such as those of `livi.estimate_statistics` (prediction).
        """
        if theta.shape != (self.num_params,):
            raise ValueError(
                f"theta: expected shape ({self.num_params},), got {tuple(theta.shape)}; for many, use livi.apply_many."
            )
        with self.turn:
            checks.same_kind("theta", theta, self.dtype, self.device)
            self.check_buffers(buffers or {})
            with self.evaluation(batch_statistics):
                return self.call(theta, args, kwargs, buffers)

    def evaluation(self, batch_statistics: bool) -> AbstractContextManager[None]:
        """A context in which the module is a function of theta, for a thread that holds `turn`; see `modes.py`."""
        return evaluation_mode(self.module, self.batch_norms.values() if batch_statistics else ())

    def call(
        self,
        theta: Tensor,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        buffers: Mapping[str, Tensor] | None,
    ) -> Any:
        """`apply` inside an already entered `evaluation`; the package's only functional_call."""
        tensors = {name: self.module.get_parameter(name).detach() for name in self.fixed}
        tensors |= self.unflatten(theta)
        # Copies, since a forward that writes to a buffer would change the module, and the next theta's output with it.
        tensors |= {name: b.clone() for name, b in (dict(self.module.named_buffers()) | dict(buffers or {})).items()}
        named = {
            place: tensor
            for name, tensor in tensors.items()
            for place in self._places.get(name, (name,))  # a buffer may be newer than the layout
        }
        if args and isinstance(args[0], Entered):
            root, named = self.module.get_submodule(args[0].layer), args[0].inside(named)
            given: Any = ((args[0].values,), {})
        else:
            root, named = self._root, {self._prefix + name: tensor for name, tensor in named.items()}
            given = (scaled(self.scaling, args), dict(kwargs))
        if self.overwrites is not False:  # the data are the user's, and the next theta's too
            given = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, given)
        # Torch's own tying would replace the parameters of a submodule with two names twice and restore them wrongly.
        with attributes_kept(root):
            outputs = functional_call(root, named, *given, tie_weights=False)
        if self.overwrites is None:
            self.overwrites = _written_to(given)
        return outputs if self.forward is not None else _logits_of(outputs)

    def check_buffers(self, buffers: Mapping[str, Tensor], num_samples: int | None = None) -> None:
        """Raise unless the module has buffers of these names and shapes, perhaps with num_samples rows in front."""
        known = dict(self.module.named_buffers())
        for name, buffer in buffers.items():
            if name not in known:
                raise ValueError(
                    f"buffers: expected the module's buffer names, got {name!r}; known: {sorted(known)[:8]}."
                )
            shape = tuple(known[name].shape)
            rows = "" if num_samples is None else f", alone or with {num_samples} rows in front"
            if buffer.shape != shape and (num_samples is None or buffer.shape != (num_samples, *shape)):
                raise ValueError(f"buffers[{name!r}]: expected shape {shape}{rows}, got {tuple(buffer.shape)}.")

    def verify(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Names of the stochastic parameters that the outputs do not depend on (their posterior is the prior).

        Checked at the module's weights and next to them, since a factor of zero, as in a new adapter, hides another.

        Raises:
            TypeError: no gradient reaches any parameter, so no posterior can be fitted.
            RuntimeError: the module checkpoints gradients. Activations would be computed again when theta has left the
                module, and gradients be those at its own weights.
        """
        theta = self.flatten()
        unused = self._without_gradient(theta, args, kwargs)
        if unused:
            rng = torch.Generator().manual_seed(1)
            nearby = theta + _NEARBY * normal(tuple(theta.shape), rng, theta.dtype, theta.device)
            elsewhere = self._without_gradient(nearby, args, kwargs)
            unused = tuple(name for name in unused if name in elsewhere)
        return unused

    def _without_gradient(self, theta: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The stochastic parameters whose gradient is zero at these weights."""
        with torch.enable_grad(), disable_saved_tensors_hooks(_CHECKPOINTED):
            leaves = {n: value.clone().requires_grad_() for n, value in self.unflatten(theta).items()}
            flat = torch.cat([leaf.reshape(-1) for leaf in leaves.values()])
            outputs = _differentiable(self.apply(flat, *args, batch_statistics=True, **kwargs))
            if not outputs:
                raise TypeError(
                    "module: expected outputs that are differentiable in the parameters, got none with a gradient; "
                    "check for .detach(), torch.no_grad() or integer outputs in its forward."
                )
            # Each leaf feeds `flat`, so unused ones show as an exactly zero gradient under a random cotangent.
            rng = torch.Generator().manual_seed(0)  # a stream of its own leaves torch's global one alone
            cotangents = [normal(tuple(out.shape), rng, out.dtype, out.device) for out in outputs]
            gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents)
        return tuple(name for name, grad in zip(leaves, gradients, strict=True) if not grad.any())

    def describe(self) -> str:
        """A table of what is stochastic and what stays fixed.

        >>> print(Layout(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), exclude="1.*").describe())
        parameter  shape  weights  role
        ---------  -----  -------  ----------
        0.weight    3x2         6  stochastic
        0.bias      3           3  stochastic
        1.weight    3           3  fixed
        1.bias      3           3  fixed
        <BLANKLINE>
        stochastic: 9 of 15 weights in 1 layer; buffers: 3 (BatchNorm: 1)
        """
        rows = [("parameter", "shape", "weights", "role")]
        total = 0
        by_name = {slot.name: slot for slot in self.slots}
        tied = {alias: slot.name for slot in self.slots for alias in slot.names[1:]}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            shape = "x".join(map(str, parameter.shape)) or "scalar"
            if name in tied:
                rows.append((name, shape, "0", f"tied to {tied[name]}"))
                continue
            if name not in by_name and name not in self.fixed:
                continue  # a second name of a fixed parameter
            total += parameter.numel()
            rows.append((name, shape, f"{parameter.numel():,}", "stochastic" if name in by_name else "fixed"))
        layers = len(self.groups)
        norms = len(all_batch_norms(self.module))
        closing = (
            f"stochastic: {self.num_params:,} of {total:,} weights in {layers} layer{'s' * (layers != 1)}; "
            f"buffers: {sum(1 for _ in self.module.buffers())} (BatchNorm: {norms})"
        )
        return table(rows) + "\n\n" + closing

    def __repr__(self) -> str:
        return f"Layout({type(self.module).__name__}, num_params={self.num_params:,}, layers={len(self.groups)})"


def as_layout(layout: Layout) -> Layout:
    """Return the layout if it is one, and not the network that it should be of."""
    if not isinstance(layout, Layout):
        raise TypeError(f"layout: expected a livi.Layout, got {type(layout).__name__}; pass livi.Layout(net).")
    return layout


def _patterns(patterns: str | Sequence[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _batch_norms(module: nn.Module, fixed: Sequence[str]) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """The BatchNorm layers that keep statistics, except those of a frozen backbone, whose parameters are all fixed.

    Layers without statistics always normalise by the batch.
    """
    held = {id(module.get_parameter(name)) for name in fixed}  # tied ones have several names
    found = {}
    for name, layer in all_batch_norms(module).items():
        own = {id(parameter) for parameter in layer.parameters(recurse=False)}
        if layer.running_mean is not None and not (own and own <= held):
            found[name] = layer
    return found


def _places(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """All names of each parameter and buffer, by its first one; a submodule that is used twice counts once."""
    homes = {prefix for prefix, _ in module.named_modules()}
    members = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    places: dict[int, list[str]] = {}
    for name, tensor in members:
        if name.rpartition(".")[0] in homes:
            places.setdefault(id(tensor), []).append(name)
    return {names[0]: tuple(names) for names in places.values()}


def _written_to(copies: Any) -> bool | None:
    """Whether any of these copies was written to; None where tensors do not count their versions."""
    made = [leaf for leaf in pytree.tree_leaves(copies) if isinstance(leaf, Tensor)]
    return None if any(leaf.is_inference() for leaf in made) else any(leaf._version for leaf in made)


def _logits_of(outputs: Any) -> Any:
    """The logits of an object that has them; a tensor, a tuple or a plain dict as it is."""
    if isinstance(outputs, (Tensor, tuple, list)):
        return outputs
    logits = getattr(outputs, "logits", None)
    return logits if isinstance(logits, Tensor) else outputs


def _differentiable(outputs: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(outputs)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
