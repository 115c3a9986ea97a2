"""A fitted posterior: weights that can be sampled, and everything to do with them afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from livi import storage
from livi.data import as_tensors
from livi.diagnostics import Diagnosis, diagnose
from livi.last_layer import ExactLastLayer
from livi.layout import Layout
from livi.likelihoods import Likelihood
from livi.posterior import ImplicitPosterior
from livi.prediction import FunctionDraws, Prediction, WeightSampler, predict
from livi.priors import Prior


class Posterior:
    """What `livi.fit` and every baseline return.

    Args:
        sampler: anything with a layout and `sample(num_samples, rng) -> (S, m)`.
        buffers: BatchNorm statistics for prediction, from `livi.estimate_statistics`.
        history: one dict a logged training step: the bound, its terms, rates.
        plan: the choices behind the fit, as JSON-able numbers and words.
    """

    def __init__(
        self,
        sampler: WeightSampler,
        likelihood: Likelihood,
        prior: Prior | None = None,
        *,
        buffers: Mapping[str, Tensor] | None = None,
        history: Sequence[Mapping[str, float]] = (),
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        self.sampler = sampler
        self.likelihood = likelihood
        self.prior = prior
        self.buffers = dict(buffers or {})
        self.history = [dict(row) for row in history]
        self.plan = dict(plan or {})

    @property
    def layout(self) -> Layout:
        return self.sampler.layout

    def sample(self, num_samples: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """Weight vectors from the posterior."""
        with torch.no_grad():
            return self.sampler.sample(num_samples, rng)

    def functions(self, num_samples: int, rng: torch.Generator | None = None) -> FunctionDraws:
        """Whole networks drawn from the posterior, to be evaluated together at any inputs, as often as needed."""
        return FunctionDraws(self.layout, self.sample(num_samples, rng), self.buffers)

    def predict(
        self,
        inputs: Any,
        *,
        num_samples: int = 100,
        rng: torch.Generator | None = None,
        deterministic: bool = False,
        memory_limit: int | None = None,
    ) -> Prediction:
        """The posterior predictive at these inputs (tensors, arrays, lists; a tuple or dict of several).

        Args:
            deterministic: one forward pass at the posterior's centre, without epistemic uncertainty.
            memory_limit: bytes of activations at a time; changes nothing but rounding.
        """
        return predict(
            self.sampler,
            self.likelihood,
            as_tensors(inputs, self.layout.device, self.layout.dtype),
            num_samples=num_samples,
            rng=rng,
            buffers=self.buffers,
            memory_limit=memory_limit,
            theta=self._centre() if deterministic else None,
        )

    def diagnose(self, inputs: Any, targets: Any, **options: Any) -> Diagnosis:
        """Checks of the posterior itself, with a verdict in words; `print` it.

        Of a posterior with an exact last layer the earlier weights are examined, on the data that it was fitted to.
        """
        if isinstance(self.sampler, ExactLastLayer):
            return diagnose(self.earlier(), self.sampler.all_inputs(), self.sampler.targets, **options)
        return diagnose(self, inputs, targets, **options)

    def earlier(self) -> Posterior:
        """Of a posterior with an exact last layer, that of all other weights, with the evidence as its likelihood."""
        sampler = self.sampler
        if not isinstance(sampler, ExactLastLayer):
            raise TypeError(f"earlier: expected an exact last layer, got {type(sampler).__name__}; fit with one.")
        return Posterior(sampler.earlier, sampler.likelihood, sampler.prior, history=self.history, plan=self.plan)

    def save(self, path: str | Path, **options: Any) -> None:
        """Write the posterior to one file, atomically; see `livi.storage.save_posterior`."""
        storage.save_posterior(path, self, **options)

    def _centre(self) -> Tensor:  # (m,)
        if not isinstance(self.sampler, (ExactLastLayer, ImplicitPosterior)):
            raise TypeError(
                f"deterministic: expected an implicit posterior, got {type(self.sampler).__name__}, without a centre; "
                "predict with num_samples instead."
            )
        return self.sampler.centre()

    def __repr__(self) -> str:
        sampler = self.sampler
        kind = type(sampler).__name__
        implicit = sampler.earlier if isinstance(sampler, ExactLastLayer) else sampler
        if isinstance(implicit, ImplicitPosterior):
            kind = f"{implicit.num_components} x {type(implicit.generators[0]).__name__}"
            kind += "" if implicit is sampler else " and an exact last layer"
        weights = f"{self.layout.num_params:,} weights of {type(self.layout.module).__name__}"
        words = [kind, weights, type(self.likelihood).__name__]
        steps, stopped = self.plan.get("recipe", {}).get("steps"), self.plan.get("interrupted_at")
        if stopped is not None:
            words.append(f"interrupted at step {stopped:,} of {steps:,}")
        elif self.history and steps is not None:
            words.append(f"{steps:,} steps")
        return f"Posterior({', '.join(words)})"


def load(path: str | Path, net: nn.Module, device: str | torch.device | None = None, **options: Any) -> Posterior:
    """A saved posterior over `net`, a network like the one it was fitted to; see `livi.storage.load_parts`."""
    parts = storage.load_parts(path, net, device, **options)
    return Posterior(
        parts.sampler, parts.likelihood, parts.prior, buffers=parts.buffers, history=parts.history, plan=parts.plan
    )
