"""Bad input on the command line: a sentence and an exit code, never a traceback, never a damaged file."""

import contextlib
import io
import os
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livi import cli
from livi.tables import read_table
from livi.tables.fitting import fit_table
from livi.tables.model import load_model
from livi.tables.options import FitOptions


def examples(count):
    """Random inputs, the same ones on every run of one version of hypothesis, however slow the machine."""
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=quiet, database=None)


TOWNS = ("Aarhus", "Bath", "Cork")
VALID = "area,town,built,price\n" + "".join(
    f"{50 + 7 * i % 90}.5,{TOWNS[i % 3]},20{10 + i % 12}-0{1 + i % 9}-11,{1000 + 37 * i % 411}\n" for i in range(30)
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The bytes of a model, fitted once."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "houses.csv").write_text(VALID)
    fitted = fit_table(read_table(folder / "houses.csv"), "price", FitOptions(steps=2, hidden=(2,)), lambda _: None)
    fitted.save(folder / "houses.livi")
    return (folder / "houses.livi").read_bytes()


def run(arguments):
    """Exit code, stdout and stderr of a command; an exception would escape from here."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(arguments)
        except SystemExit as stop:
            code = stop.code
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in err.getvalue()
    if code == 1:
        assert err.getvalue().splitlines()[-1].startswith("livi: ")
    return code, out.getvalue(), err.getvalue()


def check_unharmed(folder, arguments, *outputs):
    """Run a command with old files at its outputs: after a failure they are as they were, and nothing lies around."""
    old = b"what was there before"
    for output in outputs:
        (folder / output).write_bytes(old)
    before = sorted(os.listdir(folder))
    code, _, err = run(arguments)
    assert sorted(os.listdir(folder)) == before
    for output in outputs:
        assert ((folder / output).read_bytes() != old) == (code == 0)
    return code, err


def fit(folder, *options):
    arguments = ["fit", str(folder / "data.csv"), "--out", str(folder / "new.livi"), "--quiet", "--force"]
    small = ("--steps", "1", "--hidden", "1", "--allow-poor")
    return check_unharmed(folder, [*arguments, *small, *options], "new.livi")


def predict(folder, *options):
    arguments = ["predict", str(folder / "houses.livi"), str(folder / "data.csv"), "--out", str(folder / "new.csv")]
    return check_unharmed(folder, [*arguments, "--force", *options], "new.csv")


def evaluate(folder, *options):
    arguments = ["evaluate", str(folder / "houses.livi"), str(folder / "data.csv"), "--json", str(folder / "new.json")]
    return check_unharmed(folder, [*arguments, "--force", *options], "new.json")


@st.composite
def mutated(draw, original):
    """Bytes with a piece cut out, put in, doubled or replaced, one to four times."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.integers(0, 30)))
        piece = draw(
            st.one_of(st.binary(max_size=6), st.sampled_from([b"", b",", b"\n", b'"', b"inf", b"1e400", b"abc"]))
        )
        data[start:stop] = piece if draw(st.booleans()) else bytes(data[start:stop]) * 2 + piece
    return bytes(data)


CELLS = st.sampled_from(
    ["", "1", "2.5", "-3e4", "1e400", "inf", "nan", "NA", "abc", "True", "2020-01-01", '"', "1,5", "é", "\x00", " "]
)
NAMES = st.sampled_from(["a", "c", "b", "", "a b", '"q', "é", "1"])


@st.composite
def csv_like(draw):
    width = draw(st.integers(1, 4))
    delimiter = draw(st.sampled_from([",", ";", "\t"]))
    header = draw(st.lists(NAMES, min_size=width, max_size=width, unique=draw(st.booleans())))
    header[0] = draw(st.sampled_from(["y", header[0]]))
    kinds = [draw(st.lists(CELLS, min_size=1, max_size=4)) for _ in range(width)]
    rows = [[draw(st.sampled_from(kind)) for kind in kinds] for _ in range(draw(st.integers(0, 12)))]
    if rows and draw(st.booleans()):
        rows[-1] = rows[-1][: draw(st.integers(0, width))]
    return "\n".join(delimiter.join(row) for row in [header, *rows]).encode()


@examples(60)
@given(data=st.binary(max_size=200))
def test_any_bytes_as_a_table(tmp_path, model, data):
    (tmp_path / "data.csv").write_bytes(data)
    (tmp_path / "houses.livi").write_bytes(model)
    assert fit(tmp_path, "--target", "y")[0] == 1
    assert predict(tmp_path)[0] == 1
    assert evaluate(tmp_path)[0] == 1


@examples(80)
@given(data=csv_like(), options=st.sampled_from([[], ["--task", "regression"], ["--task", "classification"]]))
def test_text_that_is_almost_a_table(tmp_path, model, data, options):
    (tmp_path / "data.csv").write_bytes(data)
    (tmp_path / "houses.livi").write_bytes(model)
    fit(tmp_path, "--target", "y", *options)
    assert predict(tmp_path)[0] == 1


ODD = (
    ["1", "2.5", "-3e4", ""],
    ["1e99", "-1e99", "0"],
    ["1e-300", "0"],
    ["NA", "?", ""],
    ["a", "b", "é", ""],
    ["3", "3.0", "03"],
    ["True", "False"],
    ["2020-01-01", "9999-12-31T23:59:59", "0001-01-01"],
    ["=1+1", "<script>", "a|b"],
)


@st.composite
def odd_tables(draw):
    """Tables that can be fitted, if not always sensibly."""
    rows = draw(st.integers(8, 40))
    pools = draw(st.lists(st.sampled_from(ODD), min_size=1, max_size=4))
    target = draw(st.sampled_from([*ODD, [str(i) for i in range(40)], [str(1e-9 * i) for i in range(40)]]))
    header = ["y", *(f"c{place}" for place in range(len(pools)))]
    lines = [[draw(st.sampled_from(pool)) for pool in (target, *pools)] for _ in range(rows)]
    return "\n".join(",".join(line) for line in [header, *lines]).encode()


@examples(15)
@given(data=odd_tables(), validation=st.sampled_from(["0", "0.3"]))
def test_an_odd_table_is_fitted_and_predicted_or_refused(tmp_path, data, validation):
    (tmp_path / "data.csv").write_bytes(data)
    code, _ = fit(tmp_path, "--target", "y", "--validation", validation)
    if code == 0:
        (tmp_path / "new.livi").rename(tmp_path / "houses.livi")
        assert predict(tmp_path)[0] == 0
        (tmp_path / "houses.livi").unlink()


EUROPEAN = VALID.replace(",", ";").replace(".5", ",5")
DECIMALS = st.sampled_from(["comma", "point"])


def damaged_tables():
    """With decimal points or commas."""
    return st.sampled_from([EUROPEAN, VALID]).flatmap(lambda text: mutated(text.encode()))


@examples(16)
@given(data=damaged_tables(), decimal=DECIMALS)
def test_a_damaged_table_is_fitted_or_refused(tmp_path, data, decimal):
    (tmp_path / "data.csv").write_bytes(data)
    fit(tmp_path, "--target", "price", "--decimal", decimal)


@examples(100)
@given(data=damaged_tables(), decimal=DECIMALS, strict=st.booleans())
def test_a_damaged_table_is_predicted_or_refused(tmp_path, model, data, decimal, strict):
    (tmp_path / "data.csv").write_bytes(data)
    (tmp_path / "houses.livi").write_bytes(model)
    code, err = predict(tmp_path, "--decimal", decimal, *(["--strict", "--keep"] if strict else []))
    if code == 0:
        rows = len(read_table(tmp_path / "data.csv", decimal=decimal))
        assert len((tmp_path / "new.csv").read_text().splitlines()) == rows + 1
    else:
        assert "data.csv" in err.splitlines()[-1]
    evaluate(tmp_path, "--decimal", decimal)


@examples(30)
@given(data=st.data())
def test_a_damaged_parquet_file_is_predicted_or_refused(tmp_path, model, data):
    frame = pytest.importorskip("pandas").read_csv(io.StringIO(VALID))
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    (tmp_path / "data.csv").write_bytes(data.draw(mutated(buffer.getvalue())))
    (tmp_path / "houses.livi").write_bytes(model)
    predict(tmp_path)


@examples(40)
@given(data=st.data())
def test_a_damaged_model_is_refused(tmp_path, model, data):
    damaged = data.draw(
        st.one_of(mutated(model), st.binary(max_size=100), st.integers(0, len(model)).map(lambda n: model[:n]))
    )
    (tmp_path / "data.csv").write_text(VALID)
    (tmp_path / "houses.livi").write_bytes(damaged)
    code, err = predict(tmp_path)
    assert code == (0 if damaged == model else 1)
    assert code == 0 or "houses.livi" in err.splitlines()[-1]


@examples(25)
@given(data=st.data())
def test_a_model_with_another_schema_is_refused_or_works(tmp_path, model, data):
    """The digest guards against damage, not against a file made by other hands."""
    (tmp_path / "data.csv").write_text(VALID)
    (tmp_path / "houses.livi").write_bytes(model)
    good = load_model(tmp_path / "houses.livi")
    stored = good.schema.to_json()
    place = data.draw(
        st.sampled_from(["target", "task", "classes", "dropped", "columns", "name", "kind", "median", "missing"])
    )
    value = data.draw(st.sampled_from([None, 1, -1, "", "price", [], ["a"], {}, 1e308, "numeric", "classification"]))
    (stored if place in stored else stored["columns"][0])[place] = value
    good.estimator.save(
        tmp_path / "houses.livi", {"table": {"schema": stored, "facts": {}, "notes": [], "findings": []}}
    )
    predict(tmp_path)
    evaluate(tmp_path)


WORDS = (
    *("fit", "predict", "evaluate", "--target", "price", "--out", "--steps", "0", "-1", "1e9", "--seed", "nope.csv"),
    *("--hidden", ",", "--validation", "2", "nan", "--delimiter", ";;", "", "\udcff", "--drop", "--force", "\0"),
)


@examples(60)
@given(arguments=st.lists(st.sampled_from(WORDS), min_size=1, max_size=7))
def test_any_arguments(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, *_ = run(arguments)
    assert code in (1, 2)
    assert list(tmp_path.iterdir()) == []


# --- every option ---------------------------------------------------------------------------------

VALUES = {  # of each option values that can be used, and values that cannot; None where it takes none
    "--target": (("price", "area", "town"), ("nope", "")),
    "--task": (("regression", "classification"), ("other",)),
    "--drop": (("town", "town,built", '"area"', ","), ("price", "nope", "town,nope")),
    "--categorical": (("town", ","), ("price", "nope", "built")),
    "--use": (("area", ","), ("nope",)),
    "--missing": (("Bath", "none,-999", ","), ()),
    "--validation": (("0", "0.1"), ("0.99", "1", "nan")),
    "--seed": (("3", "4294967295"), ("4294967296", "-1")),
    "--hidden": (("1", "2,2"), ("0", ",")),
    "--activation": (("tanh", "gelu"), ("cube",)),
    "--steps": (("1", "2"), ("0", "9" * 5000)),
    "--budget": (("60", "1 min"), ("0", "soon", "")),
    "--target-scale": (("auto", "plain", "log"), ("square",)),
    "--rowless": ((None,), ("yes",)),
    "--components": (("1", "2"), ("0",)),
    "--noise": (("constant", "varying"), ("odd",)),
    "--interval": (("posterior", "conformal"), ("none",)),
    "--allow-poor": ((None,), ("yes",)),
    "--threads": (("1",), ("0",)),
    "--checkpoint": (("parts/fit.part",), ("nowhere/new.part", "data.csv", "")),
    "--out": (("new.csv",), ("nowhere/new.csv", "data.csv", "")),
    "--json": (("new.json",), ("nowhere/new.json", "data.csv", "")),
    "--report": (("new.html",), ("nowhere/new.html", "data.csv", "")),
    "--delimiter": ((",",), ("tab", ";", ";;", '"', "")),
    "--decimal": (("point",), ("comma", "dot", "")),
    "--keep": ((None,), ("yes",)),
    "--strict": ((None,), ("yes",)),
    "--raw-text": ((None,), ("yes",)),
    "--force": ((None,), ("yes",)),
    "--quiet": ((None,), ("yes",)),
}
COMMANDS = {
    "fit": (
        ["data.csv"],
        {"--target": "price", "--out": "new.livi", "--steps": "1", "--hidden": "1", "--allow-poor": None},
    ),
    "predict": (["houses.livi", "data.csv"], {"--out": "new.csv"}),
    "evaluate": (["houses.livi", "data.csv"], {}),
}


def options_of(command):
    """All options that the help names, less those that are meant to show help or a traceback."""
    code, out, _ = run([command, "--help"])
    assert code == 0
    return sorted(set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", out, re.MULTILINE)) - {"--help", "--debug"})


def run_with(folder, model, command, options):
    """Run a command on a sound table, and check that it changes nothing but its outputs, and is quiet if told so."""
    inputs = {"data.csv": VALID.encode() + VALID.encode().partition(b"\n")[2], "houses.livi": model}
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
    (folder / "parts").mkdir(exist_ok=True)
    (folder / "parts" / "fit.part").unlink(missing_ok=True)
    places, usual = COMMANDS[command]
    options = usual | {"--force": None} | options
    outputs = [value for value in options.values() if value and value.startswith("new.")]
    words = [word for option, value in options.items() for word in (option, value) if word is not None]
    code, err = check_unharmed(folder, [command, *places, *words], *outputs)
    assert code != 0 or "--quiet" not in options or err == ""
    assert {name: (folder / name).read_bytes() for name in inputs} == inputs
    for name in outputs:
        (folder / name).unlink()
    return code


def test_every_option_is_tried():
    assert {option for command in COMMANDS for option in options_of(command)} == VALUES.keys()


@pytest.mark.parametrize(("command", "option"), [(one, option) for one in COMMANDS for option in options_of(one)])
def test_an_option_takes_what_can_be_used_and_refuses_the_rest(tmp_path, monkeypatch, model, command, option):
    monkeypatch.chdir(tmp_path)
    good, bad = VALUES[option]
    assert {value: run_with(tmp_path, model, command, {option: value}) for value in good} == dict.fromkeys(good, 0)
    assert 0 not in {run_with(tmp_path, model, command, {option: value}) for value in bad}


@examples(20)
@given(command=st.sampled_from([*COMMANDS]), data=st.data())
def test_options_that_can_be_used_can_be_used_together_or_are_refused(tmp_path, monkeypatch, model, command, data):
    monkeypatch.chdir(tmp_path)
    chosen = data.draw(st.lists(st.sampled_from(options_of(command)), min_size=2, max_size=6, unique=True))
    run_with(tmp_path, model, command, {option: data.draw(st.sampled_from(VALUES[option][0])) for option in chosen})


@pytest.mark.parametrize("command", COMMANDS)
def test_files_that_exist_are_replaced_by_leave_only(tmp_path, monkeypatch, model, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(VALID)
    (tmp_path / "houses.livi").write_bytes(model)
    places, usual = COMMANDS[command]
    usual = usual or {"--json": "new.json"}
    words = [word for pair in usual.items() for word in pair if word is not None]
    [output] = [value for value in usual.values() if value and value.startswith("new.")]
    assert check_unharmed(tmp_path, [command, *places, *words], output)[0] == 1
