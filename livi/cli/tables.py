"""The commands `livi fit`, `livi predict` and `livi evaluate`. Notes and progress go to stderr, results to stdout."""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from livi.cli.extras import load
from livi.cli.messages import note, quiet, say, warn
from livi.cli.options import INTERRUPTED, count, duration, page, result, seed, share, widths
from livi.cli.parsing import new_command
from livi.cli.table_options import add_column_options, add_file_options

DATA = """\
Data are CSV files (UTF-8, with a header; the delimiter may be comma, semicolon or tab) or Parquet files.
Missing: empty cells and NA, N/A, NaN, NULL, ?. A missing number is replaced by the median and marked, if the column had
missing values in the fit; otherwise predictions average over 16 typical values of the column. A missing category is a
category of its own. Rows are numbered by their line in the file; the header is line 1.
"""

FIT = f"""\
Fit a posterior over the weights of a network that predicts one column of a table from the others.

{DATA}
Columns are numeric if all values are numbers, dates if all are ISO dates, otherwise categorical. Columns with a single
value, and categorical columns with more than 50 categories (or more than half the number of rows), are dropped with a
note. Rows without a target are left out. The task is classification if the target is text or has at most 10 different
whole numbers.

Ctrl-C ends the fit early and keeps what was learned so far (exit code 130).
"""

FIT_EXAMPLES = """\
examples:
  livi fit houses.csv --target price                                               writes houses.livi
  livi fit houses.csv --target price --drop id,notes --categorical zip --report houses.html
  livi fit churn.parquet --target churned --out churn.livi --task classification --interval conformal
  livi fit houses.csv --target price --out quick.livi --steps 200 --validation 0 --force
  livi fit houses.csv --target price --checkpoint houses.part                      Ctrl-C, and again with --force
"""

PREDICT = f"""\
Predict every row of a table with a model from `livi fit`. Columns of the result: row, and for regression mean,
std_epistemic (the part that more data would reduce), std_total, p05, p50, p95 (quantiles); for classification class,
p_<class> for each class, entropy and mutual_information (its epistemic part), in nats. A conformal model adds lower
and upper of a 90 % interval, or a 90 % set of classes.

{DATA}
A category that the fit has not seen counts as no category, with a warning; --strict makes it an error. A missing
column is an error; extra columns are ignored, and the order does not matter.
"""

PREDICT_EXAMPLES = """\
examples:
  livi predict houses.livi new.csv --out predictions.csv
  livi predict houses.livi new.parquet --out predictions.parquet --keep
  livi predict houses.livi new.csv --out - | head
"""

EVALUATE = f"""\
Compare predictions with the targets of rows that the fit has not seen: errors, log score, and whether the intervals
contain as many targets as they should. The verdict is calibrated, unless the share lies outside the range in which it
is for 95 of 100 calibrated models; then it is overconfident or underconfident. Rows without a target, or of a class
that the fit has not seen, are left out with their count; --strict refuses them.

{DATA}"""

EVALUATE_EXAMPLES = """\
examples:
  livi evaluate houses.livi test.csv
  livi evaluate houses.livi test.csv --json scores.json --report report.html
"""


def add_commands(commands: Any) -> None:
    fit = new_command(
        commands,
        "fit",
        _fit,
        summary="fit a model to a CSV or Parquet file",
        description=FIT,
        epilog=FIT_EXAMPLES,
        allow_abbrev=False,
    )
    fit.add_argument("data", metavar="DATA", help="CSV or Parquet file")
    fit.add_argument("--target", required=True, metavar="COLUMN", help="column to predict")
    fit.add_argument(
        "--out", metavar="MODEL", help="file to write (default: DATA's name with .livi, in the current folder)"
    )
    add_column_options(fit)
    fit.add_argument(
        "--validation",
        type=share,
        default=0.2,
        metavar="SHARE",
        help="share of rows held out to measure how good the model is (default %(default)s; 0 fits to all rows)",
    )
    fit.add_argument("--seed", type=seed, default=0, help="seed of the split and of the fit (default %(default)s)")
    fit.add_argument(
        "--hidden", type=widths, metavar="50,50", help="widths of the hidden layers (default: 50, or by trial)"
    )
    fit.add_argument(
        "--activation",
        choices=("relu", "tanh", "elu", "silu", "gelu"),
        help="activation function (default: silu, or gelu with --noise network)",
    )
    fit.add_argument("--steps", type=count, help="steps of the optimiser (default: by the size of the problem)")
    fit.add_argument(
        "--budget", type=duration, metavar="TIME", help="longest time of a fit: 90 (seconds), '1 min' or '1.5 h'"
    )
    fit.add_argument("--components", type=count, help="mixture components of the posterior (default 1)")
    fit.add_argument(
        "--target-scale",
        choices=("auto", "plain", "log", "count"),
        help="regression: model the target itself (plain), its logarithm (log; if it is positive) or counts (count); "
        "default auto: by trial",
    )
    fit.add_argument(
        "--noise",
        choices=("auto", "constant", "varying", "network", "poisson", "negative-binomial"),
        help="regression: the same noise for all rows (constant), log-linear in the columns (varying), or a second "
        "output of the network, sampled by Markov chains (network); the last two are for counts; default auto: by "
        "trial",
    )
    fit.add_argument(
        "--interval",
        choices=("posterior", "conformal"),
        help="conformal intervals are calibrated on a fifth of the rows (default: posterior)",
    )
    fit.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="save the state of the fit to this file regularly; if it exists, continue from it (with the same data and "
        "options)",
    )
    fit.add_argument(
        "--rowless", action="store_true", help="store no rows of DATA in MODEL, which may contain them otherwise"
    )
    fit.add_argument(
        "--allow-poor",
        action="store_true",
        help="exit code 0 even if the model is worse than predicting the mean (otherwise 3)",
    )
    fit.add_argument("--threads", type=count, help="CPU threads (default: torch's own choice)")
    _add_report(fit)
    add_file_options(fit)

    predict = new_command(
        commands,
        "predict",
        _predict,
        summary="predict the rows of a file",
        description=PREDICT,
        epilog=PREDICT_EXAMPLES,
        allow_abbrev=False,
    )
    predict.add_argument("model", metavar="MODEL", help="file from livi fit")
    predict.add_argument("data", metavar="DATA", help="CSV or Parquet file")
    predict.add_argument("--out", required=True, type=result, metavar="FILE", help=".csv or .parquet, or - for stdout")
    predict.add_argument("--keep", action="store_true", help="also copy the columns of DATA")
    predict.add_argument("--strict", action="store_true", help="refuse what the fit has not seen")
    predict.add_argument(
        "--raw-text",
        action="store_true",
        help="write text to CSV files unchanged, even if a spreadsheet would run it as a formula",
    )
    add_file_options(predict)

    evaluate = new_command(
        commands,
        "evaluate",
        _evaluate,
        summary="compare predictions with targets",
        description=EVALUATE,
        epilog=EVALUATE_EXAMPLES,
        allow_abbrev=False,
    )
    evaluate.add_argument("model", metavar="MODEL", help="file from livi fit")
    evaluate.add_argument("data", metavar="DATA", help="CSV or Parquet file with the target column")
    evaluate.add_argument("--json", metavar="FILE", help="also write the numbers to this file")
    evaluate.add_argument("--strict", action="store_true", help="refuse what the fit has not seen")
    _add_report(evaluate)
    add_file_options(evaluate)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", type=page, metavar="FILE.html", help="write a page with figures and the verdict")


# --- the commands ---------------------------------------------------------------------------------


def _fit(chosen: argparse.Namespace) -> int:
    tables = load("livi.tables")
    chosen.out = f"{Path(chosen.data).stem}.livi" if chosen.out is None else chosen.out
    _check_outputs(chosen, (chosen.out, chosen.report), (chosen.data,))
    if chosen.checkpoint is not None:
        others = [path for path in (chosen.data, chosen.out, chosen.report) if path is not None]
        tables.check_output(chosen.checkpoint, force=True, inputs=others)
    fitting = load("livi.tables.fitting")
    tell = quiet if chosen.quiet else note
    options = load("livi.tables.options").FitOptions(
        task=chosen.task,
        drop=chosen.drop,
        categorical=chosen.categorical,
        use=chosen.use,
        missing=chosen.missing,
        validation=chosen.validation,
        seed=chosen.seed,
        hidden=chosen.hidden,
        activation=chosen.activation,
        steps=chosen.steps,
        budget=chosen.budget,
        components=chosen.components,
        target_scale=chosen.target_scale,
        noise=chosen.noise,
        interval=chosen.interval,
        threads=chosen.threads,
        progress=not chosen.quiet,
        checkpoint=chosen.checkpoint,
        explain=chosen.report is not None,
    )
    table = tables.read_table(chosen.data, delimiter=chosen.delimiter, decimal=chosen.decimal or "point")
    if chosen.checkpoint is not None and Path(chosen.checkpoint).exists():
        tell(f"going on from {chosen.checkpoint}")
    model = fitting.fit_table(table, chosen.target, options, tell)
    written, trouble = tables.save_somewhere(partial(model.save, rowless=chosen.rowless), chosen.out)
    if model.estimator.holds_rows_ and not chosen.rowless:
        tell(f"{written} holds the rows it was fitted to: share it as you would share those; --rowless leaves them out")
    print(_facts(model.facts))
    if model.validation is not None:
        print(f"\n{model.validation}")
    for text in model.warnings():
        print(f"\n{text}")
    print(f"\nwritten: {written}", flush=True)
    if trouble is not None:
        warn(f"{trouble} The fit is not lost, it is in {written}: move it where it belongs.")
        return 1
    _report(chosen.report, model.content(model.validation))
    if model.interrupted:
        warn(f"interrupted {model.interrupted}; {chosen.out} holds what was learned by then. {_how_to_go_on(chosen)}")
        return INTERRUPTED
    code = _judged(chosen, model.validation)
    if code == 0:
        _next(chosen, "livi", "predict", chosen.out, "NEW.csv", "--out", "predictions.csv")
    return code


def _judged(chosen: argparse.Namespace, validation: Any) -> int:
    """The exit code of a fit: 3, with a warning, if the model is worse than predicting the mean."""
    if validation is None or not validation.poor or chosen.allow_poor:
        return 0
    warn(
        f"{chosen.out} was written, but should not be used as it is. {validation.verdict[0]} Add rows or "
        "columns, raise --steps, or see the notes; --allow-poor makes this exit code 0."
    )
    return 3


def _how_to_go_on(chosen: argparse.Namespace) -> str:
    if chosen.checkpoint is None:
        return "With --checkpoint FILE a fit can go on."
    return f"To go on from {chosen.checkpoint}, give the same command with --force."


def _predict(chosen: argparse.Namespace) -> int:
    tables = load("livi.tables")
    to_stdout = chosen.out == "-"
    _check_outputs(chosen, () if to_stdout else (chosen.out,), (chosen.model, chosen.data))
    module = load("livi.tables.model")
    model = module.load_model(chosen.model)
    tell = quiet if chosen.quiet else note
    decimal = chosen.decimal or model.schema.decimal
    parts = tables.read_parts(chosen.data, module.PART_ROWS, delimiter=chosen.delimiter, decimal=decimal)
    first = next(parts)
    monte_carlo = module.MonteCarlo()
    frames = model.predict_parts(
        tables.one_ahead(itertools.chain([first], parts)),
        tell,
        strict=chosen.strict,
        keep=chosen.keep,
        progress=not chosen.quiet,
        monte_carlo=monte_carlo,
    )
    if to_stdout:
        for piece in tables.frames_bytes(frames, ".csv", raw_text=chosen.raw_text):
            sys.stdout.buffer.write(piece)  # in UTF-8, whatever the console's encoding
        sys.stdout.flush()
        return 0
    tables.write_frames(chosen.out, frames, raw_text=chosen.raw_text)
    print(f"written: {chosen.out}, {monte_carlo.rows:,} rows; {monte_carlo}")
    # Suggest the same file if it has targets to compare with, and is not the one of the fit.
    known = model.schema.target in first.columns and not model.was_fitted_to(first.name)
    report = ("--report", "report.html")
    _next(chosen, "livi", "evaluate", chosen.model, chosen.data if known else "TEST.csv", *report)
    return 0


def _evaluate(chosen: argparse.Namespace) -> int:
    tables = load("livi.tables")
    _check_outputs(chosen, (chosen.json, chosen.report), (chosen.model, chosen.data))
    model = load("livi.tables.model").load_model(chosen.model)
    heard: list[str] = []

    def tell(text: str) -> None:
        heard.append(text)
        (quiet if chosen.quiet else note)(text)

    table = tables.read_table(chosen.data, delimiter=chosen.delimiter, decimal=chosen.decimal or model.schema.decimal)
    explain = chosen.report is not None
    evaluation = model.evaluate(table, tell, strict=chosen.strict, progress=not chosen.quiet, explain=explain)
    content = model.content(evaluation, heard, table.name)
    print(evaluation)
    if chosen.json is not None:
        text = json.dumps(content.summary(), indent=2, ensure_ascii=False, allow_nan=False)
        load("livi.posterior.storage").replace_file(chosen.json, [text.encode("utf-8", "backslashreplace"), b"\n"])
        print(f"\nwritten: {chosen.json}")
    _report(chosen.report, content)
    if chosen.report is None:
        _next(chosen, "livi", "evaluate", chosen.model, chosen.data, "--report", "report.html")
    else:
        _next(chosen, "livi", "predict", chosen.model, "NEW.csv", "--out", "predictions.csv")
    return 0


def _check_outputs(chosen: argparse.Namespace, outputs: Iterable[str | None], inputs: Iterable[str]) -> None:
    """Check before any work that the packages are installed and that all outputs can be written."""
    tables = load("livi.tables")
    load("pandas")
    taken = list(inputs)
    for path in outputs:
        if path is not None:
            tables.check_output(path, force=chosen.force, inputs=taken)
            taken.append(path)
            if path.lower().endswith(".parquet"):
                load("pyarrow", "parquet")
    if getattr(chosen, "report", None) is not None:
        load("plotly")


def _report(path: str | None, content: Any) -> None:
    if path is not None:
        load("livi.report.table_page").write_report(path, content)
        print(f"written: {path}")


def _facts(facts: dict[str, str]) -> str:
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in facts.items())


def _next(chosen: argparse.Namespace, *command: str) -> None:
    """Suggest the next command, to copy; file names in capitals are the user's to replace."""
    if not chosen.quiet:
        say(f"next: {shlex.join(command)}")
