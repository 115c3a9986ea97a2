"""What survives a failure in the middle of a write."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from livi.posterior.storage import StorageError, file, read, write


class Full:
    """A file on a disk with room for the first bytes only."""

    def __init__(self, handle):
        self.handle, self.room = handle, 300

    def write(self, content):
        self.room -= len(content)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.handle.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.handle.close()

    def __getattr__(self, name):
        return getattr(self.handle, name)


def fail(*args, **kwargs):
    raise OSError(5, "Input/output error")


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("name", "replacement", "expected"),
    [
        ("os.replace", fail, "Input/output error"),
        ("os.fsync", fail, "Input/output error"),
        ("os.listdir", fail, "Input/output error"),
        ("builtins.open", lambda path, mode: Full(open_file(path, mode)), "No space left on device"),
        ("builtins.open", fail, "Input/output error"),
        ("os.fsync", interrupt, None),
        ("os.replace", interrupt, None),
    ],
)
def test_nothing_is_lost_when_a_write_fails(path, tmp_path, monkeypatch, name, replacement, expected, existing):
    if existing:
        write(path, {"a": torch.ones(100)}, {"version": 1})
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(name, replacement)
        with pytest.raises(KeyboardInterrupt if expected is None else StorageError, match=expected):
            write(path, {"a": torch.zeros(100)}, {"version": 2})
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before
    write(path, {"a": torch.zeros(100)}, {"version": 2})
    assert read(path)[1] == {"version": 2}


open_file = open


def test_a_folder_that_cannot_be_synchronised_does_no_harm(path, monkeypatch):
    original = os.open

    def refuse(target, flags, *rest, **kwargs):
        if Path(target).is_dir():
            raise OSError(22, "Invalid argument")
        return original(target, flags, *rest, **kwargs)

    monkeypatch.setattr("os.open", refuse)
    write(path, {}, {"version": 1})
    assert read(path)[1] == {"version": 1}


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_and_others_kept(path, tmp_path):
    dead = tmp_path / f".{path.name}.{'0' * 16}.tmp"
    dead.write_bytes(b"half")
    others = [tmp_path / f".other.{'0' * 16}.tmp", tmp_path / f".{path.name}.notes.tmp", tmp_path / f"{path.name}.tmp"]
    for other in others:
        other.touch()
    with file._temporary(path) as living:
        write(path, {}, {})
        assert not dead.exists()
        assert Path(living.name).exists()
    assert not Path(living.name).exists()
    assert all(other.exists() for other in others)


KILLED_AT_RANDOM = """
import os, random, signal, sys, time
import torch
from livi.posterior.storage import read, write

path, folder = sys.argv[1], os.path.dirname(sys.argv[1])
rng = random.Random(int(sys.argv[2]))

def version_of(path):
    tensors, meta = read(path)
    assert all(bool((tensor == meta["version"]).all()) for tensor in tensors.values())
    assert len(tensors) == 4
    return meta["version"]

def go_on_writing(version):
    while True:
        version += 1
        write(path, {str(i): torch.full((500_000,), float(version)) for i in range(4)}, {"version": version})

write(path, {str(i): torch.zeros(500_000) for i in range(4)}, {"version": 0})
last, leftovers, grown = 0, 0, 0
for _ in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        go_on_writing(last)
    time.sleep(rng.uniform(0.0, 0.12))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = version_of(path)
    assert found >= last, (found, last)
    grown += found > last
    last = found
    leftovers += len(os.listdir(folder)) > 1
write(path, {str(i): torch.zeros(500_000) for i in range(4)}, {"version": 0})
assert os.listdir(folder) == [os.path.basename(path)], os.listdir(folder)
print(grown, leftovers)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill")
def test_a_writer_killed_at_any_moment_leaves_a_complete_file(path):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED_AT_RANDOM), str(path), "0", "40"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    grown, leftovers = map(int, result.stdout.split())
    assert grown > 0  # some were written
    assert leftovers > 0  # some were caught in the act
