"""All results as one Markdown page: a section for each experiment, its tables, and the commands that repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from livi.experiments import scoreboard
from livi.experiments.images.runtime_text import paper_table as paper_runtimes
from livi.experiments.images.text import OOD_SETS, PAPER, ood_table, paper_table
from livi.experiments.rows import method_of
from livi.experiments.uci.text import text as uci_text
from livi.report.results import Result
from livi.report.titles import titled

TITLE = "# Results"
WORDS = """\
Made by `livi report` from result files. Mean ± standard error over splits or seeds; bold: the best mean of a data set,
and every other within one standard error of it, that of the difference. –: no result. OOD: on out-of-distribution
images; AUROC and FPR95: how well confidence tells those from test images."""
FURTHER = {
    "overview": "NLL of rotated images; shares of OOD and of test images by the entropy of their predictions:",
    "rotation": "The same images, rotated:",
    "corruption": "The same images, corrupted; mean over six corruptions:",
    "entropy": "Share of OOD images by the entropy of their predictions; a curve that rises late is unsure:",
    "correlations": "Correlations between layers, root mean square over pairs of weights; grey: no more than noise:",
    "seconds": "NLL of validation images against seconds of fitting; a ring: long enough:",
}


def page(
    results: Sequence[Result], figures: Mapping[int, str], further: Mapping[int, Mapping[str, str]] | None = None
) -> str:
    """The whole page.

    Args:
        figures: addresses of pictures by the number of the result.
        further: addresses of further pictures of it by what they show.
    """
    parts = [TITLE, WORDS]
    for number, result in enumerate(results):
        parts += section(result, figures.get(number), (further or {}).get(number, {}))
    return "\n\n".join(parts) + "\n"


def section(result: Result, figure: str | None, further: Mapping[str, str]) -> list[str]:
    """Title, commands and machines, figure, tables, further figures, notes."""
    commands = "\n".join(f"    {command}" for command in result.commands)
    parts = [f"## {result.kind.title}", commands, f"On {'; '.join(result.machines)}."]
    parts += [f"![{result.kind.title}]({figure})"] if figure else []
    parts += tables(result)
    for what, address in further.items():
        parts += [FURTHER.get(what, what.capitalize()), f"![{result.kind.title}: {what}]({address})"]
    failed = [
        f"{row[result.kind.place]}, {row['method']}: {(str(row['error']).splitlines() or ['?'])[0]}"
        for row in result.rows
        if row.get("error") is not None
    ]
    present = {f"Left out: {row['method']}." for row in result.sound}  # left out of one of several files only
    notes = [note for note in result.remarks if note not in present]
    notes += [f"Failed: {one}" for one in dict.fromkeys(failed)]
    return [*parts, "\n".join(f"- {note}" for note in notes)] if notes else parts


def tables(result: Result) -> list[str]:
    """The experiment's own tables, or a table for each task; with the paper's numbers where there are some."""
    if result.experiment == "uci":
        return [uci_text({"rows": result.sound, "notes": []}, level=3)]
    found = [table(result, task) for task in result.kind.columns]
    if any(row.get("others") for row in result.sound):
        found += [f"{OOD_SETS}:", ood_table(result.sound, titled)]
    if result.experiment in PAPER:
        found += ["The paper's figures:", paper_table(result.experiment)]
    if result.experiment == "runtime":
        found += ["The paper's figures:", paper_runtimes()]
    return [one for one in found if one]


def table(result: Result, task: str) -> str:
    """A line for each place and method of a task; methods have their titles."""
    kind = result.kind
    rows = [row for row in result.sound if kind.of_task(row) == task]
    return scoreboard.table(
        rows, kind, kind.columns[task], lambda group: (group[0][kind.place], titled(method_of(group[0])))
    )
