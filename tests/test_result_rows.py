"""Files of results: what is tried again, what is kept, and numbers that are none."""

import json
import math

from livi.experiments.runs import empty_document, run_jobs
from livi.experiments.toy_bench import Config


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
