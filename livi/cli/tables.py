"""The commands on tables: fit, predict, evaluate. Notes and progress go to stderr, results to stdout."""

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
from livi.cli.options import INTERRUPTED, count, delimiter, duration, names, page, result, seed, share, widths

DATA = """\
Data are CSV files (UTF-8, a header; the delimiter is found among comma, semicolon and tab) or Parquet files.
Missing: empty cells and NA, N/A, NaN, NULL, ?. A missing number is replaced by the median and marked, if the fit saw
missing ones in that column; if it saw none, predictions average over 16 typical values of it. A missing category is a
category. Rows are numbered as lines of the file, the header being line 1.
"""

FIT = f"""\
Fit a posterior over the weights of a network that predicts one column of a table from the others.

{DATA}
Columns are numeric if all values are numbers, dates if all are ISO dates, else categorical; those with one value, and
categorical ones with more than 50 (or half as many as rows), are dropped with a note. Rows without a target are left
out. The task is classification if the target is text or holds at most 10 different whole numbers.

Ctrl-C ends the fit early and keeps what was learned by then (exit code 130).
"""

FIT_EXAMPLES = """\
examples:
  livi fit houses.csv --target price --out houses.livi
  livi fit houses.csv --target price --out houses.livi --drop id,notes --categorical zip --report houses.html
  livi fit churn.parquet --target churned --out churn.livi --task classification --interval conformal
  livi fit houses.csv --target price --out quick.livi --steps 200 --validation 0 --force
  livi fit houses.csv --target price --out houses.livi --checkpoint houses.part     Ctrl-C, and again with --force
"""

PREDICT = f"""\
Predict every row of a table with a model from `livi fit`. Columns of the result: row, and for regression mean,
std_epistemic (what more data would take away), std_total, p05, p50, p95 (quantiles); for classification class,
p_<class> for each class, entropy and mutual_information (its epistemic part), in nats. A conformal model adds lower
and upper of a 90 % interval, or a 90 % set of classes.

{DATA}
A category that the fit has not seen counts as none, with a warning; --strict makes it an error. A missing column is an
error, extra ones are ignored, their order does not matter.
"""

PREDICT_EXAMPLES = """\
examples:
  livi predict houses.livi new.csv --out predictions.csv
  livi predict houses.livi new.parquet --out predictions.parquet --keep
  livi predict houses.livi new.csv --out - | head
"""

EVALUATE = f"""\
Compare predictions with the targets of rows that the fit has not seen: errors, log score, and whether the intervals
hold as many targets as they should (calibrated, overconfident or underconfident: beyond what 95 of 100 calibrated
models show).

{DATA}"""

EVALUATE_EXAMPLES = """\
examples:
  livi evaluate houses.livi test.csv
  livi evaluate houses.livi test.csv --json scores.json --report report.html
"""


def add_commands(commands: Any) -> None:
    """Add fit, predict and evaluate to the parsers of the command line."""
    fit = _command(commands, "fit", "fit a model to a CSV or Parquet file", FIT, FIT_EXAMPLES)
    fit.set_defaults(command=_fit)
    fit.add_argument("data", metavar="DATA", help="CSV or Parquet file")
    fit.add_argument("--target", required=True, metavar="COLUMN", help="what to predict")
    fit.add_argument("--out", required=True, metavar="MODEL", help="file to write, such as houses.livi")
    fit.add_argument("--task", choices=("regression", "classification"), help="default: by the target")
    fit.add_argument(
        "--drop", type=names, default=(), metavar="A,B", help="columns to leave out; quote names with commas"
    )
    fit.add_argument("--use", type=names, default=(), metavar="A,B", help="columns to read that look like row numbers")
    fit.add_argument(
        "--categorical", type=names, default=(), metavar="A,B", help="columns of numbers that are codes of categories"
    )
    fit.add_argument(
        "--missing",
        type=names,
        default=(),
        metavar="WORDS",
        help="further words that mean missing, such as unknown,n.v. (kept in the model)",
    )
    fit.add_argument(
        "--validation",
        type=share,
        default=0.2,
        metavar="SHARE",
        help="held out, only to report how good the model is (default %(default)s; 0 fits to all rows)",
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
        "--budget", type=duration, metavar="TIME", help="longest time to fit, such as 90 (seconds), '1 min' or '1.5 h'"
    )
    fit.add_argument("--components", type=count, help="mixture components of the posterior (default 1)")
    fit.add_argument(
        "--target-scale",
        choices=("auto", "plain", "log", "count"),
        help="regression: model the target, its logarithm (if positive) or counts (default auto: by trial)",
    )
    fit.add_argument(
        "--noise",
        choices=("auto", "constant", "varying", "network", "poisson", "negative-binomial"),
        help="regression: the same noise for all rows (constant), log-linear in the columns (varying), or by a network "
        "that gives mean and noise and is sampled by Markov chains (network); the last two are for counts "
        "(default auto: by trial)",
    )
    fit.add_argument(
        "--interval", choices=("posterior", "conformal"), help="conformal: calibrated on a fifth of the rows"
    )
    fit.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="write the fit there now and then; where the file exists, go on from it (with the same data and options)",
    )
    fit.add_argument(
        "--rowless", action="store_true", help="store no rows of DATA in MODEL (it may hold them otherwise)"
    )
    fit.add_argument(
        "--allow-poor",
        action="store_true",
        help="exit code 0 even if the model is worse than predicting the mean (otherwise 3)",
    )
    fit.add_argument("--threads", type=count, help="CPU threads (default: torch's own choice)")
    _shared(fit)

    predict = _command(commands, "predict", "predict the rows of a file", PREDICT, PREDICT_EXAMPLES)
    predict.set_defaults(command=_predict)
    predict.add_argument("model", metavar="MODEL", help="file from livi fit")
    predict.add_argument("data", metavar="DATA", help="CSV or Parquet file")
    predict.add_argument("--out", required=True, type=result, metavar="FILE", help=".csv, .parquet, or - for stdout")
    predict.add_argument("--keep", action="store_true", help="copy the columns of DATA too")
    predict.add_argument("--strict", action="store_true", help="refuse what the fit has not seen")
    predict.add_argument(
        "--raw-text",
        action="store_true",
        help="leave text in CSV files as it is, even if a spreadsheet would run it as a formula",
    )
    _shared(predict, report=False)

    evaluate = _command(commands, "evaluate", "compare predictions with targets", EVALUATE, EVALUATE_EXAMPLES)
    evaluate.set_defaults(command=_evaluate)
    evaluate.add_argument("model", metavar="MODEL", help="file from livi fit")
    evaluate.add_argument("data", metavar="DATA", help="CSV or Parquet file with the target column")
    evaluate.add_argument("--json", metavar="FILE", help="write the numbers there too")
    evaluate.add_argument("--strict", action="store_true", help="refuse what the fit has not seen")
    _shared(evaluate)


def _command(commands: Any, name: str, help: str, description: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def _shared(parser: argparse.ArgumentParser, *, report: bool = True) -> None:
    if report:
        parser.add_argument(
            "--report", type=page, metavar="FILE.html", help="write a page with figures and the verdict"
        )
    parser.add_argument(
        "--delimiter", type=delimiter, help="separator in CSV files; 'tab' for a tab (default: by the header)"
    )
    parser.add_argument(
        "--decimal",
        choices=("point", "comma"),
        help="decimal separator in CSV files (default: point, or as in the fit)",
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument("--quiet", action="store_true", help="no progress and no notes on stderr")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show an error's traceback")


# --- the commands ---------------------------------------------------------------------------------


def _fit(chosen: argparse.Namespace) -> int:
    tables = load("livi.tables")
    _check_outputs(chosen, (chosen.out, chosen.report), (chosen.data,))
    if chosen.checkpoint is not None:
        others = [path for path in (chosen.data, chosen.out, chosen.report) if path is not None]
        tables.check_output(chosen.checkpoint, force=True, inputs=others)
    fitting = load("livi.tables.fitting")
    say = _quiet if chosen.quiet else _note
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
        say(f"going on from {chosen.checkpoint}")
    model = fitting.fit_table(table, chosen.target, options, say)
    written, trouble = tables.save_somewhere(partial(model.save, rowless=chosen.rowless), chosen.out)
    if model.estimator.holds_rows_ and not chosen.rowless:
        say(f"{written} holds the rows it was fitted to: share it as you would share those; --rowless leaves them out")
    print(_facts(model.facts))
    if model.validation is not None:
        print(f"\n{model.validation}")
    for text in model.warnings():
        print(f"\n{text}")
    print(f"\nwritten: {written}", flush=True)
    if trouble is not None:
        _warn(f"{trouble} The fit is not lost, it is in {written}: move it where it belongs.")
        return 1
    _report(chosen.report, model.content(model.validation))
    if model.interrupted:
        _warn(f"interrupted {model.interrupted}; {chosen.out} holds what was learned by then. {_how_to_go_on(chosen)}")
        return INTERRUPTED
    code = _judged(chosen, model.validation)
    if code == 0:
        _next(chosen, "livi", "predict", chosen.out, "NEW.csv", "--out", "predictions.csv")
    return code


def _judged(chosen: argparse.Namespace, validation: Any) -> int:
    """The exit code of a fit, 3 if it is worse than a guess."""
    if validation is None or not validation.poor or chosen.allow_poor:
        return 0
    text = (
        f"livi: {chosen.out} was written, but should not be used as it is. {validation.verdict[0]} Add rows or "
        "columns, raise --steps, or see the notes; --allow-poor makes this exit code 0."
    )
    print(text, file=sys.stderr)
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
    say = _quiet if chosen.quiet else _note
    decimal = chosen.decimal or model.schema.decimal
    parts = tables.read_parts(chosen.data, module.PART, delimiter=chosen.delimiter, decimal=decimal)
    first = next(parts)
    monte_carlo = module.MonteCarlo()
    frames = model.predict_parts(
        tables.one_ahead(itertools.chain([first], parts)),
        say,
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
    known = model.schema.target in first.columns and not model.was_fitted_to(first.name)  # answers to compare with
    report = ("--report", "report.html")
    _next(chosen, "livi", "evaluate", chosen.model, chosen.data if known else "TEST.csv", *report)
    return 0


def _evaluate(chosen: argparse.Namespace) -> int:
    tables = load("livi.tables")
    _check_outputs(chosen, (chosen.json, chosen.report), (chosen.model, chosen.data))
    model = load("livi.tables.model").load_model(chosen.model)
    heard: list[str] = []

    def say(text: str) -> None:
        heard.append(text)
        (_quiet if chosen.quiet else _note)(text)

    table = tables.read_table(chosen.data, delimiter=chosen.delimiter, decimal=chosen.decimal or model.schema.decimal)
    explain = chosen.report is not None
    evaluation = model.evaluate(table, say, strict=chosen.strict, progress=not chosen.quiet, explain=explain)
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
    """Before any work: is everything there, and can all be written that is to be written?"""
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
    """What to do now, as a command to copy; words in capitals are the user's to replace."""
    if not chosen.quiet:
        print(f"next: {shlex.join(command)}", file=sys.stderr, flush=True)


def _warn(text: str) -> None:
    print(f"livi: {text}", file=sys.stderr, flush=True)


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _quiet(_: str) -> None:
    pass
