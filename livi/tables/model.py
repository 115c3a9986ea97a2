"""`TableModel`: what `livi fit` saves, and `livi predict` and `livi evaluate` load."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livi.posterior.diagnostics.comparison import MEAN_FIELD, NO_LEARNING
from livi.posterior.storage import StorageError
from livi.tables.baselines import Baselines
from livi.tables.content import Content, Finding, UnsureRow
from livi.tables.drivers import drivers, effects
from livi.tables.encoding import (
    encode,
    encode_part,
    target_classes,
    target_numbers,
    with_known_target,
    with_medians,
)
from livi.tables.estimators import load_with_extra
from livi.tables.evaluation import SHOWN_LEVELS, Evaluation, score_classification, score_regression
from livi.tables.kept_columns import kept_titles, note_titles, without_predictions
from livi.tables.missing_words import with_missing
from livi.tables.numbers import Say
from livi.tables.parts import parts_of
from livi.tables.predicting import (
    MonteCarlo,
    classification_columns,
    classification_names,
    classification_rows,
    regression_columns,
    regression_names,
    regression_rows,
    shown_progress,
)
from livi.tables.reading import Table, as_series
from livi.tables.schema import Schema
from livi.tables.seen_rows import SeenRows
from livi.tables.unseen_values import UnseenValues
from livi.tables.values import label
from livi.tables.wording import in_options

PART_ROWS = 10_000  # rows that are read, predicted and written at a time
LOW_BOUND = (
    "For experts: the bound on the evidence is low, so models should not be compared by it. How good the predictions "
    "are is said above, by rows held out of the fit; the page of --report has more about the bound."
)
_UNSURE_ROWS = 10  # rows with the largest epistemic uncertainty that a report shows


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted estimator and the schema by which it reads tables.

    Args:
        facts: what was fitted, in words, for the report.
        notes: on the data of the fit, such as columns and rows left out.
        findings: the diagnosis of the posterior.
        baselines: simple models of the same rows, to compare with; None in old files.
        seen: a filter that recognises the rows that were fitted to; None in old files.
        validation: the scores on the rows held out of the fit; None if there were none, and after loading.
        interrupted: where Ctrl-C ended the fit, as "at step 40 of 2,000"; "" if it was not interrupted or was loaded.
    """

    schema: Schema
    estimator: Any
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    baselines: Baselines | None = None
    seen: SeenRows | None = None
    validation: Evaluation | None = None
    interrupted: str = ""

    def was_fitted_to(self, name: str) -> bool:
        """Whether the model was fitted to a table of this name."""
        return self.facts.get("File") == name

    def warnings(self) -> list[str]:
        """The warnings of the diagnosis.

        Those about a low bound are one sentence where there are scores on held-out rows, which say more about the
        predictions; the report has them all.
        """
        found = [finding for finding in self.findings if finding.severity == "warning"]
        on_bound = [one for one in found if one.topic in (NO_LEARNING, MEAN_FIELD) and self.validation is not None]
        said = [f"warning, {finding.topic}: {finding.text}" for finding in found if finding not in on_bound]
        return said + ([LOW_BOUND] if on_bound else [])

    def predict(
        self, table: Table, say: Say = print, *, strict: bool = False, keep: bool = False, progress: bool = False
    ) -> Any:
        """A pandas DataFrame with a line for each row: `row`, its line in the file, and, to eight digits,

        - for regression mean, std_epistemic, std_total, p05, p50, p95, and lower and upper if conformal;
        - for classification class, a p_<class> for each class, entropy and mutual_information (in nats), and `set`,
          the classes of a 90 % set separated by |, if conformal.

        Args:
            strict: refuse unknown categories and unexpected gaps, rather than `say` so.
            keep: add the table's own columns, with " (input)" appended to a name that is taken.
            progress: show on stderr how many rows are done, where that takes more than a moment.
        """
        import pandas as pd

        parts = (table.rows(slice(start, start + PART_ROWS)) for start in range(0, len(table), PART_ROWS))
        frames = self.predict_parts(parts, say, strict=strict, keep=keep, progress=progress, rows=len(table))
        return pd.concat(frames, ignore_index=True)

    def predict_parts(
        self,
        parts: Iterable[Table],
        say: Say = print,
        *,
        strict: bool = False,
        keep: bool = False,
        progress: bool = False,
        rows: int | None = None,
        monte_carlo: MonteCarlo | None = None,
    ) -> Iterator[Any]:
        """`predict` part by part, for tables of any length. `say` is called after the last part.

        Args:
            rows: the number in all parts together, if known, for the progress.
            monte_carlo: collects the Monte Carlo errors of the predictions.
        """
        unseen, options = UnseenValues(), {"strict": strict, "missing_as_nan": self.estimator.usual_ is not None}
        monte_carlo = MonteCarlo() if monte_carlo is None else monte_carlo
        for part in shown_progress(parts, rows, progress=progress):
            for text in part.notes:
                unseen.note(text)
            part = without_predictions(part, self._prediction_names, self.schema, unseen.note)
            if keep:
                note_titles(part, self._prediction_names, unseen.note)
            with warnings_said(unseen.note):
                features = encode_part(with_missing(part, self.schema.missing), self.schema, unseen, **options)
                frame = self._frame(part, features, keep, monte_carlo)
            yield frame
        unseen.tell(say)

    def _frame(self, table: Table, features: NDArray[np.float64], keep: bool, monte_carlo: MonteCarlo) -> Any:
        import pandas as pd

        predicted = self._regression if self.schema.task == "regression" else self._classification
        columns = predicted(features, monte_carlo)
        _refuse_nan(table, columns["std_total" if self.schema.task == "regression" else "entropy"])
        frame = pd.DataFrame({"row": table.lines} | _rounded(columns))
        for name, title in kept_titles(table, self._prediction_names).items() if keep else ():
            frame[title] = as_series(table, name)
        return frame

    def _regression(self, features: NDArray[np.float64], monte_carlo: MonteCarlo) -> dict[str, NDArray[Any]]:
        return dict(regression_columns(self.estimator, features, monte_carlo))

    def _classification(self, features: NDArray[np.float64], monte_carlo: MonteCarlo) -> dict[str, NDArray[Any]]:
        probabilities, entropy, information = classification_columns(self.estimator, features, monte_carlo)
        names = np.array(self.schema.classes, object)
        found: list[NDArray[Any]] = [names[probabilities.argmax(1)], *probabilities.T, entropy, information]
        if self.estimator.interval == "conformal":
            chosen = self.estimator.sets_of(probabilities, 0.1)
            found.append(np.array(["|".join(names[row]) for row in chosen], object))
        return dict(zip(classification_names(self.estimator, self.schema.classes), found, strict=True))

    @property
    def _prediction_names(self) -> tuple[str, ...]:
        """The names of the columns of a frame of predictions."""
        if self.schema.task == "regression":
            return ("row", *regression_names(self.estimator))
        return ("row", *classification_names(self.estimator, self.schema.classes))

    def evaluate(
        self,
        table: Table,
        say: Say = print,
        *,
        strict: bool = False,
        source: str = "",
        progress: bool = False,
        explain: bool = False,
    ) -> Evaluation:
        """Score the predictions for a table with known targets. The options are those of `predict`.

        Args:
            source: a name for rows held out of the fit; only rows without one are checked for rows that were fitted to.
            explain: also find out what the predictions depend on, for a report.

        Raises:
            TableError: a target is not a number, with the row; or all targets, or with `strict` one of them, are
                missing or of classes that the fit has not seen. Otherwise such rows are left out.
        """
        held_out = bool(source)
        source = source or f"{len(table):,} rows of {table.name}"
        for text in table.notes:
            say(text)
        table = without_predictions(table, self._prediction_names, self.schema, say)
        table = with_missing(table, self.schema.missing)
        regression = self.schema.task == "regression"
        known, others = (slice(None), "") if strict else with_known_target(table, self.schema, say)
        if others:
            source += f", without {others}"
            table = table.rows(known)
        truth = target_numbers(table, self.schema) if regression else target_classes(table, self.schema)
        features = encode(table, self.schema, say, strict=strict, missing_as_nan=self.estimator.usual_ is not None)
        whole = with_medians(features, self.schema)
        if not held_out and (text := self._on_seen_rows(table, whole, truth)):
            say(text)
        with warnings_said(say):
            found = self._scored(table, features, truth, source, progress)
            if self.baselines is not None:
                found = replace(found, metrics=self.baselines.beside(found.metrics, whole, truth))
            return self._explained(found, whole, truth) if explain else found

    def _on_seen_rows(self, table: Table, features: NDArray[np.float64], truth: NDArray[Any]) -> str:
        """A warning if the rows to be scored were among those fitted to, or may have been; else ""."""
        share = None if self.seen is None else self.seen.share_of(features, truth)
        if share:
            return (
                f"{table.name}: about {min(share, 1.0):.0%} of the rows are, value for value, rows that were fitted "
                "to: scores on them say little about new ones. Evaluate rows that the fit has not seen."
            )
        if share is None and self.was_fitted_to(table.name):
            return (
                f"{table.name} has the name of the file that was fitted: if it is that one, rows that were fitted to "
                "are among those scored, and scores say little about new ones."
            )
        return ""

    def _explained(self, found: Evaluation, features: NDArray[np.float64], truth: NDArray[Any]) -> Evaluation:
        columns = drivers(self.estimator, self.schema, features, truth)
        shown = effects(self.estimator, self.schema, features, tuple(column.name for column in columns))
        return replace(found, drivers=columns, effects=shown)

    def _scored(
        self, table: Table, features: NDArray[np.float64], truth: NDArray[Any], source: str, progress: bool
    ) -> Evaluation:
        if self.schema.task == "regression":
            rows, log_density, crps = regression_rows(self.estimator, features, truth, progress=progress)
            _refuse_nan(table, rows.total_std)
            found = score_regression(rows, log_density, crps, self.schema.target, self.estimator.interval)
            scored = Evaluation(source, rows, *found, self._unsure(table, rows.epistemic_std))
            return scored.with_parts(parts_of(rows, self._groups(table), self.schema.target))
        names = self.schema.classes
        classes, logs, sets = classification_rows(
            self.estimator, features, truth, names, SHOWN_LEVELS, progress=progress
        )
        _refuse_nan(table, classes.entropy)
        scores = score_classification(classes, logs, sets, self.estimator.interval)
        return Evaluation(source, classes, *scores, self._unsure(table, classes.mutual_information))

    def _groups(self, table: Table) -> dict[str, list[str]]:
        """The values of each categorical column."""
        names = [column.name for column in self.schema.columns if column.kind == "categorical"]
        return {name: [label(cell) for cell in table.columns[name]] for name in names}

    def _unsure(self, table: Table, uncertainty: NDArray[np.float64]) -> tuple[UnsureRow, ...]:
        places = np.argsort(-uncertainty, kind="stable")[:_UNSURE_ROWS]
        names = [self.schema.target, *(column.name for column in self.schema.columns)]
        return tuple(
            UnsureRow(int(at), int(table.lines[at]), {name: label(table.columns[name][at]) for name in names})
            for at in places
        )

    def content(self, evaluation: Evaluation | None, notes: Sequence[str] = (), file: str = "") -> Content:
        """The content of a report on this model and this evaluation.

        Args:
            file: the name of the evaluated file, if it is not that of the fit.
        """
        none = (
            f"Fitted to all rows of {self.facts['File']}; none were held out, so nothing is known yet about new ones."
        )
        return Content(
            title=f"{self.schema.target} in {file}" if file else f"{self.schema.target} from {self.facts['File']}",
            task=self.schema.task,
            target=self.schema.target,
            headline=none if evaluation is None else evaluation.headline,
            source="" if evaluation is None else evaluation.source,
            facts=self.facts,
            columns=self.schema.column_facts,
            notes=(*self.notes, *notes),
            history=tuple(self.estimator.history_),
            rows=None if evaluation is None else evaluation.rows,
            metrics=() if evaluation is None else evaluation.metrics,
            coverage=() if evaluation is None else evaluation.coverage,
            parts=() if evaluation is None else evaluation.parts,
            verdict=() if evaluation is None else evaluation.verdict,
            unsure=() if evaluation is None else evaluation.unsure,
            findings=self.findings,
            drivers=() if evaluation is None else evaluation.drivers,
            effects=() if evaluation is None else evaluation.effects,
        )

    def save(self, path: str | Path, *, rowless: bool = False) -> None:
        """Write the model to one file, atomically; if `rowless`, without rows of the data. Raises StorageError."""
        stored = {
            "schema": self.schema.to_json(),
            "facts": dict(self.facts),
            "notes": list(self.notes),
            "findings": [vars(finding).copy() for finding in self.findings],
            "baselines": None if self.baselines is None else self.baselines.facts(),
            "seen": None if self.seen is None else self.seen.to_json(),
        }
        self.estimator.save(path, {"table": stored}, rowless=rowless)


def load_model(path: str | Path) -> TableModel:
    """The model that `TableModel.save` wrote.

    Raises:
        StorageError: no such file, a damaged one, or not a model of a table.
    """
    estimator, extra = load_with_extra(path)
    stored = extra.get("table")
    try:
        if not isinstance(stored, dict):
            raise TypeError("an estimator that was fitted to no table")
        schema = Schema.from_json(stored["schema"])
        findings = tuple(Finding(**finding) for finding in stored["findings"])
        facts = {str(name): str(text) for name, text in ({"File": "a table"} | stored["facts"]).items()}
        notes = tuple(str(note) for note in stored["notes"])
        simple = stored.get("baselines")  # old files have none
        sizes = (len(schema.features), len(schema.classes))
        baselines = None if simple is None else Baselines.from_facts(simple, *sizes)
        seen = SeenRows.from_json(stored.get("seen"))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StorageError(f"{path}: expected a model written by livi fit, got {str(error).rstrip('.')}.") from error
    classes = tuple(range(len(schema.classes)))
    fits = len(schema.features) == estimator.n_features_in_ and classes == tuple(getattr(estimator, "classes_", ()))
    fits &= estimator.interval == "posterior" or estimator.conformity_scores_ is not None
    if not fits:
        raise StorageError(f"{path}: expected a schema that suits the estimator, got another; fit again.")
    return TableModel(schema, estimator, facts, notes, findings, baselines, seen)


@contextmanager
def warnings_said(say: Say) -> Iterator[None]:
    """Pass UserWarnings to `say`, each once, on leaving; other warnings, which are for developers, are dropped."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(entry.message) for entry in caught if issubclass(entry.category, UserWarning)):
        say(in_options(text))


def _rounded(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Round to eight digits, more than any number of draws determines; for regression, eight digits of the spread."""
    spread = columns.get("std_total")
    return {
        name: values if values.dtype.kind != "f" else _to_eight_digits(values, values if spread is None else spread)
        for name, values in columns.items()
    }


def _to_eight_digits(values: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:  # (n,), (n,)
    """Values rounded to the eighth significant digit of the scale at their place."""
    pairs = zip(values.tolist(), scale.tolist(), strict=True)
    return np.array([round(value, 7 - math.floor(math.log10(abs(of)))) if of else value for value, of in pairs])


def _refuse_nan(table: Table, values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise table.error("expected inputs like those of the fit, got some for which no prediction is finite.", row=row)
