"""The version is the same wherever it stands."""

import re
import tomllib
from pathlib import Path

import livi
from livi.experiments.machine import versions

ROOT = Path(__file__).resolve().parents[1]


def test_the_version_of_the_package_is_that_of_its_metadata():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert livi.__version__ == versions()["livi"] == project["version"] == citation[1]
