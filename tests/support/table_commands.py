"""Helpers for tests of the commands on tables: expected failures, changed cells, other processes."""

import os
import subprocess
import sys

import pandas as pd

from livi import cli

SMALL = ("--steps", "20", "--hidden", "4", "--allow-poor")


def failed(capsys, *arguments):
    """Run a command that must fail without changing a file, and return its error message of one line."""
    before = files()
    capsys.readouterr()
    assert cli.main(list(arguments)) == 1
    assert files() == before
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    assert "--debug" not in lines[0]
    return lines[0]


def files():
    found = {}
    for entry in os.scandir():
        if entry.is_file():
            with open(entry, "rb") as file:
                found[entry.name] = file.read()
    return found


def edit(name, row, column, value):
    """Change one cell of a CSV file; the row is its line in the file."""
    frame = pd.read_csv(name, dtype=str, keep_default_na=False)
    frame.loc[row - 2, column] = value
    frame.to_csv(name, index=False)


def run_python(script, **options):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, **options)
