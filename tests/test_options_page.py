"""docs/options.md is what the code says: every option of the functions that it names, with its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import livi

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
ROW = re.compile(r"^\| `(\w+)` \| `(.*?)` \| (.+) \|$", re.MULTILINE)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "livi.fit": livi.fit,
    "livi.Recipe": livi.Recipe,
    "Posterior.predict": livi.Posterior.predict,
    "livi.polish": livi.polish,
    "livi.reweight": livi.reweight,
    "livi.pool": livi.pool,
    "livi.compare": livi.compare,
    "livi.fit_density": livi.fit_density,
    "LIVIRegressor": livi.LIVIRegressor,
    "LIVIClassifier": livi.LIVIClassifier,
}
GIVEN = {"likelihood", "methods"}  # options by default that are named where the function is called


def sections() -> dict[str, str]:
    """Each heading of the page with the text under it."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_has_a_section_for_each_function_and_no_other() -> None:
    assert set(sections()) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_is_listed_with_its_default(name: str) -> None:
    listed = {option: default for option, default, _ in ROW.findall(sections()[name])}
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    options = {one.name: repr(one.default) for one in parameters if one.default is not one.empty}
    assert listed == {option: default for option, default in options.items() if option not in GIVEN}


def test_every_option_of_a_plan_is_one_of_a_fit() -> None:
    assert set(inspect.signature(livi.plan).parameters) <= set(inspect.signature(livi.fit).parameters)
