"""Processes of a benchmark end with the one that began them, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from livi.experiments.processes import side_by_side

def fit(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    os.rename(path, path + ".begun")
    time.sleep(600)

if __name__ == "__main__":
    list(side_by_side(fit, [sys.argv[1]], 1))
"""


def test_processes_end_with_a_parent_that_was_killed(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    parent = subprocess.Popen([sys.executable, tmp_path / "program.py", tmp_path / "job"])
    begun = tmp_path / "job.begun"
    while not begun.exists():
        assert parent.poll() is None, "the program ended by itself"
        time.sleep(0.1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    worker = int(begun.read_text())
    for _ in range(300):  # half a minute, of the ten that its job would last
        if not running(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the process went on without its parent")


def running(pid):
    """Whether there is such a process, and it is more than an entry that nobody has cleared away."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.parent.parent.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
