"""The page of `livi demo`: one HTML file that needs nothing else. Its sentences about results are made from numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from livi.report.demo_figures import TITLES
from livi.report.elements import findings_list, prose
from livi.report.still_page import picture, still_page

Document = Mapping[str, Any]

PROBLEMS = {
    "A": "y = sin(1.2 x) + 0.3 ε, with 35 points on [−4, −2] and 35 on [2, 4]",
    "B": "y = x + 0.8 sin(2πx) + 0.8 sin(4πx) + 0.3 ε, with 38 points on the left and 32 on the right, x scaled to at "
    "most 1: the function of the paper's Figure 1",
}

MEANINGLESS = (
    "This is a quick run: a few steps instead of a fit. It shows that everything works; its numbers and pictures mean "
    "nothing."
)

STYLE = """
.quick { border-left: 4px solid #d55e00; background: #fdf3ec; padding: 10px 16px; margin-bottom: 24px; font-weight: 600;
  position: sticky; top: 0 }
@media (max-width: 680px) { td { white-space: nowrap } }
th:first-child, td:first-child { text-align: left }
tr.reference td { border-top: 0.75px solid #c9c9cc; color: #55555a }
pre { background: #f6f6f7; padding: 14px 16px; border-radius: 6px; overflow-x: auto; font: 14px/1.5 ui-monospace,
  SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
"""


def table(document: Document) -> str:
    """The numbers of every method, aligned for a terminal."""
    rows = [HEADINGS, *cells(document)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


HEADINGS = ("method", "bound, nats", "W2 to NUTS", "std in the gap", "share of NUTS's", "seconds (CPU)")


def cells(document: Document) -> Iterator[tuple[str, ...]]:
    gap = document["methods"]["nuts"]["gap_std"]
    for method, row in document["methods"].items():
        nuts = method == "nuts"
        yield (
            TITLES[method],
            "–" if row["elbo"] is None else f"{row['elbo']:.1f} ± {row['elbo_standard_error']:.1f}",
            f"{row['w2_to_nuts']:.3f}" + (" (itself)" if nuts else ""),
            f"{row['gap_std']:.2f}",
            "" if nuts else f"{row['gap_std'] / gap:.0%}",
            _seconds(row),
        )


def _seconds(row: Document) -> str:
    if row["seconds"] is None:
        return "–"
    return f"{row['seconds']:.0f}" + (f" ({row['cpu_seconds']:.0f})" if "cpu_seconds" in row else "")


def page(document: Document, images: Mapping[str, bytes]) -> str:
    """The whole page; images are PNG files."""
    config = document["config"]
    quick = f'<p class="quick">{MEANINGLESS}</p>' if config["quick"] else ""
    body = f"""
{quick}
<h1>What does a network know where it has seen nothing?</h1>
<p class="lede">Seventy points in two clusters, and a gap between them. Many networks fit the points equally well and
disagree in the gap; a posterior over the weights should say so. Here are three approximations to that posterior, fitted
afresh by this run, beside Hamiltonian Monte Carlo (NUTS), which a network this small can afford and whose own
error is given below.</p>
{picture(images["bands"], "bands", _bands_caption(document))}
<h2>What this run shows</h2>
{_table(document)}
<ul>{_items([MEANINGLESS] if config["quick"] else findings(document))}</ul>
<h2>How far to trust the reference</h2>
<p>{prose(trust(document))}</p>
<h2>Inside the LIVI posterior</h2>
<p>{prose(_inside(document))}</p>
{picture(images["densities"], "marginal densities of six weights", DENSITIES_CAPTION)}
{picture(images["correlation"], "correlations of weights within and across layers", CORRELATION_CAPTION)}
{picture(images["course"], "the bound and its terms over the steps of the fit", COURSE_CAPTION)}
<h2>Its own diagnosis</h2>
<p>{prose(_severity(document))}</p>
{findings_list(_diagnosed(document))}
<h2>Do it again</h2>
<pre>{escape(_command(config))}</pre>
<p class="note">{escape(_colophon(document))}</p>
"""
    suffix = ", a quick run that means nothing" if config["quick"] else ""
    return still_page(f"livi demo: data set {config['data']}, seed {config['seed']}{suffix}", body, STYLE)


DENSITIES_CAPTION = (
    "Marginal densities of the six of 105 weights that come nearest to two modes under LIVI (by Sarle's coefficient), "
    "not of typical ones. Green ticks are the members of the ensemble. NUTS is missing here: swapping hidden units "
    "leaves the function as it is, so that a single weight means different things in different chains, as it does in "
    "the members of the ensemble, and the reference keeps functions only."
)
CORRELATION_CAPTION = (
    "Correlations under the LIVI posterior of the weights before the last layer: left, every pair of weights; right, "
    "root mean squares over the pairs of two layers, freed of the noise of finite samples. Under mean field all of "
    "them are zero by construction."
)
COURSE_CAPTION = (
    "The bound on the log evidence and its three terms during the fit, in nats. In the grey part the KL term was still "
    "being warmed up, so that the fit did not yet maximise the bound shown."
)


def findings(document: Document) -> Iterator[str]:
    """Sentences on the numbers of this run, worded by how they compare."""
    methods, nuts = document["methods"], document["methods"]["nuts"]
    yield _on_bounds(methods["livi"], methods["mean_field"], document["diagnosis"]["density"])
    order = sorted((name for name in methods if name != "nuts"), key=lambda name: float(methods[name]["w2_to_nuts"]))
    distances = ", ".join(f"{TITLES[name]} ({methods[name]['w2_to_nuts']:.3f})" for name in order)
    nearest, floor = methods[order[0]]["w2_to_nuts"], nuts["w2_to_nuts"]
    yield (
        f"Distance to NUTS, the 2-Wasserstein distance between the distributions of f(x) averaged over 25 places, from "
        f"nearest to farthest: {distances}. Two runs of NUTS are {floor:.3f} apart, so even the nearest is "
        f"{nearest / floor:.0f} times as far as another run of NUTS would be."
        + _close_call(order, methods, document["reference"]["w2_chains"])
    )
    gap = nuts["gap_std"]
    shares = ", ".join(f"{TITLES[name]} ({methods[name]['gap_std'] / gap:.0%})" for name in methods if name != "nuts")
    narrow = [TITLES[name] for name in methods if name != "nuts" and methods[name]["gap_std"] < 0.9 * gap]
    wide = [TITLES[name] for name in methods if name != "nuts" and methods[name]["gap_std"] > 1.1 * gap]
    yield (
        f"In the gap, NUTS's standard deviation of f is {gap:.2f} on average. Of that the others have: {shares}."
        + (f" Too sure of themselves by more than a tenth: {_and(narrow)}." if narrow else "")
        + (f" Too unsure by more than a tenth: {_and(wide)}." if wide else "")
    )
    for name in methods:
        for warning in methods[name].get("warnings", ()):
            yield f"The fit of {TITLES[name]} warned: {warning}"
    yield (
        f"This is one seed on one data set, and another seed may change an order. For the spread over seeds, full-rank "
        f"Gaussians and mixtures of LIVI, run `livi bench toy --data {document['config']['data']}`."
    )


def _on_bounds(livi: Document, mean_field: Document, density: Document | None) -> str:
    difference = livi["elbo"] - mean_field["elbo"]
    error = (livi["elbo_standard_error"] ** 2 + mean_field["elbo_standard_error"] ** 2) ** 0.5
    direction = "above" if difference > 0 else "below"
    text = (
        f"LIVI's bound on the log evidence lies {abs(difference):.1f} ± {error:.1f} nats {direction} mean field's, "
        f"from MAP starts of the same recipe and as many steps ({livi['recipe']['steps']:,})."
    )
    if abs(difference) < 3.0 * error:
        text += " That is within its error."
    gap = density["gap"] if density else None
    if gap and gap["value"] is not None and gap["standard_error"] is not None:
        if gap["value"] > 3.0 * gap["standard_error"] and gap["value"] > 0.1:
            text += (
                f" Of LIVI's number, about {gap['value']:.1f} ± {gap['standard_error']:.1f} nats are no bound but an "
                "error of the linearised entropy (see the diagnosis)"
                + (
                    "; the difference is larger than that."
                    if difference > gap["value"]
                    else ", more than the difference."
                )
            )
        else:
            text += (
                f" The linearised entropy behind LIVI's number is off by {gap['value']:+.3f} ± "
                f"{gap['standard_error']:.3f} nats, as far as importance sampling can tell."
            )
    return text


def _close_call(order: list[str], methods: Mapping[str, Any], resolution: float) -> str:
    first, second = (methods[name]["w2_to_nuts"] for name in order[:2])
    if second - first >= resolution:
        return ""
    return (
        f" The first two differ by {second - first:.3f}, less than the {resolution:.3f} that a single chain of NUTS "
        "differs from the others: too close to call."
    )


def _inside(document: Document) -> str:
    found = document["diagnosis"]
    text = (
        "LIVI draws the weights before the last layer as θ = g(z) + noise, where g is a neural network, so that "
        "nothing makes them Gaussian or independent, and the last layer from its exact posterior given them, which is "
        "why much of the freedom that is left looks like the prior's. What the fit made of it:"
    )
    text += (
        f" {found['multimodal'] or 'none'} of the {found['examined']} weights and principal directions examined show "
        "more than one significant mode;"
    )
    return text + (
        f" the correlation between weights of different layers is {found['across']:.2f} (root mean square), where "
        f"independent layers would show about {found['across_noise']:.2f}; the strongest between any two weights is "
        f"{found['strongest']['value']:+.2f}, between {found['strongest']['weights'][0]} and "
        f"{found['strongest']['weights'][1]}."
    )


def trust(document: Document) -> str:
    """Sentences on how reliable the NUTS reference is."""
    facts = document["reference"]
    rhat = facts["rhat_largest"]
    mixed = (
        "the chains agree, and distances well above the first number mean something."
        if rhat < 1.01
        else f"the chains have not quite mixed (1.01 is the usual limit), so differences of about "
        f"{facts['w2_chains']:.2f} mean nothing."
    )
    return (
        f"NUTS is an estimate too. Its two independent runs are {facts['w2_runs']:.3f} apart in the same distance, a "
        f"single chain and all others {facts['w2_chains']:.3f}. Over the 25 places the largest split R-hat of f is "
        f"{rhat:.3f} and the smallest effective sample size {facts['ess_smallest']:,.0f}, with "
        f"{facts['divergences']:,} divergences: {mixed} The reference was computed beforehand and comes with "
        "the package."
    )


def _severity(document: Document) -> str:
    words = {
        "ok": "`posterior.diagnose` found nothing to complain of.",
        "notice": "`posterior.diagnose` found nothing wrong, but things to know.",
        "warning": "`posterior.diagnose` warns.",
    }
    return (
        f"{words[document['diagnosis']['severity']]} The entropy is that of {document['diagnosis']['estimator']}; "
        "lines on other log-determinants say what the estimators for larger networks would be worth here."
    )


def _diagnosed(document: Document) -> Iterator[tuple[str, str, str]]:
    for one in document["diagnosis"]["findings"]:
        yield one["severity"], one["topic"], one["text"]


def _bands_caption(document: Document) -> str:
    return (
        f"Data set {document['config']['data']}: {PROBLEMS[document['config']['data']]}. A 1-7-10-1 network with ELU, "
        "105 weights, N(0, 1) priors, known noise 0.3. Line: posterior mean; dark: two standard deviations of f "
        "(epistemic); light: with the noise of an observation added; dashed: the true function; points: the data. Axes "
        "are cut where NUTS's light band ends."
    )


def _table(document: Document) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    lines = []
    for row in cells(document):
        kind = ' class="reference"' if row[0] == TITLES["nuts"] else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{prose(cell)}</td>" for cell in row) + "</tr>")
    body = "".join(lines)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        '<p class="note">bound: L′, a lower bound on log p(data) where the linearised entropy is exact; ± its Monte '
        "Carlo error. An ensemble has none. seconds: of the fit on one thread, by the clock and by the CPU; of NUTS, "
        "of both runs by the clock, on the machine that made the reference.</p>"
    )


def _items(sentences: Iterable[str]) -> str:
    return "".join(f"<li>{prose(sentence)}</li>\n" for sentence in sentences)


def _command(config: Document) -> str:
    quick = " --quick" if config["quick"] else ""
    return (
        f"livi demo --data {config['data']} --seed {config['seed']}{quick}\n\n"
        "# Every number on this page is in result.json, and the posteriors can be used again, in Python:\n"
        "import livi, torch\nfrom livi.experiments.toy import network\n\n"
        f'posterior = livi.load("livi.livi", network(seed={config["seed"]}))\n'
        "posterior.predict(torch.zeros(1, 1)).epistemic_std"
    )


def _colophon(document: Document) -> str:
    known, where = document["versions"], document["machine"]
    return (
        f"livi {known['livi']}, torch {known['torch']}, numpy {known['numpy']}, Python {known['python']}; "
        f"{where['cpu']}, {where['workers']} worker processes of one thread each; {document['seconds']:.0f} seconds in "
        "all. The same seed and versions on the same kind of CPU give the same numbers."
    )


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
