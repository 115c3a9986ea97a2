"""Tables of the UCI benchmark as Markdown: like the paper's, with published figures, ranks, and significance tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from livi.experiments.columns import CRPS, RMSE
from livi.experiments.rows import Rows, listed, succeeded, with_names
from livi.experiments.scoreboard import (
    Board,
    Column,
    Kind,
    across,
    best_of,
    decimals,
    differences,
    markdown,
    mean_ranks,
)
from livi.experiments.uci.methods import METHODS, OURS, is_livi
from livi.experiments.uci.published import DROPOUT, FIGURES, PAPER, SETS, Published, figure
from livi.experiments.uci.significance import corrected_difference

LOG_SCORE = Column("log_score", "log likelihood", "higher", 2)
OTHERS = (
    CRPS,
    Column("coverage", "Test targets in 90 % intervals, %", None, 1, percent=True),
    Column("seconds", "Seconds of a run on one core: all fits and predictions", None, 0),
    Column("memory", "MB of a run at the most, PyTorch itself included", None, 0),
)
KIND = Kind(
    "UCI regression sets",
    "data",
    "split",
    {"": (LOG_SCORE,)},
    {"": (RMSE, *OTHERS, Column("noise", "noise"))},
    listed="sets",
)
COMPARED = (OURS, "livi-polished")  # with the rivals
TITLES = {name: method.title for name, method in METHODS.items()}
LEGEND = """\
Mean ± standard error over splits; log likelihood is the mean log density of the test targets in their own units. Bold:
the best mean, and every other within one standard error of it, that of the difference over the splits. Rank: mean over
the sets of the place by the mean, of methods that have them all. (n): of n splits only, too few to compare."""


def text(document: Mapping[str, Any], level: int = 2) -> str:
    """The whole report: notes, log likelihood and RMSE with published figures, tests, and other quantities.

    Args:
        level: of the headings.
    """
    sign = "#" * level
    rows = succeeded(document["rows"])
    failed = [KIND.line(row) for row in document["rows"] if row["error"] is not None]
    parts = [listed([*document["notes"], *failed])]
    if rows:
        parts += [f"{sign} Test log likelihood (higher is better)", table(rows, LOG_SCORE), LEGEND, sources(rows)]
        parts += [f"{sign} Test RMSE (lower is better)", table(rows, RMSE)]
        parts += [f"{sign} LIVI and the best rival", against_rivals(rows)]
        parts += [listed(verdicts(rows, ours)) for ours in COMPARED]
        for column in OTHERS:
            parts += [f"{sign} {column.title}", table(rows, column)]
        parts += [f"{sign} What validation chose", choices(rows)]
    return "\n\n".join(part for part in parts if part)


def table(rows: Rows, column: Column) -> str:
    """A table with a line for each method and a column for each set; published figures come last."""
    boards = _board(rows, column.name)
    lines = across(boards, column, TITLES)
    head = ["", *(f"{name} ({_splits(methods)})" for name, methods in boards.items())]
    if column.better is not None and len(boards) > 1:
        ranks = mean_ranks(boards, column.better)
        named = {TITLES[name]: f"{rank:.1f}" for name, rank in ranks.items()}
        head, lines = [*head, "rank"], [[*cells, named.get(cells[0], "–")] for cells in lines]
    width = len(head)
    for published in FIGURES:
        figures = _figures(published, column.name)
        if figures.keys() & boards.keys():
            cells = [_published(figures.get(name), column) for name in boards]
            lines.append([f"*{published.title}* {_mark(published.source)}", *cells, *([""] * (width - len(cells) - 1))])
    return markdown(head, lines)


def sources(rows: Rows) -> str:
    """A sentence on where the published figures are from."""
    sets = {row["data"] for row in rows}
    cited = dict.fromkeys(published.source for published in FIGURES if published.log_score.keys() & sets)
    return "In italics, as published: " + "; ".join(f"{_mark(source)} {source}" for source in cited) + "."


def against_rivals(rows: Rows) -> str:
    """A table of the log likelihoods of livi minus that of the best other method, set by set."""
    lines = []
    sizes = {row["data"]: (row["train_rows"], row["test_rows"]) for row in rows}
    for name, methods in _board(rows, "log_score").items():
        rivals = {method: values for method, values in methods.items() if not is_livi(method)}
        best, _ = best_of(rivals, "higher")
        for ours in COMPARED:
            found = differences(methods[ours], rivals[best]) if best is not None and ours in methods else []
            if found and best is not None:
                difference = corrected_difference(found, *sizes[name])
                lines.append([name, TITLES[ours], TITLES[best], f"{len(found)}", str(difference)])
    return markdown(["set", "method", "best rival", "splits", "difference"], lines) if lines else ""


def verdicts(rows: Rows, ours: str = OURS) -> list[str]:
    """Sentences on how many sets one of livi's methods is at least as good as each rival and published figure."""
    boards = {name: methods for name, methods in _board(rows, "log_score").items() if ours in methods}
    found = [_at_least(boards, ours, name, f"{TITLES[name]} here") for name in METHODS if not is_livi(name)]
    for published in (figure("MC dropout", DROPOUT), figure("LIVI (L')", PAPER)):
        figures = {name: published.log_score[name][0] for name in boards if name in published.log_score}
        behind = [name for name, value in figures.items() if round(mean(boards[name][ours].values()), 2) < value]
        found.append(_sentence(ours, f"{published.title} as published {_mark(published.source)}", len(figures), behind))
    return [sentence for sentence in found if sentence]


def choices(rows: Rows) -> str:
    """A table of how often each method chose each candidate."""
    lines = []
    for method, title in TITLES.items():
        chosen = [row["chosen"] for row in rows if row["method"] == method]
        counts = {str(candidate): chosen.count(str(candidate)) for candidate in METHODS[method].candidates}
        if chosen:
            lines.append([title, ", ".join(f"{name}: {count}" for name, count in counts.items())])
    return markdown(["method", "runs"], lines)


def _at_least(boards: Board, ours: str, rival: str, title: str) -> str:
    both = {name: differences(methods[ours], methods[rival]) for name, methods in boards.items() if rival in methods}
    compared = {name: found for name, found in both.items() if found}  # with splits that both have
    return _sentence(ours, title, len(compared), [name for name, found in compared.items() if mean(found) < 0.0])


def _sentence(ours: str, rival: str, count: int, behind: Sequence[str]) -> str:
    if not count:
        return ""
    some = f"{count - len(behind)} of {count} sets{with_names('behind on', behind)}"
    return f"{TITLES[ours]}: log likelihood at least that of {rival} on {some}."


def _board(rows: Rows, name: str) -> Board:
    """Sets in the order of the published tables, methods in that of METHODS."""
    found = KIND.board(rows, name)
    ordered = sorted(found, key=SETS.index)
    return {place: {method: found[place][method] for method in METHODS if method in found[place]} for place in ordered}


def _splits(methods: Mapping[str, Mapping[int, float]]) -> str:
    counts = sorted({len(values) for values in methods.values()})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _figures(published: Published, name: str) -> Mapping[str, tuple[float, float | None]]:
    return {"log_score": published.log_score, "rmse": published.rmse}.get(name, {})


def _published(value: tuple[float, float | None] | None, column: Column) -> str:
    if value is None:
        return "–"
    digits = decimals([value[0]], column)
    return f"{value[0]:.{digits}f}" + ("" if value[1] is None else f" ± {value[1]:.{digits}f}")


def _mark(source: str) -> str:
    return f"[{list(dict.fromkeys(published.source for published in FIGURES)).index(source) + 1}]"
