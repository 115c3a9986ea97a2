"""The command line: what it prints, where, and its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from livi import cli
from livi.experiments.toy_bench import all_methods


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def test_the_toy_benchmark_prints_a_table_and_writes_json(tmp_path, capsys):
    code = cli.main(["bench", "toy", "--quick", "--data", "B", "--methods", "map,livi", "--out", str(tmp_path)])
    out, err = capsys.readouterr()
    assert code == 0
    assert out.splitlines()[0].startswith("| data | method |")
    assert "| B | livi | 1 |" in out
    assert "2 of 2: B livi seed 100" in err
    document = json.loads((tmp_path / "toy.json").read_text())
    assert document["config"]["methods"] == ["map", "livi"]
    assert len(document["rows"]) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bench", "toy", "--data", "C"], "data: expected some of A, B, got 'C'"),
        (["bench", "toy", "--methods", "swagger"], "method: expected one of"),
        (["bench", "toy", "--seeds", "0"], "seeds"),
        (["bench", "toy", "--seeds", "many"], "--seeds"),
        (["bench", "toy", "--fast"], "--fast"),
        (["bench"], "benchmark"),
        (["fly"], "fly"),
    ],
)
def test_wrong_usage_is_said_in_words_with_exit_code_two(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert "Traceback" not in err


def test_livi_alone_says_how_to_begin_in_five_lines(capsys):
    assert cli.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("livi ") and len(line) <= 120 for line in lines)
    for line, command in zip(lines, ("fit", "predict", "evaluate"), strict=False):
        words = line.partition("    ")[0].split()[1:]
        chosen, rest = cli._parser().parse_known_args(words)
        assert words[0] == command
        assert not rest
        assert callable(chosen.command)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["fitt", "a.csv"], "did you mean fit?"),
        (["predcit"], "did you mean predict?"),
        (["bench", "table"], "did you mean tables?"),
        (["fit", "a.csv", "--targt", "y", "--out", "m"], "for --targt, did you mean --target?"),
        (["fit", "a.csv", "--target", "y", "--out", "m", "--step=3"], "for --step, did you mean --steps?"),
        (["fit", "a.csv", "--target", "y", "--out", "m", "-hiden", "3"], "for -hiden, did you mean --hidden?"),
        (["fit", "a.csv", "--target", "y", "--out", "m", "--task", "regresion"], "did you mean regression?"),
        (["predict", "m", "a.csv", "--out", "p.csv", "--kep"], "for --kep, did you mean --keep?"),
        (["bench", "toy", "--fist-seed", "3"], "for --fist-seed, did you mean --first-seed?"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(arguments, hint, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].endswith(hint)
    assert err.startswith("usage: ")


@pytest.mark.parametrize("arguments", [["fly"], ["fit", "a.csv", "--target", "y", "--out", "m", "--zzz"], ["fit"]])
def test_a_word_like_no_other_gets_no_hint(arguments, capsys):
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert "did you mean" not in capsys.readouterr().err


def test_a_failure_is_one_sentence_with_exit_code_one(tmp_path, capsys):
    (tmp_path / "toy.json").write_text("{}")
    arguments = ["bench", "toy", "--quick", "--methods", "map", "--out", str(tmp_path)]
    assert cli.main(arguments) == 1
    err = capsys.readouterr().err
    assert len([line for line in err.splitlines() if not line.startswith("note: ")]) == 1
    assert "move it away" in err
    assert cli.main(["--debug", *arguments]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_is_no_traceback(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("livi.experiments.toy_bench.bench", interrupted)
    assert cli.main(["bench", "toy"]) == 130
    told = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert told == ["livi: interrupted"]


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert "livi bench toy --quick" in out


def test_an_unknown_method_of_the_toy_benchmark_is_answered_with_all_names(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "toy", "--methods", "swagger"])
    said = capsys.readouterr().err.replace("-K", "-5")
    assert all(method in said for method in all_methods())


def in_a_new_process(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_module_runs_as_a_command():
    process = in_a_new_process("-m", "livi", "--version")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("livi ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["fit", "--help"],
        ["evaluate", "--help"],
        ["bench", "tables", "--help"],
        ["bench", "plain", "--help"],
        ["fit", "--steps", "0"],
    ],
    ids=" ".join,
)
def test_help_and_wrong_usage_do_not_wait_for_torch(arguments):
    script = f"""
import sys
from livi.cli import main
try:
    main({arguments!r})
except SystemExit:
    print("loaded:", *{{"numpy", "pandas", "torch"}} & sys.modules.keys(), file=sys.stderr)
"""
    process = in_a_new_process("-c", script)
    assert process.returncode == 0
    assert process.stderr.splitlines()[-1] == "loaded:"
