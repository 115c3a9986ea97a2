"""A model knows the rows again that it was fitted to, by what says next to nothing of a single one."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from support.small_tables import refuse, silent

from livi.tables.fitting import fit_table
from livi.tables.model import load_model
from livi.tables.options import FitOptions
from livi.tables.seen_rows import SeenRows

BRIEF = FitOptions(steps=5, hidden=(2,))


def rows(count, seed, values=None):
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(count, 4)) if values is None else random.integers(0, values, (count, 4)) + 0.0
    return drawn[:, :3], drawn[:, 3]


@pytest.mark.parametrize("count", [20, 300, 70_000])  # the last are more than are remembered
def test_the_rows_of_a_fit_are_known_again_and_others_are_not(count):
    seen = SeenRows.of(*rows(count, 0))
    assert seen.share_of(*rows(count, 0)) == pytest.approx(1.0)
    assert seen.share_of(*(part[::-1] for part in rows(count, 0))) == pytest.approx(1.0)
    assert seen.share_of(*rows(count, 1)) == 0.0


def test_false_alarms_are_as_rare_as_was_meant():
    seen = SeenRows.of(*rows(300, 0))
    assert sum(seen.share_of(*rows(100, seed)) != 0.0 for seed in range(1, 1001)) <= 4  # 0.23 are expected


def test_the_share_of_known_rows_is_estimated_within_its_error():
    seen = SeenRows.of(*rows(1000, 0))
    mixed = [np.concatenate([one[:300], other[:700]]) for one, other in zip(rows(1000, 0), rows(1000, 1), strict=True)]
    assert abs(seen.share_of(*mixed) - 0.3) < 4 * np.sqrt(0.7 / 1000)  # a filter half full, of 700 others


def test_rows_that_equal_rows_of_the_fit_by_chance_are_no_alarm():
    seen = SeenRows.of(*rows(2000, 0, values=8))  # 4,096 different rows
    assert 0.3 < seen.twins < 0.5
    assert seen.share_of(*rows(2000, 1, values=8)) == 0.0
    assert seen.share_of(*rows(2000, 0, values=8)) == pytest.approx(1.0)
    everywhere = SeenRows.of(*rows(2000, 0, values=2))  # 16 different rows, all of them twins
    assert everywhere.share_of(*rows(2000, 0, values=2)) is None


def test_too_few_rows_are_not_judged():
    assert SeenRows.of(*rows(300, 0)).share_of(*rows(5, 0)) is None


def test_half_of_all_other_rows_look_like_rows_of_the_fit():
    seen = SeenRows.of(*rows(1000, 0))
    filled = np.unpackbits(np.frombuffer(seen.bits, np.uint8), count=seen.size).mean()
    assert 0.45 < filled < 0.55
    assert len(SeenRows.of(*rows(70_000, 0)).bits) < 7_000


def test_what_is_remembered_survives_json_and_what_is_damaged_is_refused():
    seen = SeenRows.of(*rows(100, 0))
    stored = json.loads(json.dumps(seen.to_json()))
    assert SeenRows.from_json(stored) == seen
    assert SeenRows.from_json(None) is None
    for wrong in ({"size": 10**9}, {"rows": 0}, {"twins": 2.0}, {"remembered": float("nan")}, {"bits": "?"}):
        with pytest.raises(ValueError, match=r"cannot be read|base64"):
            SeenRows.from_json(stored | wrong)


def test_a_copy_or_a_part_of_the_file_of_the_fit_is_not_evaluated_without_a_word(houses, tmp_path):
    fit_table(houses, "price", BRIEF, refuse).save(tmp_path / "houses.livi", rowless=True)
    model = load_model(tmp_path / "houses.livi")
    for other, share in ((replace(houses, name="copy"), 80), (replace(houses.rows(slice(0, 60)), name="part"), 80)):
        said = []
        model.evaluate(other, said.append)
        (text,) = [text for text in said if "rows that were fitted to" in text]
        assert abs(int(re.search(r"about (\d+)%", text)[1]) - share) <= 25
    model.evaluate(other_rows(houses), refuse)


def test_where_rows_cannot_be_told_the_name_of_the_file_decides(houses):
    model = fit_table(houses, "price", BRIEF, silent)
    said = []
    model.evaluate(houses.rows(slice(0, 5)), said.append)
    replace(model, seen=None).evaluate(houses, said.append)  # as of files of old
    assert len([text for text in said if "has the name of the file that was fitted" in text]) == 2
    replace(model, seen=None).evaluate(replace(houses, name="other"), refuse)


def other_rows(houses):
    """New rows in a file of the same name."""
    columns = dict(houses.columns)
    columns["price"] = columns["price"] + 1.0
    return replace(houses, columns=columns)
