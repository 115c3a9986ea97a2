"""Columns in pieces: where they are cut, when they are chosen, and that files and weights know of them."""

import numpy as np
import pytest

from livi import estimators
from livi.tables.estimators import LIVIClassifier, classifier
from livi.tables.estimators.piece_trials import piece_trial_rows
from livi.tables.estimators.pieces import MAX_COLUMN_PIECES, MAX_PIECES, Pieces, affordable
from livi.tables.estimators.trial import Trial

BRIEF = {"hidden": (4,), "steps": 5, "num_samples": 4, "random_state": 0}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=90), rng.integers(0, 2, 90).astype(float), rng.exponential(size=90)], 1)
    return X, (X[:, 0] > 0.5).astype(int)


def test_pieces_hold_about_equally_many_rows_and_binary_columns_have_none(rows):
    X, _ = rows
    pieces = Pieces.of(X, np.ones(90), 3)
    assert pieces.columns.tolist() == [0, 0, 0, 2, 2, 2]
    for low, high, column in zip(pieces.low, pieces.high, pieces.columns, strict=True):
        assert 29 <= ((X[:, column] > low) & (X[:, column] <= high)).sum() <= 30
    assert Pieces.of(X[:, 1:2], np.ones(90), 3) is None


def test_the_pieces_of_a_column_add_up_to_a_function_of_it_that_is_linear_between_their_ends(rows):
    X, _ = rows
    pieces = Pieces.of(X, np.ones(90), 3)
    new = np.linspace(X[:, 0].min() - 1, X[:, 0].max() + 1, 50)[:, None] * np.ones(3)
    shares = pieces.scaling.shift + pieces.scaling.scale * pieces.inputs(new)
    mine = pieces.columns == 0
    rebuilt = pieces.low[0] + shares[:, mine] @ (pieces.high - pieces.low)[mine]
    np.testing.assert_allclose(rebuilt, np.clip(new[:, 0], pieces.low[0], pieces.high[2]))


def test_a_row_of_weight_two_is_cut_as_two_rows_are(rows):
    X, _ = rows
    weights = np.where(np.arange(90) < 30, 2.0, 1.0)
    twice = np.concatenate([X, X[:30]])
    for one, other in zip(Pieces.of(X, weights, 4)[:3], Pieces.of(twice, np.ones(120), 4)[:3], strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_columns_have_few_pieces_each():
    values = np.random.default_rng(0).normal(size=(5, 100))
    assert affordable(values[:, :2]) == MAX_COLUMN_PIECES
    assert affordable(values) == MAX_PIECES // 100
    assert affordable(np.zeros((5, 3))) == MAX_COLUMN_PIECES


def test_a_file_answers_as_the_estimator_with_pieces_that_it_is_of(rows, tmp_path):
    X, y = rows
    model = LIVIClassifier(pieces=3, **BRIEF).fit(X, y)
    assert model.posterior_.layout.slots[0].shape == (4, 3 + 6)
    model.save(tmp_path / "model.livi")
    again = estimators.load(tmp_path / "model.livi")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.trials_ == model.trials_ == []


def test_the_relevance_of_a_column_counts_its_pieces(rows):
    X, y = rows
    model = LIVIClassifier(pieces=3, prior_scale="learned", **BRIEF).fit(X, y)
    scales = model.posterior_.prior.log_scale.exp()[:9].detach().numpy()
    squares = np.square(scales)
    expected = np.sqrt([squares[0] + squares[3:6].sum(), squares[1], squares[2] + squares[6:].sum()])
    np.testing.assert_allclose(model.relevance_, expected / expected.max(), rtol=1e-6)


def test_few_rows_have_no_trial_and_no_pieces(rows):
    model = LIVIClassifier(**BRIEF).fit(*rows)
    assert model.trials_ == []
    assert model.pieces_ is None


def test_many_rows_are_cut_where_that_is_better(rows, monkeypatch, tmp_path):
    X, _ = rows
    monkeypatch.setattr(classifier, "FULL_BATCH", 50)
    monkeypatch.setattr(classifier, "TRIAL_STEPS", 100)
    X = np.concatenate([X, -X, 2 * X, X + 0.1])
    stripes = (np.floor(4 * X[:, 0]) % 2).astype(int)  # thresholds, and many of them
    model = LIVIClassifier(**{**BRIEF, "steps": None, "budget": 0.5}).fit(X, stripes)
    plain, cut = model.trials_
    assert (plain.pieces, cut.pieces) == (0, MAX_COLUMN_PIECES)
    assert (model.pieces_ is not None) == (cut.log_score > plain.log_score)
    assert cut.log_score > plain.log_score
    model.save(tmp_path / "model.livi")
    assert estimators.load(tmp_path / "model.livi").trials_ == model.trials_


def test_the_trial_with_the_better_score_decides(rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr(classifier, "FULL_BATCH", 50)
    seen = []

    def score(inputs, *_, **options):
        seen.append((inputs.shape[1], options["steps"]))
        return -0.1 * inputs.shape[1]

    monkeypatch.setattr(classifier, "map_score", score)
    model = LIVIClassifier(**BRIEF).fit(X, y)
    assert [trial.pieces for trial in model.trials_] == [0, MAX_COLUMN_PIECES]
    assert seen == [(3, 5), (3 + 2 * MAX_COLUMN_PIECES, 5)]  # no more steps than the user asks for
    assert model.pieces_ is None
    assert model.trials_[0] == Trial(0, pytest.approx(-0.3))


@pytest.mark.parametrize("pieces", [1, -2, 2.5, True, "many", MAX_PIECES + 1])
def test_numbers_of_pieces_that_make_no_sense_are_refused(pieces, rows):
    with pytest.raises(ValueError, match="pieces: expected 0, 2 to 512 or 'auto', got"):
        LIVIClassifier(pieces=pieces, **BRIEF).fit(*rows)


def test_rows_that_count_much_are_fitted_to_and_scored_alike():
    weights = np.where(np.arange(3000) < 500, 100.0, 1.0)
    fitted, scored = piece_trial_rows(weights, 0)
    assert (len(fitted), len(scored)) == (2250, 750)
    assert not set(fitted) & set(scored)
    shares = [float((weights[rows] > 1.0).mean()) for rows in (fitted, scored)]
    assert shares == pytest.approx([500 / 525, 500 / 525], abs=0.02)
    alike = piece_trial_rows(np.full(3000, 7.0), 0)
    assert sorted(np.concatenate(alike)) == list(range(3000))
