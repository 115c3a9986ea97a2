"""Nothing is lost on the command line: Ctrl-C, checkpoints, and models that cannot be written where they should be."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest
from support.table_commands import SMALL, files

from livi import cli
from livi.posterior.storage import StorageError
from livi.running import Progress
from livi.tables import fitting, save_somewhere
from livi.tables.model import TableModel, load_model

FIT = ("fit", "houses.csv", "--target", "price", "--out", "m.livi", "--hidden", "4", "--allow-poor")
FIT += ("--target-scale", "plain", "--noise", "constant")  # nothing to try before the fit


class CtrlC:
    """Raises KeyboardInterrupt in place of, or after so many calls of, a function; then calls it as ever."""

    def __init__(self, function, after=0):
        self.function, self.left = function, after

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left == -1:
            raise KeyboardInterrupt
        return self.function(*args, **kwargs)

    def __get__(self, instance, _):
        return lambda *args, **kwargs: self(instance, *args, **kwargs)


def interrupted_at(monkeypatch, step):
    show = Progress.show

    def stopping(self, at, row):
        if self.unit == "steps" and at >= step and "bound" in row:
            raise KeyboardInterrupt
        return show(self, at, row)

    monkeypatch.setattr(Progress, "show", stopping)


def test_ctrl_c_keeps_what_was_learned(here, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_at(patch, 40)
        assert cli.main([*FIT, "--steps", "400"]) == 130
    out, err = capsys.readouterr()
    assert "interrupted at step" in out
    assert "of 400 in" in out
    assert "RMSE" in out
    assert err.splitlines()[-1].startswith("livi: interrupted at step ")
    assert "m.livi holds what was learned by then. With --checkpoint FILE a fit can go on." in err
    model = load_model("m.livi")
    assert any("interrupted: keeping the posterior of step" in text for text in model.notes)
    assert "interrupted at step" in model.facts["Fit"]
    assert cli.main(["predict", "m.livi", "new.csv", "--out", "p.csv"]) == 0
    assert len(pd.read_csv("p.csv")) == 10


def test_ctrl_c_in_the_search_for_a_start_keeps_a_model_too(here, capsys, monkeypatch):
    monkeypatch.setattr(Progress, "show", CtrlC(Progress.show))
    assert cli.main([*FIT, "--steps", "400", "--quiet"]) == 130
    assert "interrupted at step 0 of 400" in capsys.readouterr().err
    assert any("looking for a start" in text for text in load_model("m.livi").notes)


def test_ctrl_c_before_the_fit_leaves_no_file(here, capsys, monkeypatch):
    monkeypatch.setattr(fitting, "learn_schema", CtrlC(fitting.learn_schema))
    before = files()
    assert cli.main([*FIT]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "livi: interrupted"
    assert files() == before


@pytest.mark.parametrize("place", ["_diagnosed", "evaluate"])
def test_ctrl_c_after_the_fit_keeps_it(here, capsys, monkeypatch, place):
    owner = fitting if place == "_diagnosed" else TableModel
    monkeypatch.setattr(owner, place, CtrlC(getattr(owner, place)))
    assert cli.main([*FIT, "--steps", "20"]) == 130
    out, err = capsys.readouterr()
    assert "20 steps in" in out
    assert "interrupted while it was examined" in err
    assert "not examined to the end" in load_model("m.livi").notes[-1]


def test_ctrl_c_while_the_model_is_written_is_not_too_late(here, monkeypatch):
    monkeypatch.setattr(TableModel, "save", CtrlC(TableModel.save))
    assert cli.main([*FIT, "--steps", "20", "--quiet"]) == 0
    load_model("m.livi")


def test_a_checkpoint_goes_on_to_the_same_model(here, capsys, monkeypatch):
    options = ("--steps", "200", "--checkpoint", "m.part")
    with monkeypatch.context() as patch:
        interrupted_at(patch, 60)
        assert cli.main([*FIT, *options]) == 130
    assert "To go on from m.part, give the same command with --force." in capsys.readouterr().err
    assert cli.main([*FIT, *options, "--force"]) == 0
    assert "note: going on from m.part" in capsys.readouterr().err
    assert cli.main([*FIT[:5], "whole.livi", *FIT[6:], "--steps", "200"]) == 0
    for name in ("m", "whole"):
        assert cli.main(["predict", f"{name}.livi", "new.csv", "--out", f"{name}.csv"]) == 0
    assert Path("m.csv").read_text() == Path("whole.csv").read_text()


def test_a_checkpoint_of_another_fit_is_refused(here, capsys):
    assert cli.main([*FIT, "--steps", "20", "--checkpoint", "m.part", "--quiet"]) == 0
    other = ["fit", "houses.csv", "--target", "price", "--out", "n.livi", "--hidden", "5", "--steps", "20"]
    capsys.readouterr()
    assert cli.main([*other, "--checkpoint", "m.part", "--quiet"]) == 1
    assert "checkpoint: expected the same" in capsys.readouterr().err
    assert not Path("n.livi").exists()
    assert cli.main([*FIT[:5], "n.livi", *FIT[6:], "--steps", "20", "--checkpoint", "m.part", "--seed", "7"]) == 1
    assert "expected the --seed that the fit in m.part began with, got 7; give that one" in capsys.readouterr().err
    for bad in ("m.livi", "houses.csv"):
        assert cli.main([*other[:5], "n.livi", "--checkpoint", bad]) == 1
    assert cli.main([*other[:5], "n.livi", "--checkpoint", "n.livi"]) == 1
    assert "expected another file" in capsys.readouterr().err


# --- models that cannot be written ----------------------------------------------------------------


def test_a_model_that_cannot_be_written_is_written_elsewhere(here, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(here / "elsewhere"))
    (here / "elsewhere").mkdir()
    save = TableModel.save

    def failing(self, path, **options):
        if Path(path).name == str(path):
            raise StorageError(f"{path}: expected a folder with room to write in, got No space left on device.")
        save(self, path, **options)

    monkeypatch.setattr(TableModel, "save", failing)
    assert cli.main([*FIT, "--steps", "20"]) == 1
    out, err = capsys.readouterr()
    [kept] = (here / "elsewhere").glob("livi-*/m.livi")
    assert "RMSE" in out
    assert out.endswith(f"written: {kept}\n")
    assert "No space left on device" in err
    assert f"The fit is not lost, it is in {kept}: move it where it belongs." in err
    assert not Path("m.livi").exists()
    assert kept.parent.stat().st_mode & 0o077 == 0
    load_model(kept)


def test_a_folder_that_has_gone_during_the_fit_costs_nothing(here, capsys, monkeypatch):
    Path("gone").mkdir()
    diagnosed = fitting._diagnosed

    def removing(*args):
        Path("gone").rmdir()
        return diagnosed(*args)

    monkeypatch.setattr(fitting, "_diagnosed", removing)
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    assert cli.main(["fit", "houses.csv", "--target", "price", "--out", "gone/m.livi", *SMALL]) == 1
    assert "expected an existing folder" in capsys.readouterr().err
    assert len(list(here.glob("livi-*/m.livi"))) == 1


def test_what_can_be_written_nowhere_is_an_error(tmp_path, monkeypatch):
    def failing(path):
        raise StorageError(f"{path}: full")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=r"a\.livi: full"):
        save_somewhere(failing, "a.livi")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_real_ctrl_c_ends_a_real_fit(here):
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    # Ctrl-C is ignored in a background job, and so in what it starts.
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{begin}; from livi.cli import main; sys.exit(main())", *FIT]
    process = subprocess.Popen(
        [*command, "--steps", "200000"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    seen = ""
    while "bound" not in seen and process.poll() is None:
        seen += process.stderr.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "livi: interrupted at step" in err
    load_model("m.livi")
