"""Callbacks: `Callback`, called while a fit runs, and `Run`, its view of the fit."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from livi.family.objective import Bound
from livi.inference.parameters import assign, values
from livi.inference.ranks import Alone
from livi.inference.recipe import Recipe
from livi.inference.validation import PREFIX, Validation, named
from livi.model.data import Data
from livi.model.warning import warn
from livi.posterior.posterior import Posterior

Row = dict[str, float]


class Training(Protocol):
    """The attributes of a `Trainer` that a `Run` reads or sets."""

    bound: Bound
    data: Data
    recipe: Recipe
    step: int
    history: list[Row]
    average: dict[str, Tensor] | None
    stopped: str
    parameters_of: int | None
    ranks: Alone


class Run:
    """A fit that is under way, as a callback sees it.

    Attributes:
        metrics: names of the validation scores, as "nll" and "rmse"; none without validation.
    """

    def __init__(
        self, training: Training, posterior: Callable[[Bound], Posterior] | None = None, metrics: Sequence[str] = ()
    ) -> None:
        self._training, self._posterior, self.metrics = training, posterior, tuple(metrics)

    @property
    def step(self) -> int:
        """Steps taken."""
        return self._training.step

    @property
    def steps(self) -> int:
        """Steps of the whole fit."""
        return self._training.recipe.steps

    @property
    def temperature(self) -> float:
        """The weight of the KL term after its warm-up."""
        return self._training.recipe.temperature

    @property
    def rank(self) -> int:
        """Which of the processes that fit together this is: 0 is the one to print and write files."""
        return self._training.ranks.rank

    @property
    def epoch(self) -> int:
        """Passes over the data that are complete."""
        return self._training.step // self._training.data.steps_per_epoch

    @property
    def history(self) -> list[Row]:
        """The rows logged so far, every tenth step: the bound and its terms, `kl_weight`, `rate`, validation scores."""
        return self._training.history

    @property
    def row(self) -> Row | None:
        """What was logged at this step; None at steps that are not logged."""
        history = self._training.history
        return history[-1] if history and history[-1]["step"] == self._training.step else None

    @property
    def validated(self) -> bool:
        """Whether this step's row has validation scores."""
        row = self.row
        return row is not None and any(name.startswith(PREFIX) for name in row)

    def posterior(self) -> Posterior:
        """The posterior as it is now: a copy, to predict with, save or keep. Cost: a copy of network and parameters."""
        if self._posterior is None:
            raise RuntimeError("posterior: expected a run of livi.fit, got a bare Trainer; read its bound instead.")
        bound = copy.deepcopy(self._training.bound)
        if self._training.average is not None:
            assign(bound, self._training.average)
        return self._posterior(bound)

    def stop(self, reason: str = "a callback asked for it") -> None:
        """End the fit after this step, or where several processes fit, after the next logged one.

        The posterior's plan and repr say so. One process that asks for it stops all.
        """
        self._training.stopped = reason

    def parameters(self) -> dict[str, Tensor]:
        """Copies of all that is learned, as it is now: averages where the recipe has `averaging`."""
        average = self._training.average
        if average is None:
            return values(self._training.bound)
        return {name: value.clone() for name, value in average.items()}

    def restore(self, parameters: Mapping[str, Tensor], step: int) -> None:
        """Put the parameters of an earlier step in place of the present ones; for `on_end`."""
        assign(self._training.bound, parameters)
        self._training.parameters_of = step


class Callback:
    """Called while a fit runs: override what is of use. `livi.fit(..., callbacks=[MyCallback()])`.

    `on_step` is called after every step; on a GPU, reading a tensor there would hold up every step, so do that where
    `run.row` is not None, at logged steps. Where a fit diverges it goes back, and steps are seen again. Where several
    processes fit together, each calls its own callbacks: print and write where `run.rank` is 0.

    >>> class Loud(Callback):
    ...     def on_validation(self, run):
    ...         print(run.step, run.row["validation_nll"])
    """

    def on_start(self, run: Run) -> None:
        """Before the first step. `run.step` is 0 for a new fit (or one that starts again), more for a resumed one."""

    def on_step(self, run: Run) -> None:
        """After every step."""

    def on_epoch(self, run: Run) -> None:
        """After every pass over the data."""

    def on_validation(self, run: Run) -> None:
        """After every validation, whose scores are in `run.row`."""

    def on_end(self, run: Run) -> None:
        """After the last step, also of a fit that is stopped or interrupted by Ctrl-C; not where an error is raised."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold for a resumed fit to go on the same: numbers, strings, tensors, dicts, lists.

        Values must not be changed in place later on.
        """
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; called before `on_start`."""


class _Function(Callback):
    """A function of each logged row, called by the first process alone."""

    def __init__(self, function: Callable[[Row], object]) -> None:
        self.function = function

    def on_step(self, run: Run) -> None:
        row = run.row
        if row is not None and run.rank == 0:
            self.function(dict(row))


def as_callbacks(given: Iterable[Callback | Callable[[Row], object]]) -> list[Callback]:
    """Callbacks, and functions of a row as callbacks.

    Raises:
        TypeError: something else is among them.
    """
    if isinstance(given, Callback) or not isinstance(given, Iterable):
        raise TypeError(f"callbacks: expected a list, got {type(given).__name__}; pass callbacks=[...].")
    found = []
    for one in given:
        if isinstance(one, type) or not (isinstance(one, Callback) or callable(one)):
            got = f"the class {one.__name__}" if isinstance(one, type) else type(one).__name__
            raise TypeError(
                f"callbacks: expected livi.Callback objects or functions of a row, got {got}; "
                f"{'make one of it with ()' if isinstance(one, type) else 'derive its class from livi.Callback'}."
            )
        found.append(one if isinstance(one, Callback) else _Function(one))
        for text in _never_called(found[-1]):
            warn(text)
    return found


def _never_called(callback: Callback) -> Iterator[str]:
    """Warnings about methods named on_... that livi never calls, perhaps named as in another library."""
    occasions = [name for name in dir(Callback) if name.startswith("on_")]
    for name in dir(type(callback)):  # of the class alone: attributes of the object are its own business
        method = inspect.getattr_static(type(callback), name)
        if name.startswith("on_") and name not in occasions and inspect.isfunction(method):
            nearest = difflib.get_close_matches(name, occasions, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(occasions)}."
            yield f"callbacks: {type(callback).__name__}.{name} is never called, for there is no such occasion; {hint}"


class Callbacks:
    """The callbacks of a fit, called one after the other, and the validation whose scores they see.

    Args:
        posterior: makes a posterior of a bound.
        metrics: names of the validation scores.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        *,
        posterior: Callable[[Bound], Posterior] | None = None,
        validation: Validation | None = None,
        metrics: Sequence[str] = (),
    ) -> None:
        self.callbacks, self.validation = tuple(callbacks), validation
        self._posterior, self._metrics = posterior, metrics

    def start(self, training: Training) -> None:
        self.run = Run(training, self._posterior, self._metrics)
        for callback in self.callbacks:
            callback.on_start(self.run)

    def scores(self) -> Row:
        """Validation scores for the row of this logged step, where they are due."""
        if self.validation is None or not self.validation.due(self.run.step, self.run.steps):
            return {}
        return named(self.validation.scores(self.run.posterior()))

    def step(self) -> None:
        run = self.run
        for callback in self.callbacks:
            callback.on_step(run)
        if run.validated:
            for callback in self.callbacks:
                callback.on_validation(run)
        if run.step % run._training.data.steps_per_epoch == 0:
            for callback in self.callbacks:
                callback.on_epoch(run)

    def end(self) -> None:
        for callback in self.callbacks:
            callback.on_end(self.run)

    def state(self) -> dict[str, dict[str, Any]]:
        """The state of each callback that has one, by name."""
        states = {name: callback.state() for name, callback in self._named().items()}
        return {name: state for name, state in states.items() if state}

    def load(self, states: Mapping[str, dict[str, Any]]) -> None:
        for name, callback in self._named().items():
            if name in states:
                callback.load(states[name])

    def _named(self) -> dict[str, Callback]:
        """The callbacks by class name, numbered where there are several of one class."""
        found: dict[str, Callback] = {}
        for callback in self.callbacks:
            kind = type(callback).__name__
            count = sum(type(other).__name__ == kind for other in found.values())
            found[f"{kind} {count + 1}" if count else kind] = callback
        return found
