"""A fitted posterior: weights that can be sampled, and everything to do with them afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi import checks
from livi.family.ensemble import Ensemble
from livi.family.family import Centred, Family, WeightSampler
from livi.family.last_layer import ExactLastLayer
from livi.model.data import (
    NotGatheredError,
    Unpack,
    as_data,
    as_tensor,
    as_tensors,
    gathered,
    holds_batches,
    input_batches,
)
from livi.model.data.shapes import images_of_bytes
from livi.model.likelihoods import Likelihood, Weighted, pass_weights
from livi.model.priors import Prior
from livi.model.problem import Problem
from livi.network import Layout
from livi.network.linearised import Linearised
from livi.network.modes import with_gradients
from livi.network.turns import in_turn
from livi.posterior import storage
from livi.posterior.diagnostics import Diagnosis, diagnose
from livi.posterior.diagnostics.data import on_other_data
from livi.posterior.diagnostics.subject import check_data
from livi.posterior.prediction import (
    FunctionDraws,
    Networks,
    Prediction,
    answers,
    outputs_of,
    prediction_of,
    together,
    with_statistics,
)
from livi.posterior.prediction.refusal import check_taken, failure, inputs_refused
from livi.posterior.prediction.source import SameNetworks, Source

UNPACKED = "unpack: expected only with batches, such as a DataLoader; other data are passed as they are."


class Posterior:
    """What `livi.fit` and every baseline return. Several threads may use it; they take turns at its network.

    Args:
        sampler: anything with a layout and `sample(num_samples, rng) -> (S, m)`.
        buffers: BatchNorm statistics for prediction, shared by all weights; of an `Ensemble` also one row per member.
        calibration: inputs of a few hundred training examples, on which every drawn network's own BatchNorm statistics
            are measured; they take the place of `buffers`, and are part of a saved file.
        history: one dict per logged training step: the bound, its terms, rates.
        plan: the choices behind the fit, as JSON-able numbers and words.

    >>> from livi.model.likelihoods import Gaussian
    >>> layout = Layout(nn.Linear(2, 1))
    >>> members = Ensemble(layout, torch.zeros(20, layout.num_params))
    >>> Posterior(members, Gaussian(0.1)).predict(torch.ones(5, 2), num_samples=20)
    RegressionPrediction(num_samples=20, shape=(5,))
    """

    def __init__(
        self,
        sampler: WeightSampler,
        likelihood: Likelihood,
        prior: Prior | None = None,
        *,
        buffers: Mapping[str, Tensor] | None = None,
        calibration: Any = None,
        history: Sequence[Mapping[str, float]] = (),
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(sampler, WeightSampler):
            expected = "expected an object with a layout and sample(num_samples, rng)"
            raise TypeError(f"sampler: {expected}, got {type(sampler).__name__}.")
        if not isinstance(likelihood, Likelihood):
            expected = "expected a livi likelihood such as Gaussian()"
            raise TypeError(f"likelihood: {expected}, got {type(likelihood).__name__}.")
        self.sampler = sampler
        self.likelihood = likelihood
        self.prior = prior
        self.buffers = dict(buffers or {})
        self.calibration = calibration
        self.history = [dict(row) for row in history]
        self.plan = dict(plan or {})
        self._same = SameNetworks()
        self._unweighted: Layout | None = None

    @classmethod
    def from_parts(cls, parts: storage.LoadedParts) -> Posterior:
        """The posterior that was saved as these parts."""
        likelihood = parts.likelihood
        if isinstance(parts.sampler, ExactLastLayer):  # which shares its likelihood with the posterior, as after a fit
            likelihood = parts.sampler.likelihood.observed
        return cls(
            parts.sampler,
            likelihood,
            parts.prior,
            buffers=parts.buffers,
            calibration=parts.calibration,
            history=parts.history,
            plan=parts.plan,
        )

    @property
    def temperature(self) -> float:
        """The temperature of the fit, by default 1; see `livi.Recipe`."""
        return float((self.plan.get("recipe") or {}).get("temperature", 1.0))

    @property
    def layout(self) -> Layout:
        return self.sampler.layout

    @property
    def exact_layer(self) -> ExactLastLayer | None:
        """The sampler, where it infers the last layer given all other weights and holds the data; else None."""
        return self.sampler if isinstance(self.sampler, ExactLastLayer) else None

    @in_turn
    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """Weight vectors from the posterior."""
        with torch.no_grad():
            return self.sampler.sample(num_samples, rng)

    @in_turn
    def functions(self, num_samples: int, rng: torch.Generator | None = None) -> FunctionDraws:
        """Functions drawn from the posterior: fixed networks, which can be evaluated at any inputs, repeatedly.

        They take inputs in your units. Outputs are the network's own, which are others where targets were standardised
        inside: `posterior.likelihood.moments(outputs)` has means and standard deviations in yours.
        """
        checks.positive_int("num_samples", num_samples)
        drawn = together(self.layout, self._networks(num_samples, rng))
        return FunctionDraws(self._for_new_examples()[0], drawn.theta, drawn.buffers)

    @in_turn
    def predict(
        self,
        inputs: Any,
        *,
        num_samples: int = 100,
        rng: torch.Generator | None = None,
        deterministic: bool = False,
        memory_limit: int | None = None,
        unpack: Unpack | None = None,
    ) -> Prediction:
        """The posterior predictive at these inputs: tensors, arrays, lists; a tuple or dict of several; a DataLoader.

        p(y | x, D) ~ 1/S sum_s p(y | x, theta_s), of the kind that the likelihood says; `SampledOutputs` where it says
        none. The result has the device of the network and its dtype, or float32 for half precision.

        Of a DataLoader or a list of batches only the inputs are used; see `input_batches`. Answers are differentiable
        in inputs that require gradients, and the networks constants; the activations of all networks are then held
        until gradients have been taken. After a fit with weights of the examples (`livi.Weighted`), new ones need
        none; those that come beside the inputs, as in that fit, are left out.

        Args:
            num_samples: S; the error of the predictive mean is the epistemic standard deviation over sqrt(S).
            rng: draws new networks. Without one the same `num_samples` networks are used every time, so that answers
                can be compared with each other. They are kept, for quick answers from the second one on, where they
                take at most 256 MB; else they are drawn again every time, and `frozen` keeps them.
            deterministic: one forward pass at the posterior's centre, without epistemic uncertainty.
            memory_limit: bytes of activations at a time, at most; changes nothing but rounding.
            unpack: batch -> (inputs, targets), of which the targets may be None, for batches as in `livi.fit`.

        Raises:
            TypeError, ValueError: inputs that the network does not take, infinite ones, or NaN without an answer.

        Cost: S forward passes, and as many on the calibration inputs if there are any. Memory: at most 256 MB of
        weights at a time, and the outputs, besides memory_limit.
        """
        checks.positive_int("num_samples", num_samples)
        checks.rng("rng", rng)
        layout, likelihood = self._for_new_examples()
        networks: Iterable[Networks]
        if deterministic:
            networks = [with_statistics(self.layout, self._centre()[None], self.buffers, self.calibration)]
        else:
            networks = self._networks(num_samples, rng, same=True)
        batches: Iterable[tuple[str, Any]] = [("inputs", inputs)]
        if holds_batches(inputs):
            batches = ((f"batch {index}: inputs", batch) for index, batch in enumerate(input_batches(inputs, unpack)))
        elif unpack is not None:
            raise ValueError(UNPACKED)

        def ask(block: Networks, batch: tuple[str, Any]) -> Any:
            name, given = batch[0], self._as_inputs(batch[1])
            with inputs_refused(layout, self.plan, given):
                return answers(layout, block, given, name, memory_limit=memory_limit)

        return prediction_of(likelihood, outputs_of(networks, batches, ask), rng)

    def _for_new_examples(self) -> tuple[Layout, Likelihood]:
        """Network and likelihood, without the weights of examples that a fit passed through the network."""
        layout = self.layout
        if not isinstance(self.likelihood, Weighted) or layout.forward is not pass_weights:
            return layout, self.likelihood
        if self._unweighted is None or self._unweighted.module is not layout.module:
            self._unweighted = Layout(layout.module, layout.patterns, scaling=layout.scaling)
        return self._unweighted, self.likelihood.base

    def _as_inputs(self, batch: Any) -> Any:
        """Tensors on the network's device and in its dtype; whole numbers too, if the network fails on them as such.

        But images of bytes, which a fit refuses: it was of scaled ones, and these would be 255 times as large.
        """
        layout, _ = self._for_new_examples()
        weighted = layout is not self.layout  # or the exact last layer has kept the weights to itself
        weighted |= self.exact_layer is not None and self.exact_layer.likelihood.counts is not None
        if weighted and isinstance(batch, tuple) and len(batch) == 2:
            batch = batch[0]
        found = as_tensors(batch, layout.device, layout.dtype)
        if all(leaf.is_floating_point() for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor)):
            return found
        real = pytree.tree_map(
            lambda leaf: leaf if not isinstance(leaf, Tensor) or images_of_bytes(leaf) else leaf.to(layout.dtype), found
        )
        return real if failure(layout, found) and not failure(layout, real) else found

    @in_turn
    def frozen(self, num_samples: int = 200, rng: torch.Generator | None = None) -> Posterior:
        """A posterior of so many fixed networks drawn from this one: quick to predict with, and without training data.

        It holds their weights and BatchNorm statistics, but none of the training data that this one may hold: all rows
        for an exact last layer, the calibration inputs for BatchNorm. It cannot draw further networks.
        Memory: `num_samples` networks.
        """
        checks.positive_int("num_samples", num_samples)
        if isinstance(self.layout, Linearised):
            raise TypeError(
                "frozen: expected weights of the network itself, got those of its linearisation, which mean nothing "
                "without what it is linearised around; save the posterior whole, without draws=."
            )
        drawn = together(self.layout, self._networks(num_samples, rng, same=True))
        facts = self.plan | {"frozen": num_samples}
        layout, likelihood = self.of_all_weights()
        kept = Ensemble(layout, drawn.theta).requires_grad_(False)
        return Posterior(kept, likelihood, self.prior, buffers=drawn.buffers, history=self.history, plan=facts)

    def of_all_weights(self) -> tuple[Layout, Likelihood]:
        """The network and likelihood of networks drawn from this one: with weights of the examples, if the fit had any.

        An exact last layer keeps those to itself, beside its data.
        """
        layout = self.layout
        if self.exact_layer is None or self.exact_layer.likelihood.counts is None:
            return layout, self.likelihood
        weighted = Layout(layout.module, layout.patterns, forward=pass_weights, scaling=layout.scaling)
        return weighted, Weighted(self.likelihood)

    def _networks(self, num_samples: int, rng: torch.Generator | None, *, same: bool = False) -> Iterable[Networks]:
        """Networks drawn from the posterior; with `same` and without rng the same ones every time."""
        source = Source(self.sampler, self.buffers, self.calibration)
        return self._same.of(source, num_samples) if same and rng is None else source.networks(num_samples, rng)

    @in_turn
    def to(self, device: torch.device | str) -> Posterior:
        """Move all of it to a device: network, sampler, likelihood, prior, buffers, calibration inputs. Returns itself.

        As with `nn.Module.to` the object itself moves, and so does the network that it may share with others.
        """
        target = checks.device(device)
        self.layout.module.to(target)
        for part in (self.sampler, self.likelihood, self.prior):
            if isinstance(part, nn.Module):
                part.to(target)
        self.buffers = storage.moved(self.buffers, target)
        self.calibration = storage.moved(self.calibration, target)
        self._same = SameNetworks()
        return self

    @in_turn
    @with_gradients
    def diagnose(self, inputs: Any, targets: Any = None, *, unpack: Unpack | None = None, **options: Any) -> Diagnosis:
        """Checks of the posterior itself, with a verdict in words; `print` it.

        For a posterior with an exact last layer the earlier weights are examined, on the data that it was fitted to.

        Args:
            inputs, targets: the data that it was fitted to, or some of them, with `num_data` for all; or alone a
                DataLoader or other batches of both, or a `livi.Problem`, whose data are used. The verdict says if these
                are other data.
            unpack: batch -> (inputs, targets), for batches as in `livi.fit`.
        """
        device, dtype = self.layout.device, self.layout.dtype
        if isinstance(inputs, Problem) or (targets is None and holds_batches(inputs)):
            how: dict[str, Any] = {"device": device, "dtype": dtype, "unpack": unpack}
            data = inputs.data if isinstance(inputs, Problem) else as_data(inputs, **how)
            try:
                whole = gathered(data)
            except NotGatheredError as reason:
                raise ValueError(
                    f"diagnose: expected the same examples at every epoch, but {reason}; pass some of them as "
                    "diagnose(x, y, num_data=...), with the number of all."
                ) from reason
            inputs, targets = whole.inputs, whole.targets
        elif unpack is not None:
            raise ValueError(UNPACKED)
        if self.exact_layer is not None:
            own = (self.exact_layer.all_inputs(), self.exact_layer.targets)
            if targets is None:
                return diagnose(self.earlier(), *own, **options)
            given = (as_tensors(inputs, device, dtype), as_tensor(targets, device, dtype))
            check_data(*given, None)
            check_taken(self.layout, self.plan, self._as_inputs(inputs))
            return diagnose(self.earlier(), *own, **options).noting(on_other_data(own, given))
        if targets is None:
            raise TypeError(
                f"diagnose: expected inputs and targets, batches or a livi.Problem, got a {type(inputs).__name__} "
                "alone; pass diagnose(x, y)."
            )
        if self._for_new_examples()[0] is not self.layout and not isinstance(inputs, tuple | list):
            raise TypeError(
                f"diagnose: expected the weights of the examples beside their inputs, as in the fit, got a "
                f"{type(inputs).__name__} alone; pass diagnose((x, w), y)."
            )
        with inputs_refused(self.layout, self.plan, as_tensors(inputs, device, dtype)):
            return diagnose(self, inputs, targets, **options)

    def earlier(self) -> Posterior:
        """The posterior of all weights but an exact last layer, whose likelihood is the evidence of that layer."""
        sampler = self.exact_layer
        if sampler is None:
            raise TypeError(f"earlier: expected an exact last layer, got {type(self.sampler).__name__}; fit with one.")
        return Posterior(sampler.earlier, sampler.likelihood, sampler.prior, history=self.history, plan=self.plan)

    @in_turn
    def save(self, path: str | Path, *, draws: int | None = None, **options: Any) -> None:
        """Write the posterior to one file, atomically; see `livi.posterior.storage.save_posterior`.

        What the file holds of the training data: all inputs and targets where the last layer is exact or
        conditional, the inputs of a few hundred examples where the network has BatchNorm, otherwise nothing.

        Args:
            draws: write so many networks drawn from the posterior instead (`frozen`), and no training data.
        """
        checks.options("save", options, ["draws", *storage.SAVE_OPTIONS])
        storage.save_posterior(path, self if draws is None else self.frozen(draws), **options)

    def _centre(self) -> Tensor:  # (m,)
        if not isinstance(self.sampler, Centred):
            raise TypeError(
                f"deterministic: expected a posterior with a centre, got {type(self.sampler).__name__}; "
                "predict with num_samples instead."
            )
        return self.sampler.centre()

    def __repr__(self) -> str:
        sampler = self.sampler
        kind = sampler.title() if isinstance(sampler, Family | ExactLastLayer) else type(sampler).__name__
        weights = f"{self.layout.num_params:,} weights of {type(self.layout.module).__name__}"
        words = [kind, weights, type(self.likelihood).__name__]
        steps, stopped = self.plan.get("recipe", {}).get("steps"), self.plan.get("interrupted_at")
        if stopped is not None:
            words.append(f"interrupted at step {stopped:,} of {steps:,}")
        elif self.plan.get("stopped_at") is not None:
            words.append(f"stopped early at step {self.plan['stopped_at']:,} of {steps:,}")
        elif self.history and steps is not None:
            words.append(f"{steps:,} steps")
        if self.plan.get("parameters_of") is not None:
            words.append(f"with the parameters of step {self.plan['parameters_of']:,}")
        return f"Posterior({', '.join(words)})"


def load(path: str | Path, net: nn.Module, device: str | torch.device | None = None, **options: Any) -> Posterior:
    """A saved posterior over a copy of `net`, a network like the one it was fitted to; see `storage.load_parts`."""
    if not isinstance(net, nn.Module):
        got = f"the class {net.__name__}" if isinstance(net, type) else type(net).__name__
        raise TypeError(f"net: expected a network like the one that the posterior was fitted to, got {got}.")
    return Posterior.from_parts(storage.load_parts(path, net, device, **options))
