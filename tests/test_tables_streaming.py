"""Long tables part by part: the same rows, predictions and words as in one piece, in memory that does not grow."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from support.small_tables import silent

from livi.tables import TableError, one_ahead, read_parts, read_table, write_frames
from livi.tables import model as module
from livi.tables.fitting import fit_table
from livi.tables.options import FitOptions
from livi.tables.predicting import MonteCarlo
from livi.tables.reading import Table

QUICK = FitOptions(steps=5, hidden=(2,), diagnose=False, validation=0.0, target_scale="plain", noise="constant")


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({"area": rng.normal(100.0, 20.0, rows).round(3), "rooms": rng.integers(1, 9, rows)})
    found["town"] = rng.choice(["Aarhus", "Bath", 'Chur "upon\nRhine"'], rows)
    return found.assign(price=30.0 * found["area"] + rng.normal(0.0, 50.0, rows))


@pytest.fixture(scope="module")
def model():
    return fit_table(Table.from_frame(frame(80), "houses"), "price", QUICK, silent)


def written(folder, rows, suffix, seed=1):
    path = folder / f"new{rows}.{suffix}"
    new = frame(rows, seed)
    new.to_csv(path, index=False) if suffix == "csv" else new.to_parquet(path, index=False)
    return path


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [1, 7, 30, 1000])
def test_parts_are_the_table(tmp_path, suffix, rows):
    path = written(tmp_path, 30, suffix)
    whole, parts = read_table(path), list(one_ahead(read_parts(path, rows)))
    assert [len(part) for part in parts] == [min(rows, 30 - start) for start in range(0, 30, rows)]
    np.testing.assert_array_equal(np.concatenate([part.lines for part in parts]), whole.lines)
    for name, cells in whole.columns.items():
        np.testing.assert_array_equal(np.concatenate([part.columns[name] for part in parts]), cells)
    assert {part.whole for part in parts} == {whole.whole}


def test_what_is_wrong_far_down_is_found_there(tmp_path):
    path = tmp_path / "long.csv"
    for wrong, complaint in ((b"1,\xff\n", "row 42: expected UTF-8"), (b"1,2,3\n", "row 42: expected 2 values")):
        path.write_bytes(b"a,b\n" + 40 * b"1,2\n" + wrong)
        parts = read_parts(path, 10)
        assert [len(next(parts)) for _ in range(4)] == [10, 10, 10, 10]
        with pytest.raises(TableError, match=complaint):
            next(parts)


def test_the_next_part_is_read_while_one_is_in_use():
    read = []

    def parts():
        for place in range(3):
            read.append(place)
            yield Table("t", {}, np.arange(place, place + 1))

    ahead = one_ahead(parts())
    next(ahead)
    next(ahead)  # by then the third was asked for, and is waited for when the second is done
    list(ahead)
    assert read == [0, 1, 2]


# --- predicting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_part_by_part_are_those_of_the_whole(tmp_path, monkeypatch, model, suffix):
    path = written(tmp_path, 60, suffix)
    whole = model.predict(read_table(path), silent, keep=True)
    parts = model.predict_parts(read_parts(path, 7), silent, keep=True)
    write_frames(tmp_path / f"out.{suffix}", parts)
    write_frames(tmp_path / f"whole.{suffix}", [whole])
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    pd.testing.assert_frame_equal(read(tmp_path / f"out.{suffix}"), read(tmp_path / f"whole.{suffix}"), rtol=1e-6)
    monkeypatch.setattr(module, "PART_ROWS", 11)
    pd.testing.assert_frame_equal(model.predict(read_table(path), silent, keep=True), whole, rtol=1e-6)


def test_what_the_fit_had_not_seen_is_said_once_for_all_parts(tmp_path, model):
    new = frame(40).assign(extra=1)
    new.loc[[3, 17, 25, 39], "town"] = ["Delft", "Essen", "Delft", "Fano"]
    new.loc[[5, 30], "area"] = np.nan
    new = new.replace('Chur "upon\nRhine"', "Bath")  # so that a row is a line
    new.to_csv(tmp_path / "new.csv", index=False)
    said, of_parts = [], []
    model.predict(read_table(tmp_path / "new.csv"), said.append)
    list(model.predict_parts(read_parts(tmp_path / "new.csv", 8), of_parts.append))
    assert said == of_parts
    assert len(said) == 3
    assert "rows 5, 19, 27 and 1 more: not seen in the fit: 'Delft', 'Essen', 'Fano'" in "".join(said)
    assert "rows 7, 32: missing, but never in the fit" in "".join(said)
    with pytest.raises(TableError, match="row 7: missing, but never in the fit; drop --strict"):
        list(model.predict_parts(read_parts(tmp_path / "new.csv", 8), silent, strict=True))


def test_a_column_of_gaps_at_first_is_text_in_parquet(tmp_path):
    parts = [pd.DataFrame({"a": [1.0], "b": pd.Series([None], dtype=object)}), pd.DataFrame({"a": [2.0], "b": ["x"]})]
    write_frames(tmp_path / "out.parquet", parts)
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found["a"].tolist() == [1.0, 2.0]
    assert found["b"].isna().tolist() == [True, False]
    assert found["b"][1] == "x"


def test_what_fails_midway_leaves_the_old_file(tmp_path, model):
    (tmp_path / "out.csv").write_text("as it was")
    (tmp_path / "new.csv").write_text("area,rooms,town\n" + 20 * "1,2,Bath\n" + "wide,2,Bath\n")
    with pytest.raises(TableError, match="row 22, column 'area'"):
        write_frames(tmp_path / "out.csv", model.predict_parts(read_parts(tmp_path / "new.csv", 5), silent))
    assert (tmp_path / "out.csv").read_text() == "as it was"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new.csv", "out.csv"]


# --- memory ---------------------------------------------------------------------------------------


def peak(act):
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path, model, suffix):
    short, long = written(tmp_path, 2_000, suffix), written(tmp_path, 8_000, suffix)
    out = tmp_path / f"out.{suffix}"

    def predict(path):
        write_frames(out, model.predict_parts(one_ahead(read_parts(path, 500)), silent, monte_carlo=MonteCarlo()))

    def predict_at_once(path):
        write_frames(out, [model.predict(read_table(path), silent)])

    predict(short)  # what is loaded or kept at the first time
    few, many = peak(lambda: predict(short)), peak(lambda: predict(long))
    assert many < 1.3 * few
    assert peak(lambda: predict_at_once(long)) > 2.0 * many  # so that the measure shows growth where there is some
