"""From a table to a model: choose columns and task, hold out rows, fit, and score the model on the held-out rows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livi.inference.resume import OtherSeedError
from livi.model.likelihoods import ContaminatedGaussian
from livi.tables.baselines import Baselines
from livi.tables.content import Finding, Task
from livi.tables.detection import choose_task, column_kinds, learn_schema
from livi.tables.encoding import encode, target_classes, target_numbers
from livi.tables.estimators import LIVIClassifier, LIVIRegressor
from livi.tables.estimators.network import network_facts
from livi.tables.missing_words import with_missing
from livi.tables.model import TableModel, warnings_said
from livi.tables.notation import Notation
from livi.tables.numbers import Say, as_gaps, listed_words, read_numbers, readable, words_among_numbers
from livi.tables.options import MIN_ROWS, FitOptions, check_model, check_names, check_size
from livi.tables.reading import Table
from livi.tables.schema import Dropped, Schema
from livi.tables.seen_rows import SeenRows
from livi.tables.suspects import giveaway_notes, left_out, numbering_notes, oddity_notes
from livi.tables.values import how_to_write, is_missing, labels
from livi.tables.wording import and_more, in_options
from livi.version import __version__

_LISTED_NAMES = 10  # names of classes or columns shown
EXAMINING = "while it was examined"
_DIAGNOSIS_ROWS, _DIAGNOSIS_DRAWS = 500, 64  # rows and weight draws of the diagnosis


@dataclass(frozen=True)
class Prepared:
    """A table with its schema, and the rows to fit to and to hold out."""

    table: Table
    schema: Schema
    fitted: NDArray[np.int64]
    held: NDArray[np.int64]

    @property
    def training(self) -> Table:
        return self.table.rows(self.fitted)

    @property
    def held_out(self) -> Table:
        return self.table.rows(self.held)


def prepare(table: Table, target: str, options: FitOptions, note: Say) -> Prepared:
    """Check the options, read the columns, split the rows, and learn the schema from those to fit; see `fit_table`."""
    check_names(table, target, options)
    table = _with_target(with_missing(table, options.missing, note), target, note)
    as_written = table
    named = {*options.drop, *options.categorical, *([target] if options.task == "classification" else [])}
    table, notations = read_numbers(table, [name for name in table.columns if name not in named], target, note)
    task = choose_task(table, target, options.task, note)
    for option, value in (("--noise", options.noise), ("--target-scale", options.target_scale)):
        if task == "classification" and value is not None:
            raise table.error(
                f"expected {option} for regression only, got classification; leave it out.", column=target
            )
    if task == "regression":
        check_model(table, target, options)
    if options.noise == "network" and options.checkpoint is not None:
        raise table.error("expected no --checkpoint with --noise network, whose chains cannot go on, got both.")
    names = [name for name in table.columns if name != target and name not in options.drop]
    kinds = column_kinds(table, names, options.categorical)
    numbering = left_out(table, kinds, options.use)
    kinds = {name: kind for name, kind in kinds.items() if name not in {column.name for column in numbering}}
    fitted, held = split(table, target, task, options.validation, options.seed)
    check_size(table, len(fitted), options)
    schema = learn_schema(table.rows(fitted), target, task, kinds, options.categorical)
    schema = replace(_with_notations(schema, as_written, notations), missing=tuple(options.missing))
    asked = tuple(Dropped(name, "as asked") for name in options.drop)
    schema = replace(schema, dropped=(*numbering, *schema.dropped, *asked))
    _note_columns(table, schema, options, note)
    return Prepared(as_written, schema, fitted, held)


def fit_table(table: Table, target: str, options: FitOptions | None = None, say: Say = print) -> TableModel:
    """Fit a model that predicts one column of a table from the others.

    Rows without a target are left out. A random share `validation` of the rest is held out (of each class for
    classification); medians, categories and the network are learned from the others alone.

    Args:
        say: called with notes for the user, on rows and columns left out for instance.

    Raises:
        TableError: the table cannot be used as it is; the message names row and column where there is one.
        KeyboardInterrupt: interrupted before the fit began. If it is interrupted later, the model as it is by then is
            returned, and its `interrupted` and its notes say so.
    """
    options = FitOptions() if options is None else options
    heard: list[str] = [*table.notes]

    def note(text: str) -> None:
        heard.append(text)
        say(text)

    for text in table.notes:
        say(text)
    prepared = prepare(table, target, options, note)
    schema, fitted, held = prepared.schema, prepared.fitted, prepared.held
    table, training = prepared.table, prepared.training
    if options.validation and not len(held):
        few = f"{options.validation:.0%} of each class is less than a row" if schema.classes else "they are too few"
        note(f"no rows were held out, for {few}: how good the model is on new rows is not known")
    started = time.perf_counter()
    estimator = _fitted(training, schema, options, note)
    seconds = time.perf_counter() - started
    interrupted = _interrupted(estimator.posterior_.plan)
    facts = _facts(table, schema, estimator, len(fitted), len(held), seconds, options)
    baselines = None if interrupted else _baselines(training, schema)
    seen = SeenRows.of(encode(training, schema, lambda _: None), _target(training, schema))
    model = TableModel(schema, estimator, facts, tuple(heard), (), baselines, seen, interrupted=interrupted)
    try:
        if options.diagnose and not interrupted:  # an interrupted fit is only scored, since the user is in a hurry
            model = replace(model, findings=_diagnosed(estimator, training, schema))
        if len(held):
            source = f"{len(held):,} held-out rows of {table.name}"
            rows, say_new = table.rows(held), _unless_said(heard, say)
            scores = model.evaluate(rows, say_new, source=source, progress=options.progress, explain=options.explain)
            model = replace(model, validation=scores.against_guesses(_shares(training, schema)))
    except KeyboardInterrupt:
        note(f"interrupted {EXAMINING}: the fit is complete, but was not examined to the end")
        return replace(model, notes=tuple(heard), interrupted=interrupted or EXAMINING)
    return model


def split(
    table: Table, target: str, task: Task, share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the rows to fit to and of those to hold out, in the table's order.

    For classification the share is held out of every class, rounded down, so that the fit has rows of each.
    """
    random = np.random.default_rng(seed)
    groups = np.unique(labels(table.columns[target]), return_inverse=True)[1] if task == "classification" else None
    members = [np.arange(len(table))] if groups is None else [np.flatnonzero(groups == g) for g in np.unique(groups)]
    held = [random.permutation(rows)[: int(share * len(rows))] for rows in members]
    out = np.zeros(len(table), np.bool_)
    out[np.concatenate(held)] = True
    return np.flatnonzero(~out), np.flatnonzero(out)


def _with_target(table: Table, target: str, note: Say) -> Table:
    missing = is_missing(table.columns[target])
    if missing.all():
        raise table.error("expected a target, got a column without values.", column=target)
    if missing.any():
        gone = f"left out: {int(missing.sum()):,} of {len(table):,} rows, which have no {target!r}"
        words = table.gap_words.get(target, ())
        if words and not readable(table.columns[target]).all():
            gone += f": {', '.join(map(repr, words))} counts as missing; if that is a class, write it in another way"
        note(gone)
    if len(table) - missing.sum() < MIN_ROWS:
        raise table.error(f"expected at least {MIN_ROWS} rows to fit to, got {len(table) - missing.sum()}; add rows.")
    return table.rows(~missing)


def _with_notations(schema: Schema, table: Table, notations: Mapping[str, Notation]) -> Schema:
    """The schema with the notations and the decimal sign of this table, so that other files are read alike."""
    columns = tuple(replace(column, notation=notations.get(column.name)) for column in schema.columns)
    return replace(schema, columns=columns, notation=notations.get(schema.target), decimal=table.decimal)


def _note_columns(table: Table, schema: Schema, options: FitOptions, note: Say) -> None:
    for dropped in schema.dropped:
        if dropped.name not in options.drop:
            note(f"dropped: column {dropped.name!r}: {dropped.reason}")
    notes = (numbering_notes(table, schema, options.use), giveaway_notes(table, schema), oddity_notes(table, schema))
    for text in (text for some in notes for text in some):
        note(text)
    for column in schema.columns:
        how = how_to_write(column.categories[0]) if column.categories else ""
        words = words_among_numbers(table.columns[column.name]) if column.kind == "categorical" else {}
        if words and column.name not in options.categorical:
            note(
                f"column {column.name!r} was taken for categories, since {sum(words.values())} of its cells are words: "
                f"{listed_words(words)}; to read the others as numbers, pass {as_gaps(words)}"
            )
        elif how:
            note(f"column {column.name!r} was taken for categories, such as {column.categories[0]!r}; else {how}")


def _fitted(training: Table, schema: Schema, options: FitOptions, note: Say) -> Any:
    chosen: dict[str, Any] = {
        "hidden": options.hidden,
        "activation": options.activation,
        "steps": options.steps,
        "budget": options.budget,
        "components": options.components,
        "interval": options.interval,
        "n_jobs": options.threads,
    }
    if schema.task == "regression":
        chosen |= {"noise": options.noise, "target_scale": options.target_scale}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    kind = LIVIRegressor if schema.task == "regression" else LIVIClassifier
    estimator = kind(random_state=options.seed, verbose=int(options.progress), **chosen)
    target = _target(training, schema)
    features = encode(training, schema, note)
    try:
        with warnings_said(note):
            estimator.fit(features, target, checkpoint=options.checkpoint)
    except OtherSeedError as error:  # its message names seeds that were drawn from the user's
        raise training.error(
            f"expected the --seed that the fit in {options.checkpoint} began with, got {options.seed}; give that one, "
            "or another --checkpoint."
        ) from error
    return estimator


def _interrupted(plan: Mapping[str, Any]) -> str:
    step = plan.get("interrupted_at")
    return "" if step is None else f"at step {step:,} of {plan['recipe']['steps']:,}"


def _target(table: Table, schema: Schema) -> NDArray[Any]:
    return target_numbers(table, schema) if schema.task == "regression" else target_classes(table, schema)


def _baselines(training: Table, schema: Schema) -> Baselines | None:
    features = encode(training, schema, lambda _: None)
    try:
        if schema.task == "regression":
            return Baselines.of_numbers(features, target_numbers(training, schema))
        return Baselines.of_classes(features, target_classes(training, schema), len(schema.classes))
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):  # the model is complete without them
        return None


def _unless_said(heard: Sequence[str], say: Say) -> Say:
    """`say`, but without texts that were said before."""
    return lambda text: None if text in heard else say(text)


def _shares(training: Table, schema: Schema) -> NDArray[np.float64] | None:  # (k,)
    """The share of each class in the training rows; None for regression."""
    if schema.task == "regression":
        return None
    return np.bincount(target_classes(training, schema), minlength=len(schema.classes)) / len(training)


def _facts(
    table: Table, schema: Schema, estimator: Any, fitted: int, held: int, seconds: float, options: FitOptions
) -> dict[str, str]:
    plan = estimator.posterior_.plan
    calibrating = f"{fitted - plan['num_data']:,} to calibrate, " if estimator.interval == "conformal" else ""
    network = network_facts(estimator.posterior_.layout.module)
    widths = [network["inputs"], *network["hidden"], network["outputs"]]
    noise = "; noise linear in the columns" if network["varying"] else ""
    facts = {
        "File": table.name,
        "Task": f"{schema.task} of {schema.target}",
        "Rows": f"{plan['num_data']:,} fitted, {calibrating}{held:,} held out",
        "Columns": schema.describe(),
        "Network": f"{' - '.join(map(str, widths))}, {network['activation']}{noise}",
        "Posterior": f"over {plan['num_params']:,} weights, {_family(plan)}",
        "Model": f"{plan['likelihood']} likelihood, {plan['prior']} prior{_exact(plan)}",
        "Intervals": str(estimator.interval),
        "Fit": f"{_steps(estimator)} in {seconds:.0f} s, seed {options.seed}",
        "Versions": f"livi {__version__}, torch {torch.__version__}",
    }
    if schema.task == "regression":
        facts["Target"] = _modelled(estimator)
    if hasattr(estimator, "relevance_"):
        facts["Most relevant"] = _most_relevant(estimator.relevance_, schema.features)
    if schema.classes:
        facts["Classes"] = and_more(schema.classes[:_LISTED_NAMES], len(schema.classes))
    return facts


def _modelled(estimator: Any) -> str:
    """The target scale and noise that were modelled, and the trials by which they were chosen."""
    text = f"{estimator.model_} was modelled{_outliers(estimator.posterior_.likelihood)}{_spread(estimator.target_)}"
    if not estimator.trials_:
        return text
    tried = ", ".join(f"{trial.model.label} {_score(trial.log_score)}" for trial in estimator.trials_)
    return f"{text}, by the log score on rows set aside from the fit ({tried})"


def _spread(target: Any) -> str:
    """The factor by which the spread of predictions was multiplied, if any."""
    return "" if target.spread == 1.0 else f", its spread times {target.spread:.2f}"


def _outliers(likelihood: Any) -> str:
    """The outliers that predictions allow for besides the modelled noise, if any."""
    if not isinstance(likelihood, ContaminatedGaussian):
        return ""
    return f" (one row in {1.0 / likelihood.share:,.0f} may be {likelihood.width:g} times as far off as the others)"


def _score(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3f}"


def _steps(estimator: Any) -> str:
    interrupted = _interrupted(estimator.posterior_.plan)
    if interrupted:
        return f"interrupted {interrupted}"
    polish = estimator.posterior_.plan.get("polish")
    return f"{polish['steps'] if polish else int(estimator.history_[-1]['step']):,} steps"


def _most_relevant(relevance: NDArray[np.float64], features: Sequence[str]) -> str:
    """The features with the largest learned prior scales."""
    first = np.argsort(-relevance, kind="stable")[:_LISTED_NAMES]
    listed = ", ".join(f"{features[index]} {relevance[index]:.2f}" for index in first)
    return f"{listed} (learned scale, as a share of the largest)"


def _family(plan: Mapping[str, Any]) -> str:
    if plan.get("method") == "langevin":
        polish = plan.get("polish", {"draws": plan["members"], "chains": plan["members"]})
        return f"{polish['draws']:,} draws of {polish['chains']} Markov chains"
    return f"{plan['components']} x {plan['generator']}, {plan['variational_params']:,} variational parameters"


def _exact(plan: Mapping[str, Any]) -> str:
    said = {"sampled": "", "conditional": "; the last layer given the others, by a bound"}
    return said.get(plan.get("last_layer", "sampled").split(":")[0], "; the last layer integrated out")


def _diagnosed(estimator: Any, training: Table, schema: Schema) -> tuple[Finding, ...]:
    """The diagnosis of the posterior on some of the rows that it was fitted to, calibration rows excluded."""
    kept, _ = estimator.split_rows(len(training))
    some = training.rows(np.random.default_rng(estimator.seed_).permutation(kept)[:_DIAGNOSIS_ROWS])
    inputs = estimator.standardised_inputs(encode(some, schema, lambda _: None))
    target = _target(some, schema)
    if schema.task == "regression":
        target = estimator.target_.standardise(target)
        target = target[:, None] if estimator.model_.noise != "constant" else target
    posterior = estimator.posterior_
    moved = (torch.from_numpy(part).to(posterior.layout.device) for part in (inputs, target))
    rng = torch.Generator().manual_seed(estimator.seed_)
    try:
        found = posterior.diagnose(*moved, num_data=posterior.plan["num_data"], num_samples=_DIAGNOSIS_DRAWS, rng=rng)
    except (ValueError, RuntimeError) as error:  # a failed diagnosis must not lose the fit
        return (Finding("notice", "diagnosis", f"could not be made: {error}"),)
    return tuple(Finding(finding.severity, finding.topic, in_options(finding.text)) for finding in found.findings)
