"""Cells, and tables in files: what is read and what is written."""

import math
import subprocess
import sys
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from support.small_tables import silent

from livi.tables import TableError, check_output, frames_bytes, read_table, write_frames
from livi.tables.detection import column_kinds, learn_schema
from livi.tables.encoding import encode
from livi.tables.values import clean, day, label, number

# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", "NA", "n/a", "NaN", "nan", "NULL", "null", "?", "#N/A", "<NA>"])
def test_these_words_mean_missing(text):
    assert clean(text) == ""


@pytest.mark.parametrize("text", ["none", "None", "-", "0", "missing", "N"])
def test_these_words_do_not_mean_missing(text):
    assert clean(f" {text} ") == text


@pytest.mark.parametrize(
    "text", ["1", "+1", "-1.5", ".5", "5.", "1e3", "1E-3", "007", "123456789012345678901234567890"]
)
def test_numbers_are_those_that_float_reads(text):
    assert number(text) == float(text)


@pytest.mark.parametrize(
    "text", ["1,5", "1_000", "0x10", "1 000", "5%", "$5", "٣", "one", "1e", "--1", "1.2.3", "True"]
)
def test_what_only_looks_like_a_number_is_none(text):
    assert number(text) is None


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e400", "-1e400"])
def test_infinite_numbers_are_recognised_as_such(text):
    assert math.isinf(number(text))


@pytest.mark.parametrize(
    "text", ["1970-01-01", "2024-02-29", "1969-12-31T23:59:59.5", "2024-01-01 06:00", "0001-01-01"]
)
def test_days_agree_with_datetime(text):
    assert day(text) == (datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds() / 86400


@pytest.mark.parametrize(
    "text", ["2024-02-30", "2024-1-1", "01.02.2024", "20240101", "2024-01-01T25:00", "2024-01-01x"]
)
def test_what_is_no_iso_date_is_none(text):
    assert day(text) is None


def test_a_time_zone_is_taken_off():
    assert day("2024-01-01T00:00+02:00") == day("2023-12-31T22:00")
    assert day("0001-01-01T00:00+02:00") is None  # before the first day there is


def test_whole_numbers_are_one_category_however_they_are_written():
    assert {label("3"), label("3.0"), label("3.00"), label(3.0)} == {"3"}
    assert label(2.5) == label("2.5") == "2.5"
    assert label("03") != label("3")


# --- reading --------------------------------------------------------------------------------------


def read(tmp_path, data, name="some.csv", **options):
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(tmp_path / name, **options)


def cells(read):
    return {name: values.tolist() for name, values in read.columns.items()}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_delimiters_line_ends_and_byte_order_marks_are_found(tmp_path, delimiter, newline, mark):
    lines = [["a", "b c"], ["1", '"x,;\ty"'], ["", "é"]]
    found = read(tmp_path, mark + newline.join(delimiter.join(line) for line in lines).encode())
    assert cells(found) == {"a": ["1", ""], "b c": ["x,;\ty", "é"]}
    assert found.lines.tolist() == [2, 3]


def test_another_delimiter_can_be_set(tmp_path):
    assert cells(read(tmp_path, "a|b\n1|2\n", delimiter="|")) == {"a": ["1"], "b": ["2"]}


def test_decimal_commas_are_read_where_the_user_says_so(tmp_path):
    path = tmp_path / "euro.csv"
    path.write_text("a;b;c\n1,5;1.234,5;rot, gelb\n-,5;12.345.678;2024-02-29\n3e2;NA;1.2.3\n", encoding="utf-8")
    found = read_table(path, decimal="comma").columns
    assert [number(text) for text in found["a"]] == [1.5, -0.5, 300.0]
    assert list(found["b"]) == ["1234.5", "12345678", ""]
    assert list(found["c"]) == ["rot, gelb", "2024-02-29", "1.2.3"]
    assert list(read_table(path).columns["a"]) == ["1,5", "-,5", "3e2"]
    path.write_text("a;b\n1,5;2\n2.5;3\n", encoding="utf-8")
    with pytest.raises(
        TableError, match=r"row 3, column 'a': expected a decimal comma, got '2.5'; pass --decimal point"
    ):
        read_table(path, decimal="comma")


def test_lines_are_those_an_editor_shows(tmp_path):
    found = read(tmp_path, '\na,b\n"1\n1",2\n\n3,4\n')
    assert cells(found) == {"a": ["1\n1", "3"], "b": ["2", "4"]}
    assert found.lines.tolist() == [3, 6]


def test_columns_without_a_name_are_left_out_with_a_note(tmp_path):
    found = read(tmp_path, ",a,\n0,5,\n1,6,\n")
    assert cells(found) == {"a": ["5", "6"]}
    assert found.notes == ("left out: column 1, 3 of the file, without a name",)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "expected a header and rows, got an empty file"),
        (b" \n\n", "expected a header and rows, got an empty file"),
        (b"a,b\n", "expected rows below the header, got none"),
        (b"a,b,a\n1,2,3\n", "got 'a' twice"),
        (b",\n1,2\n", "expected a header with column names, got none"),
        (b"a,b\n1,2\n1,2,3\n", "row 3: expected 2 values as in the header, got 3"),
        (b'a,b\n"1\n",2\n1\n', "row 4: expected 2 values as in the header, got 1"),
        (b'a,b\n1,2\n1,"2\n', "row 3: expected quoted CSV fields that end"),
        (b"a,b\n1,\xe9\n", "row 2: expected UTF-8 text, got the byte 0xe9"),
        (b"a,b\r1,2\r3,\xe9\r", "row 3: expected UTF-8 text, got the byte 0xe9"),
        (b"a,b\n1,2\n3,\x00\n", "row 3: expected text, got a zero byte"),
        ("a,b\n".encode("utf-16"), "got UTF-16 text"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"PK\x03\x04", "spreadsheet"),
        (b"PAR1 and no more", "expected a Parquet file, got a damaged one"),
        (b"a\n" + b"x" * 200_000, "row 2"),
    ],
)
def test_a_bad_file_is_refused_with_the_row(tmp_path, data, complaint):
    with pytest.raises(TableError) as caught:
        read(tmp_path, data)
    assert complaint in str(caught.value)
    assert "some.csv" in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="got a folder"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="expected a Parquet file, got something else"):
        read(tmp_path, "a,b\n1,2\n", "some.parquet")
    with pytest.raises(TableError, match="delimiter"):
        read(tmp_path, "a,b\n1,2\n", delimiter=",,")


def test_parquet_and_csv_of_one_frame_read_alike(tmp_path):
    frame = pd.DataFrame(
        {
            "number": [1.5, None, -3.0],
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": ["a", None, "NA"],
            "flag": [True, False, True],
            "category": pd.Categorical(["u", "v", None]),
            "when": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
        }
    )
    frame.to_csv(tmp_path / "some.csv", index=False)
    frame.to_parquet(tmp_path / "other.pq")
    one, other = read_table(tmp_path / "some.csv"), read_table(tmp_path / "other.pq")
    kinds = column_kinds(one, list(one.columns))
    assert kinds == column_kinds(other, list(other.columns))
    assert kinds["when"] == "date"
    schemas = [learn_schema(found, "number", "regression", kinds) for found in (one, other)]
    assert schemas[0] == schemas[1]
    np.testing.assert_array_equal(*(encode(found, schemas[0], silent) for found in (one, other)))


def test_durations_of_a_parquet_file_are_days(tmp_path):
    pd.DataFrame({"a": [1, 2], "wait": pd.to_timedelta(["36:00:00", None])}).to_parquet(tmp_path / "some.parquet")
    found = read_table(tmp_path / "some.parquet")
    np.testing.assert_array_equal(found.columns["wait"], [1.5, np.nan])


def test_the_index_and_lists_of_a_parquet_file_are_left_out(tmp_path):
    pd.DataFrame({"a": [1, 2], "list": [[1], [2]]}, index=["x", "y"]).to_parquet(tmp_path / "some.parquet")
    found = read_table(tmp_path / "some.parquet")
    assert cells(found) == {"a": [1.0, 2.0]}
    assert found.notes == ("left out: column 'list', which holds ndarray, neither numbers nor text",)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "some.parquet")
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from livi.tables import read_table\n"
        f"try: read_table({str(tmp_path / 'some.parquet')!r})\n"
        "except ImportError as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 'pip install "livi[parquet]"' in process.stdout


# --- files ----------------------------------------------------------------------------------------


def test_outputs_are_checked_before_the_work(tmp_path):
    old, folder = tmp_path / "old.csv", tmp_path / "folder"
    old.write_text("old")
    folder.mkdir()
    check_output(tmp_path / "new.csv", inputs=[old])
    check_output(old, force=True)
    for path, options, complaint in (
        (old, {}, "pass --force"),
        (old, {"force": True, "inputs": [str(old)]}, "expected another file"),
        (folder, {"force": True}, "got a folder"),
        (tmp_path / "none" / "new.csv", {}, "create it first"),
    ):
        with pytest.raises(TableError, match=complaint):
            check_output(path, **options)
    link = tmp_path / "link.csv"
    link.symlink_to(old)
    with pytest.raises(TableError, match="expected another file"):
        check_output(link, force=True, inputs=[old])


def test_a_folder_that_cannot_be_written_in_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(TableError, match="expected a folder to write in"):
        check_output(tmp_path / "new.csv")


def test_frames_are_written_as_csv_and_parquet(tmp_path):
    frame = pd.DataFrame({"row": [1, 2], "class": ["é", 'a,"b'], "p": [0.1, 1e-9]})
    for name in ("some.csv", "some.parquet"):
        write_frames(tmp_path / name, [frame])
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "some.csv"), frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "some.parquet"), frame)
    assert b"".join(frames_bytes([frame], ".csv")).count(b"\n") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.csv", "some.parquet"]
