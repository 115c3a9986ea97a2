"""Files of results: what is tried again, what is kept, and numbers that are none."""

import json
import math
import warnings
from functools import partial
from types import SimpleNamespace

import pytest

from livi.experiments.deadlines import OutOfTime
from livi.experiments.runs import empty_document, recorded_fit, run_jobs
from livi.experiments.toy_bench import Config
from livi.inference import FitWarning
from livi.posterior.interruption import completed, interrupted


def run(path, wanted, fit):
    return run_jobs(
        path,
        empty_document("toy", Config()),
        wanted,
        fit,
        key=lambda row: row["job"],
        notes=[],
        jobs=1,
        summary=lambda rows: [{"count": len(rows)}],
        line=lambda row: str(row["job"]),
        say=lambda _: None,
    )


def test_a_failure_is_tried_again_where_it_is_wanted_and_kept_where_it_is_not(tmp_path):
    path, tried = tmp_path / "rows.json", []

    def fit(job):
        tried.append(job)
        return {"job": job, "error": "no luck" if job == "a" and tried.count("a") == 1 else None}

    run(path, ["a"], fit)
    kept = run(path, ["b"], fit)["rows"]
    assert [(row["job"], row["error"]) for row in kept] == [("b", None), ("a", "no luck")]
    again = run(path, ["a", "b"], fit)["rows"]
    assert [(row["job"], row["error"]) for row in again] == [("a", None), ("b", None)]
    assert tried == ["a", "b", "a"]


def test_numbers_that_are_none_are_a_failure_and_the_other_fits_go_on(tmp_path):
    path = tmp_path / "rows.json"
    scores = {"a": {"nll": math.nan, "curve": [1.0, math.inf], "seconds": 2.0}, "b": {"nll": 0.5, "seconds": 1.0}}
    run(path, ["a", "b"], lambda job: {"job": job, "error": None} | scores[job])
    first, second = json.loads(path.read_text())["rows"]
    assert first["error"] == "ArithmeticError: expected finite numbers, got none for nll, curve."
    assert (first["nll"], first["curve"], first["seconds"]) == (None, None, 2.0)
    assert second == {"job": "b", "error": None, "nll": 0.5, "seconds": 1.0}


def test_a_fit_is_a_row_with_its_warnings_whether_it_ends_or_fails():
    def fit(end):
        for _ in range(2):
            warnings.warn("too wide", FitWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return {"nll": end()}

    row = recorded_fit({"method": "map"}, ("nll", "ece"), partial(fit, lambda: 0.5))
    assert row | {"whole_seconds": 0.0} == {
        "method": "map",
        "nll": 0.5,
        "ece": None,
        "whole_seconds": 0.0,
        "warnings": ["FitWarning: too wide"],
        "error": None,
    }
    failed = recorded_fit({"method": "map"}, ("nll", "ece"), partial(fit, lambda: [][0]))
    assert (failed["nll"], failed["warnings"]) == (None, ["FitWarning: too wide"])
    assert failed["error"] == "IndexError: list index out of range"


@pytest.mark.parametrize("stop", [OutOfTime, KeyboardInterrupt])
def test_what_stops_a_fit_is_no_failure(stop):
    def fit():
        raise stop

    with pytest.raises(stop):
        recorded_fit({}, (), fit)


def test_an_interrupted_fit_is_no_result():
    whole, stopped = (SimpleNamespace(plan=plan) for plan in ({"interrupted_at": None}, {"interrupted_at": 0}))
    assert completed(whole) is whole
    assert completed(SimpleNamespace(plan={}))
    assert interrupted(stopped)
    with pytest.raises(KeyboardInterrupt):
        completed(stopped)


def test_a_fit_that_runs_out_of_time_leaves_its_job_to_the_next_run(tmp_path):
    def fit(job):
        if job == "b":
            raise OutOfTime
        return {"job": job, "error": None}

    assert [row["job"] for row in run(tmp_path / "rows.json", ["a", "b", "c"], fit)["rows"]] == ["a", "c"]
