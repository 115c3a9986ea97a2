"""Extras of the package that messages and documents name: each can be installed."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *(ROOT / "livi").rglob("*.py")]
PLACES += [path for name in ("benchmarks", "examples", "scripts") for path in (ROOT / name).rglob("*.py")]


def test_every_extra_that_is_named_can_be_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        extra.strip(): path.name
        for path in [*PLACES, ROOT / "pyproject.toml"]
        for extras in re.findall(r"livi\[([a-z][a-z, -]*)\]", path.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert {"tables", "baselines", "bench"} <= named.keys()
    assert {extra: name for extra, name in named.items() if extra not in project["optional-dependencies"]} == {}
