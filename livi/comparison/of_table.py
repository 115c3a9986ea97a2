"""`livi compare` on a table: the same features, split and network for every method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import float32, nn

from livi.comparison.comparing import DEFAULT_METHODS, compare
from livi.comparison.result import Comparison
from livi.model.likelihoods import Categorical, Gaussian
from livi.tables.encoding import encode, target_classes, target_numbers
from livi.tables.estimators.base import ACTIVATION, HIDDEN
from livi.tables.estimators.network import build_network, threads
from livi.tables.fitting import Prepared, prepare
from livi.tables.numbers import Say
from livi.tables.options import FitOptions
from livi.tables.reading import Table

DROPOUT = 0.05  # before the last layer, where MC dropout is compared; other methods ignore it


def compare_table(
    table: Table,
    target: str,
    options: FitOptions | None = None,
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    gradients: int | None = None,
    say: Say = print,
) -> Comparison:
    """Compare methods that predict one column of a table from the others, on rows that are held out.

    All of them fit one network of `hidden` layers with one model: standardised numbers with a learned noise, or
    classes, under livi's default prior. That is not what `livi fit` does, which learns a scale for each input.

    Args:
        options: as of `livi.tables.fitting.fit_table`, of which steps, components, noise and interval are not used.

    Raises:
        TableError: the table cannot be used as it is.
        ValueError: a method is not known, nothing is held out, or no method has a result.
    """
    options = FitOptions() if options is None else options
    for text in table.notes:
        say(text)
    prepared = prepare(table, target, options, say)
    if not len(prepared.held):
        raise ValueError(f"validation: expected rows to compare on, got a share of {options.validation}; raise it.")
    features, held = _inputs(prepared, say)
    targets, held_targets = (_targets(part, prepared) for part in (prepared.training, prepared.held_out))
    regression = prepared.schema.task == "regression"
    centre, spread = (float(targets.mean()), float(targets.std()) or 1.0) if regression else (0.0, 1.0)
    if regression:
        targets, held_targets = (targets - centre) / spread, (held_targets - centre) / spread
    outputs = 1 if regression else len(prepared.schema.classes)
    with threads(options.threads):
        found = compare(
            _network(features.shape[1], outputs, options, dropout="mc_dropout" in methods),
            (features, targets),
            Gaussian(1.0, learned=True) if regression else Categorical(),
            methods,
            validation=(held, held_targets),
            gradients=gradients,
            seed=options.seed,
            progress=options.progress,
            units=(centre, spread) if regression else None,
        )
    return replace(found, source=(table.name, target))


def _inputs(prepared: Prepared, say: Say) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inputs of the rows to fit to and of those held out, both standardised by the former."""
    features = encode(prepared.training, prepared.schema, say)
    held = encode(prepared.held_out, prepared.schema, lambda _: None)
    mean, std = features.mean(0), features.std(0)
    std = np.where(std > 0.0, std, 1.0)
    return (features - mean) / std, (held - mean) / std


def _targets(table: Table, prepared: Prepared) -> NDArray[Any]:
    if prepared.schema.task == "regression":
        return target_numbers(table, prepared.schema)
    return target_classes(table, prepared.schema).astype(np.int64)


def _network(inputs: int, outputs: int, options: FitOptions, *, dropout: bool) -> nn.Module:
    hidden = HIDDEN if options.hidden is None else options.hidden
    net = build_network(inputs, hidden, outputs, options.activation or ACTIVATION, seed=options.seed, dtype=float32)
    if dropout and isinstance(net, nn.Sequential):
        net.insert(len(net) - 1, nn.Dropout(DROPOUT))
    return net
