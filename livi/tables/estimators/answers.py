"""How an estimator answers: networks from its posterior, asked about some rows at a time, in the user's units."""

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
from livi.tables.estimators.draws import TOLERANCE, Draws
from livi.tables.estimators.network import network_facts, on_all_threads, threads
from livi.tables.estimators.open_gaps import filled
from livi.tables.estimators.pieces import Pieces
from livi.tables.estimators.scaling import Array, Scaling

# Activations of a layer held at a time, over rows and weight draws. A CPU is quickest while they stay in its cache (2.5
# times as quick as with ten times as many), a GPU wants more work at once.
_CPU_BLOCK, _GPU_BLOCK = 1_500_000, 30_000_000


class Answering:
    """The part of an estimator that predicts, from what its fit has left."""

    posterior_: Posterior
    input_scaling_: Scaling
    input_reach_: float
    pieces_: Pieces | None = None
    usual_: Array | None = None  # None in files of old, which know no gaps
    seed_: int
    num_samples: int | str
    n_jobs: int | None

    def _answer_by(self, posterior: Posterior, seed: int) -> None:
        self.posterior_, self._draws = posterior, Draws(posterior, self.num_samples, seed)

    def _in_units(self, prediction: Prediction) -> Any:
        """The prediction of the standardised problem as one of the user's."""
        return prediction

    def sampling(self, part: Any) -> tuple[Tensor, Tensor]:  # (n,), (n,)
        """The Monte Carlo error of each row of a prediction, and the number of networks that it was asked of."""
        error = self._open(part)
        return error, torch.full_like(error, part.num_samples, dtype=torch.int64)

    def read_predictive(
        self, X: Array, what: Callable[[Any, NDArray[np.intp]], Sequence[Tensor]], *, alike: bool = False
    ) -> list[NDArray[Any]]:
        """`what` of the predictions for checked rows: tensors with an axis of examples in front, as whole arrays.

        Rows are predicted in blocks, so that memory does not grow with their number. NaN stands for a number that is
        not known (livi/tables/estimators/open_gaps.py).

        Args:
            what: of a prediction, and the places of its rows in X.
            alike: ask the same networks for all rows, rather than as many as each row needs.
        """
        with threads(self.n_jobs):
            found = on_all_threads(
                lambda layout, rows: list(self._answers(layout, X, rows, what, alike)),
                self.posterior_.layout,
                list(self._blocks(len(X), alike)),
            )
        parts = [part for block in found for part in block]
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        return [np.concatenate(columns)[order] for columns in zip(*(part for _, part in parts), strict=True)]

    def _answers(
        self, layout: Layout, X: Array, rows: NDArray[np.intp], what: Callable[..., Sequence[Tensor]], alike: bool
    ) -> Iterator[tuple[NDArray[np.intp], list[NDArray[Any]]]]:
        """What is found for rows of one block."""
        gaps = np.isnan(X[rows]).any(1)
        for some in (rows[~gaps], rows[gaps]):
            if len(some):
                yield from self._asked(layout, X, some, what, alike)

    def _asked(
        self, layout: Layout, X: Array, rows: NDArray[np.intp], what: Callable[..., Sequence[Tensor]], alike: bool
    ) -> Iterator[tuple[NDArray[np.intp], list[NDArray[Any]]]]:
        """Likewise of rows that all have gaps, or none: those first that need fewest networks."""
        steps = (self._draws.common,) if alike else self._draws.steps
        inputs = self._inputs(layout, X[rows])
        outputs = self._outputs(layout, inputs, 0, steps[0])
        for known, more in itertools.pairwise((*steps, steps[-1])):
            part = self._prediction(outputs)
            enough = np.ones(len(rows), np.bool_) if more == known else as_numpy(self._open(part) <= TOLERANCE)
            if enough.any():
                done = part if enough.all() else self._prediction(outputs[:, torch.from_numpy(enough)])
                yield rows[enough], [as_numpy(tensor) for tensor in what(done, rows[enough])]
            if enough.all():
                return
            left = torch.from_numpy(~enough)
            rows, inputs = rows[~enough], inputs[..., left, :]
            outputs = torch.cat([outputs[:, left], self._outputs(layout, inputs, known, more)])

    def _blocks(self, num_rows: int, alike: bool) -> Iterator[NDArray[np.intp]]:
        size = _rows_at_a_time(self.posterior_.layout, self._draws.common if alike else self._draws.steps[0])
        for start in range(0, num_rows, size):
            yield np.arange(start, min(num_rows, start + size))

    @torch.no_grad()
    def _outputs(self, layout: Layout, inputs: Tensor, first: int, last: int) -> Tensor:  # (last - first, n, ...)
        """What networks number `first` up to `last` return, some of the rows at a time.

        Args:
            inputs: (n, p), or (k, n, p), of which each network sees one, in turn.
        """
        theta = self._draws.between(first, last)
        if inputs.ndim == 2:
            parts = inputs.split(_rows_at_a_time(layout, len(theta)))
            return torch.cat([apply_many(layout, theta, part) for part in parts], 1)
        turn = torch.arange(first, last, device=theta.device) % len(inputs)
        found = [apply_many(layout, theta[turn == place], each) for place, each in enumerate(inputs) if place in turn]
        return torch.cat(found)[turn.argsort(stable=True).argsort()]

    def _open(self, prediction: Any) -> Tensor:  # (n,)
        """The Monte Carlo error of each row's answer."""
        error: Tensor = prediction.monte_carlo_error()
        return error

    def _prediction(self, outputs: Tensor) -> Any:
        rng = torch.Generator().manual_seed(self.seed_)  # of draws behind the quantiles of counts
        return self._in_units(prediction_of(self.posterior_.likelihood, outputs, rng))

    def _inputs(self, layout: Layout, X: Array) -> Tensor:  # (n, p), or (k, n, p) with gaps
        whole = [X] if self.usual_ is None or not np.isnan(X).any() else filled(X, self.usual_)
        seen = np.stack([self.standardised_inputs(each) for each in whole])
        return torch.from_numpy(seen if len(seen) > 1 else seen[0]).to(layout.device, layout.dtype)

    def standardised_inputs(self, X: Array) -> Array:
        """The inputs as the network sees them."""
        columns = self.input_scaling_.inputs(X, self.input_reach_)
        return columns if self.pieces_ is None else np.concatenate([columns, self.pieces_.inputs(X)], 1)

    def _predict(self, X: Array) -> Any:
        """The prediction for all rows together, by the same networks for each of them."""
        layout = self.posterior_.layout
        return self._prediction(self._outputs(layout, self._inputs(layout, X), 0, self._draws.common))


def _rows_at_a_time(layout: Layout, num_draws: int) -> int:
    facts = network_facts(layout.module)
    block = _CPU_BLOCK if layout.device.type == "cpu" else _GPU_BLOCK
    widest: int = max(*facts["hidden"], facts["outputs"], 1)
    return max(1, block // (num_draws * widest))


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """On the CPU."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
