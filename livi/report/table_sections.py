"""The sections of the report on a table model: words and tables as HTML, and the figures that go with them."""

from __future__ import annotations

from html import escape

import numpy as np

from livi.report import table_figures as draw
from livi.report.elements import (
    LONGEST,
    SEVERITIES,
    clipped,
    explained,
    figure_html,
    findings_list,
    note,
    number,
    panels,
    percent,
    prose,
    table,
)
from livi.report.interactive import MOST_POINTS, Figure, shortened
from livi.report.table_drivers import drivers_section
from livi.report.table_figures import level_text
from livi.report.table_parts import Section
from livi.report.table_plain import LEVEL
from livi.tables.content import ClassificationRows, Content, RegressionRows, UnsureRow
from livi.tables.evaluation import MIN_JUDGED_ROWS

SEVERITY = {"calibrated": "ok", "overconfident": "warning", "underconfident": "notice", "too few rows": "notice"}
REMEDY = "Fit with <code>--validation 0.2</code>, or run <code>livi evaluate</code> on rows that the fit has not seen."
MOST_COLUMNS, MOST_ROWS = 40, 25  # of the table of unsure rows


def sections(content: Content) -> list[Section]:
    """All sections, in the order of the page."""
    return [
        *([drivers_section(content)] if content.drivers else []),
        predictions_section(content),
        calibration_section(content),
        unsure_section(content),
        fit_section(content),
        course_section(content),
        diagnosis_section(content),
    ]


# --- on the rows that were held out ---------------------------------------------------------------


def predictions_section(content: Content) -> Section:
    title, rows = "Predictions against the truth", content.rows
    if rows is None:
        return Section(
            "predictions-section", title, _nothing_held_out(f"there is no truth to compare predictions with. {REMEDY}")
        )
    if isinstance(rows, RegressionRows):
        figure = draw.predictions(rows, content.target, _offered_levels(content, rows), _nearest_level(rows, LEVEL))
        caption = (
            "Each row as a point: the truth across, the prediction upwards, and a line for the interval. An interval "
            "that crosses the dashed diagonal held the truth; those that missed it are orange diamonds. At the level "
            "of 90% about one in ten should. Drag to zoom, double-click to return." + _sampled(len(rows))
        )
        return Section("predictions-section", title, figure_html(figure, caption), [figure])
    figures = [draw.chances(rows), draw.confusion(rows)]
    two = len(rows.classes) == 2
    left = (
        "A useful model separates the two colours; rows near 50% are those it cannot tell."
        if two
        else "Rows on the right gave the true class most of the probability, rows on the left almost none."
    )
    body = panels(
        figures,
        (
            left,
            "Rows by true class (down) and predicted class (across); the darker a cell, the "
            "larger its share of the true class. Right predictions lie on the diagonal.",
        ),
    )
    return Section("predictions-section", title, body + _class_table(rows), figures)


def calibration_section(content: Content) -> Section:
    title, rows = (
        "Can its ranges be trusted?" if content.task == "regression" else "Can its probabilities be trusted?",
        content.rows,
    )
    if rows is None:
        return Section("calibration", title, _nothing_held_out("calibration cannot be checked."))
    words = explained("".join(f"<li>{prose(sentence)}</li>" for sentence in content.verdict))
    words = f"<ul>{words}</ul>" if words else ""
    figures: list[Figure] = []
    if len(rows) < MIN_JUDGED_ROWS:
        count = "one row is" if len(rows) == 1 else f"{len(rows)} rows are"
        drawn = f'<p class="missing">{count.capitalize()} too few to judge calibration; figures begin at '
        drawn += f"{MIN_JUDGED_ROWS} rows, and some hundred make them sharp.</p>"
    elif isinstance(rows, RegressionRows):
        figures = [draw.coverage_curve(rows), draw.pit_histogram(rows)]
        captions = (
            "Of all intervals of a level, that share should hold the truth: the curve should follow the diagonal. "
            "Below it the model is overconfident, above it underconfident. The grey area is where a calibrated model "
            f"lies 95 times in 100, level by level, with {_rows(len(rows))}.",
            "Where the truth fell in the posterior's prediction: 0 far below, 1 far above. Flat is calibrated; high at "
            "both ends is overconfident, a hump underconfident, a slope biased. Bars within the grey area are what "
            "chance does.",
        )
        drawn = panels(figures, captions)
    else:
        figures = [draw.reliability(rows)]
        caption = (
            "Rows grouped by predicted probability: of those given 80%, 80% should come true, so points should lie "
            "on the diagonal. Grey bars show where a calibrated model lies 95 times in 100 with as many rows; the "
            "histogram below, how many rows there are."
        )
        drawn = figure_html(figures[0], caption)
    return Section("calibration", title, words + drawn + _coverage_table(content) + _parts_table(content), figures)


def unsure_section(content: Content) -> Section:
    title, rows = "Where the model is unsure", content.rows
    if rows is None:
        return Section("unsure-section", title, _nothing_held_out("there are no predictions to look at."))
    listed = {row.position: row.row for row in content.unsure[:MOST_ROWS]}
    words = (
        "<p>Uncertainty has two parts. <em>Epistemic</em> uncertainty is about the model: more data like these rows "
        "would take it away. <em>Aleatoric</em> uncertainty is about the target: noise that would remain.</p>"
    )
    if isinstance(rows, RegressionRows):
        place = _nearest_level(rows, LEVEL)
        inside = (rows.lower[place] <= rows.target) & (rows.target <= rows.upper[place])
        cloud = draw.deviations(rows, content.target, inside, listed)
        caption = f"Orange diamonds: the truth was outside the {level_text(rows.levels[place])} interval. "
        if draw.same_noise(rows):
            noise = number(float(rows.aleatoric_std.mean()))
            caption += f"The noise of this model is the same for all rows, a standard deviation of {noise}, so that "
            caption += "only the epistemic part is drawn, against the prediction."
        else:
            caption += "Above the dashed line more data would help more than less noise."
        kept = draw.surest_first(rows.total_std, rows.mean - rows.target, root=True)
        name, direction = "RMSE", "fall"
    else:
        cloud = draw.entropies(rows, listed)
        caption = "Orange diamonds: the predicted class was wrong. High up, the posterior's networks disagree, and "
        caption += "more data like this row would help; far right, they agree that the classes overlap."
        kept = draw.surest_first(rows.entropy, draw.right(rows).astype(np.float64), root=False)
        name, direction = "accuracy", "rise"
    caption += " Rings: the rows in the table below." if listed else ""
    figures, captions = [cloud], [caption + _sampled(len(rows))]
    shares, values = kept
    if len(shares) > 1:  # not all rows are equally uncertain
        figures.append(draw.set_aside(shares, values, f"{name} of the rows kept", share=name == "accuracy"))
        half, say = int(np.abs(shares - 0.5).argmin()), percent if name == "accuracy" else number
        captions.append(
            f"If the model may pass on the rows it is least sure of. From right to left the curve should {direction}: "
            f"then its uncertainty knows where the errors are. Here the {name} of the surest {shares[half]:.0%} is "
            f"{say(float(values[half]))}, of all rows {say(float(values[-1]))}. The far left averages few rows."
        )
    body = panels(figures, captions) if len(figures) == 2 else figure_html(cloud, captions[0])
    return Section("unsure-section", title, words + body + _unsure_table(content, rows), figures)


# --- on the fit -----------------------------------------------------------------------------------


def fit_section(content: Content) -> Section:
    facts = "".join(
        f'<tr><th scope="row" class="words">{prose(name)}</th><td class="words">{prose(value)}</td></tr>\n'
        for name, value in content.facts.items()
    )
    body = f'<table class="facts"><tbody>{facts}</tbody></table>' if facts else ""
    if content.notes:
        body += "<h3>About the data</h3><ul>" + "".join(f"<li>{prose(one)}</li>" for one in content.notes) + "</ul>"
    if content.columns:
        lines = [(clipped(one.name), escape(one.kind), prose(one.note)) for one in content.columns]
        inner = table("the columns of the file", ("column", "kind", "note"), lines, words=(0, 1, 2), captioned=False)
        kinds = [one.kind for one in content.columns]
        counts = ", ".join(f"{kinds.count(kind):,} {kind}" for kind in dict.fromkeys(kinds))
        body += f"<details{' open' if len(lines) <= 12 else ''}><summary>Columns: {counts}</summary>{inner}</details>"
    return Section("fit", "What was fitted", body, kicker="For experts")


def course_section(content: Content) -> Section:
    figures = draw.learning_curves(content.history)
    if not figures:
        return Section("course", "The course of the fit", "<p>No course was recorded.</p>")
    words = (
        "The bound on the log evidence, which the fit maximises, and its three terms (bound = log likelihood + log "
        "prior + entropy), in nats: every logged step (light) and a running mean (dark). The bound should have "
        "levelled off; one that still rises asks for more steps. In the grey part the weight of prior and entropy was "
        "still being raised. The vertical range is that of the second half, widened."
    )
    return Section("course", "The course of the fit", panels(figures, [""] * len(figures)) + note(words), figures)


def diagnosis_section(content: Content) -> Section:
    title, found = "Diagnosis of the posterior", {one.severity for one in content.findings}
    if not found:
        return Section("diagnosis", title, "<p>No diagnosis was made.</p>")
    words = {
        "warning": "The diagnosis of the posterior warns; read the first lines before using the model.",
        "notice": "Nothing wrong was found in the posterior, but there are things to know.",
        "ok": "Nothing to complain of was found in the posterior.",
    }
    worst = words[min(found, key=SEVERITIES.index)]
    lines = findings_list((one.severity, one.topic, one.text) for one in content.findings)
    return Section("diagnosis", title, f"<p>{worst}</p>{lines}")


# --- tables ---------------------------------------------------------------------------------------


def _coverage_table(content: Content) -> str:
    if not content.coverage:
        return ""
    sets = content.task == "classification"
    head = ("level", "held", "expected of a calibrated model", "classes in a set" if sets else "average width", "")
    lines = [
        (
            level_text(one.level),
            percent(one.share),
            f"{percent(one.low)} to {percent(one.high)}",
            number(one.width),
            f'<span class="badge {SEVERITY[one.judgement]}">{escape(one.judgement)}</span>',
        )
        for one in content.coverage
    ]
    about = (
        "Share of targets held by the sets of classes. A set takes whole classes, so it may hold more than its level."
        if sets
        else "Share of targets held by the intervals, and their average width in units of "
        f"{shortened(content.target, LONGEST)}."
    )
    return table(about, head, lines, words=(4,))


def _parts_table(content: Content) -> str:
    """A table of coverage by size of the prediction, and by group."""
    if not content.parts:
        return ""
    lines = [
        (
            clipped(part.name, 2 * LONGEST),  # long enough to tell one fifth from another
            f"{part.rows:,}",
            percent(part.coverage.share),
            f"{percent(part.coverage.low)} to {percent(part.coverage.high)}",
            f'<span class="badge {SEVERITY[part.coverage.judgement]}">{escape(part.coverage.judgement)}</span>',
        )
        for part in content.parts
    ]
    about = "Share of targets held by the 90 % intervals, by size of the prediction and by group."
    return table(about, ("among", "rows", "held", "expected of a calibrated model", ""), lines, words=(0, 4))


def _class_table(rows: ClassificationRows) -> str:
    """A table of scores class by class, for more than two classes."""
    if len(rows.classes) == 2:
        return ""
    predicted = rows.probabilities.argmax(1)
    lines = []
    for place, name in enumerate(rows.classes):
        true, given = rows.target == place, predicted == place
        both = int((true & given).sum())
        found, correct = (percent(both / n) if n else "–" for n in (int(true.sum()), int(given.sum())))
        chance = percent(float(rows.probabilities[true, place].mean())) if true.any() else "–"
        lines.append((clipped(name), f"{int(true.sum()):,}", f"{int(given.sum()):,}", found, correct, chance))
    head = (
        "class",
        "rows",
        "predicted",
        "of its rows found",
        "of predictions right",
        "average probability in its rows",
    )
    inner = table("class by class", head, lines, words=(0,), captioned=False)
    return f"<details{' open' if len(lines) <= 12 else ''}><summary>Class by class</summary>{inner}</details>"


def _unsure_table(content: Content, rows: RegressionRows | ClassificationRows) -> str:
    unsure = content.unsure[:MOST_ROWS]
    if not unsure:
        return ""
    columns = [name for name in unsure[0].values if name != content.target]
    shown = columns[:MOST_COLUMNS]
    if isinstance(rows, RegressionRows):
        head = ["line", "truth", "prediction", f"{level_text(LEVEL)} interval", "epistemic", "aleatoric"]
        cells = [_regression_cells(row, rows) for row in unsure]
    else:
        head = ["line", "truth", "prediction", "its probability", "entropy", "mutual information"]
        cells = [_class_cells(row, rows) for row in unsure]
    lines = [
        (*cell, *(clipped(row.values.get(name, "")) for name in shown)) for cell, row in zip(cells, unsure, strict=True)
    ]
    left = len(columns) - len(shown)
    rank = "most uncertain row" if len(unsure) == 1 else f"{len(unsure)} most uncertain rows"
    about = f"The {rank}, by epistemic uncertainty, with the values in the file"
    about += f"; {left} more columns are left out." if left else "."
    words = (
        range(len(head), len(head) + len(shown))
        if isinstance(rows, RegressionRows)
        else (1, 2, *range(len(head), len(head) + len(shown)))
    )
    headings = head + [clipped(name, 28) for name in shown]
    return "<h3>The most uncertain rows</h3>" + table(about, headings, lines, words=words, wide=True, given=len(head))


def _regression_cells(row: UnsureRow, rows: RegressionRows) -> tuple[str, ...]:
    i, place = row.position, _nearest_level(rows, LEVEL)
    values = (rows.target[i], rows.mean[i], rows.epistemic_std[i], rows.aleatoric_std[i])
    truth, mean, known, noise = (number(float(value)) for value in values)
    interval = f"{number(float(rows.lower[place, i]))} to {number(float(rows.upper[place, i]))}"
    return f"{row.row:,}", truth, mean, interval, known, noise


def _class_cells(row: UnsureRow, rows: ClassificationRows) -> tuple[str, ...]:
    i = row.position
    best = int(rows.probabilities[i].argmax())
    truth, given = (clipped(rows.classes[place], 28) for place in (int(rows.target[i]), best))
    return (
        f"{row.row:,}",
        truth,
        given,
        percent(float(rows.probabilities[i, best])),
        f"{rows.entropy[i]:.3f}",
        f"{rows.mutual_information[i]:.3f}",
    )


def _rows(count: int) -> str:
    return f"{count:,} row" + ("" if count == 1 else "s")


def _sampled(count: int) -> str:
    return f" Shown are {MOST_POINTS:,} of the {count:,} rows, drawn at random." if count > MOST_POINTS else ""


def _nothing_held_out(consequence: str) -> str:
    return f'<p class="missing">No rows were held out, so {consequence}</p>'


def _nearest_level(rows: RegressionRows, level: float) -> int:
    """The number of the level that is nearest to this one."""
    return int(np.abs(rows.levels - level).argmin())


def _offered_levels(content: Content, rows: RegressionRows) -> list[int]:
    """Numbers of the levels that have buttons: those of the coverage table and the one shown first, at most five."""
    wanted = {_nearest_level(rows, one.level) for one in content.coverage[:5]} | {_nearest_level(rows, LEVEL)}
    return sorted(wanted)[-5:]
