"""Every command that the documentation shows is one that the programs accept. None is carried out."""

import argparse
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from livi import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
COMMENT = re.compile(r"\s+# .*|\s{4,}.*")  # behind a command
SETTINGS = r"(?:\w+=\S+ )*"  # of the environment, such as LIVI_DATA_DIR=...
COMMAND = re.compile(rf"{SETTINGS}((?:livi \w+ \S|python (?:-m benchmarks|examples/|scripts/)).*)")


class AcceptedError(Exception):
    """Raised where a command would begin its work."""


def shown(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join([*FENCED.findall(text), *INDENTED.findall(text)])
    lines = re.sub(r"\\\n\s*", "", blocks).splitlines()
    quoted = re.findall(r"`([^`]+)`", FENCED.sub("", text).replace("\n", " "))
    found = [COMMAND.fullmatch(COMMENT.sub("", line.strip())) for line in [*lines, *quoted]]
    return [command[1] for command in found if command is not None and not command[1].endswith(" ...")]


COMMANDS = sorted({command for page in PAGES for command in shown(page)})


def begin(*given: object, **named: object) -> None:
    raise AcceptedError


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("livi ")])
def test_a_livi_command_is_accepted(command, monkeypatch, capsys):
    for module in vars(cli).values():
        if hasattr(module, "run_bench"):  # by then the names of methods and data are known to be good
            monkeypatch.setattr(module, "run_bench", begin)
    try:
        chosen, rest = cli._parser().parse_known_args(shlex.split(command)[1:])
        assert rest == []
        if command.startswith("livi bench ") and "--chosen" not in command:  # a file of an earlier run
            with pytest.raises(AcceptedError):
                chosen.command(chosen)
    except SystemExit as ended:
        said = capsys.readouterr().err
        if "to be installed" in said:
            pytest.skip(said.splitlines()[-1])
        if ended.code != 0:  # which is that of --help
            pytest.fail(said)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("python ")])
def test_a_command_of_the_repository_is_accepted(command, monkeypatch):
    usual = argparse.ArgumentParser.parse_args

    def parse(self, args=None, namespace=None):
        usual(self, args, namespace)
        raise AcceptedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.chdir(ROOT)
    words = [word for word in shlex.split(command)[1:] if word != "-m"]
    monkeypatch.setattr(sys, "argv", words)
    path = ROOT / (words[0] if "/" in words[0] else words[0].replace(".", "/") + ".py")
    if "parse_args" in path.read_text(encoding="utf-8"):
        with pytest.raises(AcceptedError):
            runpy.run_path(str(path), run_name="__main__")
    else:
        assert words[1:] == []
