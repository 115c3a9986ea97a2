"""docs/api.md names everything that is public, as its docstrings describe it."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import api_page  # noqa: E402


def test_every_public_name_is_in_a_group_and_no_other() -> None:
    assert api_page.missing() == set()


def test_the_page_is_as_the_script_writes_it() -> None:
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.page(), "run: python scripts/api_page.py"
