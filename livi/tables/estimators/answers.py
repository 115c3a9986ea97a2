"""Predictions of an estimator: by networks drawn from its posterior, for blocks of rows, in the user's units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from livi.network import Layout, apply_many
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import Prediction, prediction_of
from livi.tables.estimators.draws import MAX_ERROR, Draws
from livi.tables.estimators.missing_values import filled
from livi.tables.estimators.network import network_facts, on_all_threads, threads
from livi.tables.estimators.pieces import Pieces
from livi.tables.estimators.scaling import Array, Scaling

# Activations of a layer that are computed at a time, over rows and weight draws. A CPU is fastest while they fit in its
# cache (2.5 times as fast as with ten times as many); a GPU needs more work at once.
_CPU_BLOCK, _GPU_BLOCK = 1_500_000, 30_000_000


class Answering:
    """The predicting part of an estimator, from the attributes that its fit sets."""

    posterior_: Posterior
    input_scaling_: Scaling
    input_reach_: float
    pieces_: Pieces | None = None
    usual_: Array | None = None  # None in old files, from before missing values were allowed
    seed_: int
    num_samples: int | str
    n_jobs: int | None

    def _set_posterior(self, posterior: Posterior, seed: int) -> None:
        self.posterior_, self._draws = posterior, Draws(posterior, self.num_samples, seed)

    def _in_units(self, prediction: Prediction) -> Any:
        """A prediction of the standardised target, in the units of the user's."""
        return prediction

    def sampling(self, part: Any) -> tuple[Tensor, Tensor]:  # (n,), (n,)
        """The Monte Carlo error of each row of a prediction, and the number of networks behind it."""
        error = self._monte_carlo_error(part)
        return error, torch.full_like(error, part.num_samples, dtype=torch.int64)

    def read_predictive(
        self, X: Array, extract: Callable[[Any, NDArray[np.intp]], Sequence[Tensor]], *, same_networks: bool = False
    ) -> list[NDArray[Any]]:
        """Predict checked rows in blocks, so that memory does not grow with their number; NaN is a missing value.

        Args:
            extract: returns the wanted tensors, with a first axis of examples, from a prediction for some of the rows
                and the indices of these rows in X.
            same_networks: use the same networks for all rows, rather than as many as each row needs.

        Returns:
            The tensors for all rows, as arrays.
        """
        with threads(self.n_jobs):
            found = on_all_threads(
                lambda layout, rows: list(self._predict_block(layout, X, rows, extract, same_networks)),
                self.posterior_.layout,
                list(self._blocks(X, same_networks)),
            )
        parts = [part for block in found for part in block]
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        return [np.concatenate(columns)[order] for columns in zip(*(part for _, part in parts), strict=True)]

    def _predict_block(
        self,
        layout: Layout,
        X: Array,
        rows: NDArray[np.intp],
        extract: Callable[..., Sequence[Tensor]],
        same_networks: bool,
    ) -> Iterator[tuple[NDArray[np.intp], list[NDArray[Any]]]]:
        """Yield indices of rows and what `extract` returned for them; rows that need few networks come first.

        Args:
            rows: all with missing values, or all without.
        """
        steps = (self._draws.common,) if same_networks else self._draws.steps
        inputs = self._inputs(layout, X[rows])
        outputs = self._outputs(layout, inputs, 0, steps[0])
        for known, more in itertools.pairwise((*steps, steps[-1])):
            part = self._prediction(outputs)
            last = more == known
            enough = np.ones(len(rows), np.bool_) if last else as_numpy(self._monte_carlo_error(part) <= MAX_ERROR)
            if enough.any():
                done = part if enough.all() else self._prediction(outputs[:, torch.from_numpy(enough)])
                yield rows[enough], [as_numpy(tensor) for tensor in extract(done, rows[enough])]
            if enough.all():
                return
            left = torch.from_numpy(~enough)
            rows, inputs = rows[~enough], inputs[..., left, :]
            outputs = torch.cat([outputs[:, left], self._outputs(layout, inputs, known, more)])

    def _blocks(self, X: Array, same_networks: bool) -> Iterator[NDArray[np.intp]]:
        """Indices of rows to predict at a time, those with missing values apart from the others."""
        size = _rows_at_a_time(self.posterior_.layout, self._draws.common if same_networks else self._draws.steps[0])
        for start in range(0, len(X), size):
            rows = np.arange(start, min(len(X), start + size))
            missing = np.isnan(X[rows]).any(1)
            yield from (part for part in (rows[~missing], rows[missing]) if len(part))

    @torch.no_grad()
    def _outputs(self, layout: Layout, inputs: Tensor, first: int, last: int) -> Tensor:  # (last - first, n, ...)
        """The outputs of networks number `first` to `last` (excluded), for some of the rows at a time.

        Args:
            inputs: (n, p), or (k, n, p), of which network i sees number i modulo k.
        """
        theta = self._draws.between(first, last)
        if inputs.ndim == 2:
            parts = inputs.split(_rows_at_a_time(layout, len(theta)))
            return torch.cat([apply_many(layout, theta, part) for part in parts], 1)
        turn = torch.arange(first, last, device=theta.device) % len(inputs)
        found = [apply_many(layout, theta[turn == place], each) for place, each in enumerate(inputs) if place in turn]
        return torch.cat(found)[turn.argsort(stable=True).argsort()]

    def _monte_carlo_error(self, prediction: Any) -> Tensor:  # (n,)
        """The Monte Carlo error of each row's prediction."""
        error: Tensor = prediction.monte_carlo_error()
        return error

    def _prediction(self, outputs: Tensor) -> Any:
        rng = torch.Generator().manual_seed(self.seed_)  # for draws from which quantiles of counts are computed
        return self._in_units(prediction_of(self.posterior_.likelihood, outputs, rng))

    def _inputs(self, layout: Layout, X: Array) -> Tensor:  # (n, p), or (k, n, p) with missing values
        versions = [X] if self.usual_ is None or not np.isnan(X).any() else filled(X, self.usual_)
        seen = np.stack([self.standardised_inputs(each) for each in versions])
        return torch.from_numpy(seen if len(seen) > 1 else seen[0]).to(layout.device, layout.dtype)

    def standardised_inputs(self, X: Array) -> Array:
        """The inputs as the network sees them."""
        columns = self.input_scaling_.inputs(X, self.input_reach_)
        return columns if self.pieces_ is None else np.concatenate([columns, self.pieces_.inputs(X)], 1)

    def _predict(self, X: Array) -> Any:
        """The prediction for all rows together, with the same networks for each of them."""
        layout = self.posterior_.layout
        return self._prediction(self._outputs(layout, self._inputs(layout, X), 0, self._draws.common))


def _rows_at_a_time(layout: Layout, num_draws: int) -> int:
    facts = network_facts(layout.module)
    block = _CPU_BLOCK if layout.device.type == "cpu" else _GPU_BLOCK
    widest: int = max(*facts["hidden"], facts["outputs"], 1)
    return max(1, block // (num_draws * widest))


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """A tensor as an array, copied from a GPU if necessary."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
