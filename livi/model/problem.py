"""`Problem`: which weights, given what data, under which likelihood and prior. Made once, used by every method."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi import checks
from livi.model.data import Augment, Batch, Data, TensorData, Unpack, as_data
from livi.model.data.merging import merged
from livi.model.defaults import default_prior
from livi.model.likelihoods import ClassificationLikelihood, Likelihood
from livi.model.priors import Laplace, Normal, Prior, Relevance
from livi.model.trial import in_usable_batches, refuse_non_finite, try_first_batch, warn_of_doubts
from livi.model.units import in_natural_units, unscaled
from livi.network import (
    InputScaling,
    Layout,
    Strategy,
    all_batch_norms,
    apply_many,
    as_call,
    multiplications,
    suitable_strategy,
)
from livi.network.copying import copied
from livi.network.evaluation import wake_autograd
from livi.network.parameters import Forward

FULL_BATCH_WORK = 2e6  # multiplications of the network on all examples, up to which a step uses them all

T = TypeVar("T")
Average = TypeVar("Average", float, Tensor)
Choice: TypeAlias = T | Callable[[Layout], T] | None  # an object, a function of the layout that makes one, or a default


@dataclass(frozen=True)
class Integrated:
    """The last layer that a problem leaves out, because it is integrated out.

    Args:
        layout: of the whole network.
        name: of the layer, an nn.Linear.
        multiplications: that its evidence takes, for one vector of the other weights.
        word: "exact", or "conditional" where a bound stands for the evidence.
    """

    layout: Layout
    name: str
    multiplications: float
    word: str = "exact"


@dataclass(frozen=True)
class Problem:
    """What is to be inferred: p(theta | D), proportional to p(D | theta) p(theta), over the weights of a network.

    Args:
        strategy: how many weight vectors are evaluated together.
        integrated: the last layer where it is integrated out; layout, likelihood and prior are then those of the
            earlier weights, and the likelihood is the evidence of their features.
        why_sampled: the reason why the last layer is not integrated out.
        autocast: run the network in this dtype, as in `livi.plan`; chains, and features of a last layer that is
            integrated out, stay in full precision.

    >>> from livi.model.likelihoods import Gaussian
    >>> problem = Problem.of(nn.Linear(2, 1), (torch.randn(20, 2), torch.randn(20, 1)), Gaussian(1.0))
    >>> log_likelihood, log_prior = problem.on_data(torch.zeros(5, 3))
    >>> log_prior
    tensor([-2.7568, -2.7568, -2.7568, -2.7568, -2.7568])
    """

    layout: Layout
    data: Data
    likelihood: Likelihood
    prior: Prior
    strategy: Strategy
    integrated: Integrated | None = None
    why_sampled: str = ""
    autocast: torch.dtype | None = None

    @classmethod
    def of(
        cls,
        net: nn.Module,
        data: Any,
        likelihood: Likelihood,
        *,
        prior: Choice[Prior] = None,
        include: str | Sequence[str] = "*",
        exclude: str | Sequence[str] = (),
        forward: Forward | None = None,
        unpack: Unpack | None = None,
        num_data: int | None = None,
        batch_size: int | None = None,
        augment: Augment | None = None,
        device: torch.device | str | None = None,
        standardise: bool | str | InputScaling | None = "auto",
    ) -> Problem:
        """From the user's network, data and likelihood, after a trial on the first batch. Arguments as in `livi.plan`.

        Network and likelihood are copied. `standardise` may also be the `InputScaling` of an earlier fit, or None where
        there was none; all units are then left as they are, and no warning says to standardise.

        Raises:
            TypeError, ValueError: network, data and likelihood do not go together; the message says how.
        """
        _check_likelihood(likelihood)
        _check_no_class(prior)
        _check_network(net)
        module = copied(net) if device is None else copied(net).to(checks.device(device))
        scaling = standardise if isinstance(standardise, InputScaling) else None
        layout = Layout(module, include, exclude, forward=forward, scaling=scaling)
        _check_dtype(layout)
        batches = as_data(
            data,
            device=layout.device,
            dtype=layout.dtype,
            unpack=unpack,
            batch_size=batch_size,
            num_data=num_data,
            augment=augment,
        )
        wake_autograd(layout.device)
        batches = in_usable_batches(layout, batches)
        own = copy.deepcopy(likelihood).to(layout.device, layout.dtype)
        trial, given = try_first_batch(layout, batches, own), layout
        if not isinstance(standardise, InputScaling):
            layout, own = in_natural_units(layout, batches, own, standardise)
        own = own.to(layout.device, layout.dtype).started_from(batches.first()[1])
        trial = trial if layout is given else try_first_batch(layout, batches, own)
        refuse_non_finite(trial, own, batches.first())
        held = tuple(unscaled(layout, batches.first()[0])) if standardise == "auto" else ()
        settled = standardise is None or isinstance(standardise, InputScaling)
        warn_of_doubts(trial, layout, own, batches, batches.lost + held, held=settled)
        if isinstance(batches, TensorData) and batch_size is None:
            work = _work_per_example(layout, batches)
            batches = batches if work is None else batches.within(FULL_BATCH_WORK / work)
        chosen = chosen_for(copy.deepcopy(prior), layout)
        if chosen is None:
            with layout.device:  # not torch's default device
                chosen = default_prior(layout, classes=are_labels(own), inputs=batches.first()[0])
        if not isinstance(chosen, Prior):
            raise TypeError(f"prior: expected a livi prior such as Normal(1.0), got {type(chosen).__name__}.")
        args, kwargs = as_call(batches.first()[0])
        strategy = suitable_strategy(layout, *args, **kwargs)
        return cls(layout, batches, own, chosen.to(layout.device, layout.dtype), strategy)

    @property
    def classes(self) -> bool:
        """Whether the targets are labels."""
        return are_labels(self.likelihood)

    @property
    def fewest(self) -> int:
        """How many examples are needed at once: all for evidence, two where BatchNorm normalises by them, else one."""
        if self.likelihood.needs_all_examples:
            return self.data.num_data
        return 2 if all_batch_norms(self.layout.module) else 1

    def log_likelihood(self, theta: Tensor, batch: Batch) -> Tensor:  # (S, m) -> (S, B)
        """log p(y | x, theta) of each example, not scaled."""
        layout, likelihood = self.layout, self.likelihood
        return log_likelihood(layout, likelihood, theta, batch, strategy=self.strategy, autocast=self.autocast)

    def outputs(self, theta: Tensor, inputs: Any) -> Any:  # (S, m) -> (S, B, ...)
        """The network's outputs, from which `log_likelihood` is computed."""
        return network_outputs(self.layout, theta, inputs, strategy=self.strategy, autocast=self.autocast)

    def batches(self, most: int = 40) -> Iterator[Batch]:
        """At most so many batches of one epoch, without repeated examples."""
        return itertools.islice(_each_once(self.data), most)

    def on_batch(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:  # (S, m) -> (S,), (S,)
        """log p(D | theta), scaled up from the batch to all examples, and log p(theta)."""
        fit = scaled_up(self.log_likelihood(theta, batch).mean(1), self.data.num_data)
        return fit, self.prior.log_prob(theta)

    @torch.no_grad()
    def on_data(self, theta: Tensor, most: int = 40) -> tuple[Tensor, Tensor]:  # (S, m) -> (S,), (S,)
        """log p(D | theta) and log p(theta), estimated from `batches`."""
        total, seen = torch.zeros_like(theta[:, 0]), 0
        for batch in self.batches(most):
            total, seen = total + self.log_likelihood(theta, batch).sum(1), seen + len(batch[1])
        return scaled_up(total / max(1, seen), self.data.num_data), self.prior.log_prob(theta)


def _check_likelihood(likelihood: Likelihood) -> None:
    if not isinstance(likelihood, Likelihood):
        a_class = isinstance(likelihood, type)
        got = f"the class {likelihood.__name__}" if a_class else type(likelihood).__name__
        remedy = f"pass {likelihood.__name__}()" if a_class else "FunctionLikelihood takes a log_prob of your own"
        raise TypeError(f"likelihood: expected one of livi's such as Gaussian() or Categorical(), got {got}; {remedy}.")


def _check_no_class(prior: Choice[Prior]) -> None:
    """Raise for a prior's class, which would be called with the layout, as a function that makes one."""
    if isinstance(prior, type):
        made = f"pass prior=livi.{prior.__name__}()"
        if issubclass(prior, Relevance):
            made = "pass prior=livi.Relevance.for_layout"
        elif not issubclass(prior, Normal | Laplace):
            made = "pass an object of it"
        raise TypeError(
            "prior: expected a livi prior such as Normal(1.0), or a function of the layout that makes one, got the "
            f"class {prior.__name__}; {made}."
        )


def _check_dtype(layout: Layout) -> None:
    checks.has_doubles("net", layout.device)
    if layout.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"net: expected weights in float32 or float64, got {layout.dtype}; fit `net.float()`, with "
            "autocast=torch.bfloat16 where speed matters."
        )


def _check_network(net: nn.Module) -> None:
    """Raise unless this is a module that can run at other weights than its own."""
    if not isinstance(net, nn.Module):
        raise TypeError(f"net: expected a torch.nn.Module, got {type(net).__name__}.")
    if any(parameter.is_meta for parameter in net.parameters()):
        raise ValueError(
            'net: expected weights, got parameters on the device "meta", which have none; move '
            "it by `net.to_empty(device=...)` and load its weights."
        )
    for name, part in net.named_modules():
        which = f" as {name!r}" if name else ""
        if isinstance(part, torch.jit.ScriptModule):
            raise TypeError(
                f"net: expected modules written in Python, which run at any weights, got one of torch.jit{which}; pass "
                "the module that it was made from."
            )
        if isinstance(part, nn.DataParallel):
            raise TypeError(
                f"net: expected the network itself, got an nn.DataParallel{which}; pass the `.module` inside it. "
                "Several GPUs fit together under torchrun."
            )


def _each_once(data: Data) -> Iterable[Batch]:
    """One epoch's batches; for tensors, without the repeated examples that fill up the last batch.

    A single example that is left joins the batch before, since BatchNorm cannot normalise by one.
    """
    return merged(_without_repeats(data), 2) if isinstance(data, TensorData) and data.batch_size > 1 else data.epoch(0)


def _without_repeats(data: TensorData) -> Iterator[Batch]:
    left = data.num_data
    for inputs, targets in data.epoch(0):
        if len(targets) > left:
            inputs, targets = pytree.tree_map(lambda leaf, rows=left: leaf[:rows], inputs), targets[:left]
        left -= len(targets)
        if len(targets):
            yield inputs, targets


def scaled_up(average: Average, num_data: float) -> Average:
    """What all N examples add up to, estimated from an average over some: the scaling of sums over a batch by N/B."""
    return num_data * average


def network_outputs(
    layout: Layout,
    theta: Tensor,  # (S, m)
    inputs: Any,
    *,
    strategy: Strategy | None = None,
    batch_statistics: bool = True,
    autocast: torch.dtype | None = None,
) -> Any:  # (S, B, ...)
    """The network's outputs at each weight vector, in the module's dtype.

    Args:
        batch_statistics: BatchNorm by the batch's own statistics; False uses the module's buffers.
        autocast: run the network in this dtype by torch.autocast.
    """
    args, kwargs = as_call(inputs)
    with torch.autocast(theta.device.type, autocast, enabled=autocast is not None):
        outputs = apply_many(layout, theta, *args, batch_statistics=batch_statistics, strategy=strategy, **kwargs)
    if autocast is None:
        return outputs
    return pytree.tree_map(lambda leaf: leaf.to(theta.dtype) if leaf.is_floating_point() else leaf, outputs)


def log_likelihood(
    layout: Layout,
    likelihood: Likelihood,
    theta: Tensor,  # (S, m)
    batch: Batch,
    *,
    strategy: Strategy | None = None,
    batch_statistics: bool = True,
    autocast: torch.dtype | None = None,
) -> Tensor:  # (S, B)
    """log p(y | x, theta) of each example at each weight vector; options as in `network_outputs`."""
    inputs, targets = batch
    outputs = network_outputs(
        layout, theta, inputs, strategy=strategy, batch_statistics=batch_statistics, autocast=autocast
    )
    values = likelihood.log_prob(outputs, targets)
    if values.shape != (theta.shape[0], len(targets)) or len(targets) == 0:
        raise ValueError(
            f"log_prob: expected shape ({theta.shape[0]}, {len(targets)}), samples by a batch >= 1, got "
            f"{tuple(values.shape)}; sum over one example's targets, not over examples."
        )
    return values


def are_labels(likelihood: Likelihood) -> bool:
    """Whether this is a likelihood of labels, perhaps with weights of the examples, and not one of features."""
    return isinstance(likelihood.observed, ClassificationLikelihood) and not likelihood.needs_all_examples


def chosen_for(choice: Choice[T], layout: Layout) -> T | None:
    """The object that the user chose, made for this layout if the choice is a function."""
    if callable(choice) and not isinstance(choice, nn.Module):
        return choice(layout)
    return choice  # type: ignore[return-value]  # a module is callable too, but is the object itself


def _work_per_example(layout: Layout, data: TensorData) -> float | None:
    """Multiplications of the network, from its first few examples; None where it refuses these alone.

    As the nodes of a graph, which are nothing without their neighbours; the trial has shown that it runs on a batch.
    """
    some = pytree.tree_map(lambda leaf: leaf[: min(8, data.num_data)], data.inputs)
    args, kwargs = as_call(some)
    try:
        return multiplications(layout, *args, **kwargs) / min(8, data.num_data)
    except Exception:  # whatever the module's forward may raise
        return None
