"""Made-up contents of reports, such as `livi.tables` makes after a fit."""

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from livi.report.table_page import unpacked
from livi.tables.content import (
    Baseline,
    ClassificationRows,
    ColumnFacts,
    Content,
    Coverage,
    Driver,
    Effect,
    Finding,
    Metric,
    RegressionRows,
    UnsureRow,
)

LEVELS = np.arange(1, 20) / 20
QUANTILES = np.array([0.0627, 0.1257, 0.1891, 0.2533, 0.3186, 0.3853, 0.4538, 0.5244, 0.5978, 0.6745])
QUANTILES = np.append(QUANTILES, [0.7554, 0.8416, 0.9346, 1.0364, 1.1503, 1.2816, 1.4395, 1.6449, 1.96])


def history(steps=2000, every=10, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(every, steps + 1, every):
        terms = {
            "log_likelihood": -300.0 - 900.0 * np.exp(-step / 150) + 6.0 * rng.standard_normal(),
            "log_prior": -2400.0 + 300.0 * np.exp(-step / 400) + 4.0 * rng.standard_normal(),
            "entropy": 2100.0 - 500.0 * np.exp(-step / 500) + 1.0 * rng.standard_normal(),
        }
        weights = {"kl_weight": min(1.0, step / 400), "rate": 0.01}
        rows.append({"step": float(step), "bound": sum(terms.values())} | terms | weights)
    return tuple(rows)


def facts(rows):
    return {
        "File": "houses.csv",
        "Rows fitted": "512",
        "Rows held out": f"{rows:,}",
        "Task": "regression of price",
        "Network": "12 inputs, two hidden layers of 50, ELU, 3,252 weights",
        "Posterior": "one component; generator MLP of width 32, 32 latents; exact entropy",
        "Fit": "2,000 steps, 41 seconds",
        "Versions": "livi 0.1.0, torch 2.11.0, scikit-learn 1.9, Python 3.11",
    }


COLUMNS = (
    ColumnFacts("area", "numeric"),
    ColumnFacts("rooms", "numeric", "3 missing values, filled with the median"),
    ColumnFacts("sold on", "date", "as days since 2019-01-02"),
    ColumnFacts("quarter", "categorical", "7 categories"),
    ColumnFacts("id", "dropped", "a different value in every row"),
)
FINDINGS = (
    Finding("ok", "bound", "The bound is -600.2 ± 0.4 nats."),
    Finding("warning", "spread", "2 of 3,252 weights are wider than 3 times their prior; train longer."),
    Finding("notice", "density", "Entropy was not checked by importance sampling; pass `effort=Effort()`."),
)
NOTES = ("Column id dropped: a different value in every row.", "4 rows without a target were left out.")


def unsure_rows(order, target, count=10):
    rng = np.random.default_rng(1)
    quarters = ("Nørrebro", "Østerbro", "Vesterbro", "")
    return tuple(
        UnsureRow(
            int(place),
            int(place) * 3 + 2,
            {
                "area": f"{rng.uniform(40, 300):.1f}",
                "rooms": str(rng.integers(1, 9)),
                "sold on": f"2023-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
                "quarter": quarters[rng.integers(4)],
                target: "",
            },
        )
        for place in order[:count]
    )


def baselines(constant, linear):
    return Baseline("constant", constant), Baseline("linear", linear)


def effects(low, high, about=""):
    """An effect of a column of each kind."""
    rise = np.linspace(low, high, 21)
    reach = 0.05 * (high - low) * np.linspace(0.5, 2.0, 21)
    three, some = slice(0, 21, 10), ("Nørrebro", "Østerbro", "Vesterbro")
    return (
        Effect("area", "numeric", tuple(np.linspace(40.0, 300.0, 21)), rise, rise - reach, rise + reach, about),
        Effect("sold on", "date", tuple(np.linspace(18000.0, 19500.0, 21)), rise, rise - reach, rise + reach, about),
        Effect("quarter", "categorical", some, rise[three], (rise - reach)[three], (rise + reach)[three], about),
    )


def regression(n=128, scale=1.0, constant_noise=False, seed=0, **changes):
    """A report on a regression of prices in thousands; `scale` is the true spread over the predicted one."""
    rng = np.random.default_rng(seed)
    mean = 300.0 + 90.0 * rng.standard_normal(n)
    aleatoric = np.full(n, 24.0) if constant_noise else 15.0 + 20.0 * rng.uniform(size=n) ** 2
    epistemic = 4.0 + 0.05 * np.abs(mean - 300.0) * (1 + 0.6 * rng.uniform(size=n))
    total = np.hypot(aleatoric, epistemic)
    units = scale * rng.standard_normal(n)
    pit = 0.5 * (1 + np.tanh(0.8 * units * (1 + 0.0447 * units**2)))
    rows = RegressionRows(
        mean + total * units,
        mean,
        epistemic,
        aleatoric,
        total,
        pit.clip(0, 1),
        LEVELS,
        mean - QUANTILES[:, None] * total,
        mean + QUANTILES[:, None] * total,
    )
    share = {level: float((np.abs(units) <= QUANTILES[place]).mean()) for level, place in LINES}
    reach = {level: 1.96 * (level * (1 - level) / n) ** 0.5 for level, _ in LINES}
    coverage = tuple(
        Coverage(
            level,
            share[level],
            max(0.0, level - reach[level]),
            min(1.0, level + reach[level]),
            float(2 * QUANTILES[place] * total.mean()),
            judged(share[level], level, reach[level], n),
        )
        for level, place in LINES
    )
    judgement = next(line.judgement for line in coverage if line.level == 0.9)
    given = {
        "title": "price from houses.csv",
        "task": "regression",
        "target": "price",
        "headline": f"On {n} held-out rows the 90% intervals held {share[0.9]:.0%} of the prices (expected between "
        f"{max(0, 0.9 - reach[0.9]):.0%} and {min(1, 0.9 + reach[0.9]):.0%}): {judgement}.",
        "source": f"{n:,} held-out rows of houses.csv",
        "facts": facts(n),
        "columns": COLUMNS,
        "notes": NOTES,
        "history": history(),
        "rows": rows,
        "metrics": (
            Metric("rmse", "RMSE", 25.31, "25.31", "lower is better", baselines(93.4, 40.2)),
            Metric("mae", "MAE", 19.9, "19.90", "lower is better, in units of price", baselines(74.0, 31.0)),
            Metric("r2", "R²", 0.93, "0.930", "1 is perfect, 0 no better than the average", baselines(-0.001, 0.8)),
            Metric("log_score", "Log score", -4.61, "-4.61", "higher is better, nats a row", baselines(-5.9, -5.1)),
            Metric("crps", "CRPS", 14.2, "14.20", "lower is better, in units of price"),
            Metric("coverage", "Coverage of 90%", share[0.9], f"{share[0.9]:.1%}", "should be 90%"),
        ),
        "coverage": coverage,
        "verdict": (
            f"The 90% intervals are {judgement}.",
            "The PIT values are as uniform as chance allows (p = 0.41).",
        ),
        "unsure": unsure_rows(np.argsort(-epistemic), "price"),
        "findings": FINDINGS,
        "drivers": tuple(
            Driver(one.name, 25.3, 25.3 + gain) for one, gain in zip(COLUMNS, (60, 9, 8, 0.1), strict=False)
        ),
        "effects": effects(220.0, 410.0),
    }
    return Content(**(given | changes))


LINES = ((0.5, 9), (0.8, 15), (0.9, 17), (0.95, 18))


def judged(share, level, reach, n):
    if n < 20:
        return "too few rows"
    return "overconfident" if share < level - reach else "underconfident" if share > level + reach else "calibrated"


def classification(n=200, classes=("no", "yes"), sharp=2.0, seed=0, **changes):
    rng = np.random.default_rng(seed)
    k = len(classes)
    logits = sharp * rng.standard_normal((n, k))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    target = np.array([rng.choice(k, p=row) for row in probabilities])
    entropy = -(probabilities * np.log(probabilities)).sum(1)
    information = entropy * rng.uniform(0.05, 0.6, n) * rng.uniform(size=n)
    right = float((probabilities.argmax(1) == target).mean())
    given = {
        "title": "churn from customers.csv",
        "task": "classification",
        "target": "churn",
        "headline": f"On {n} held-out rows the predicted class was right for {right:.0%} (expected from its own "
        f"probabilities: {probabilities.max(1).mean():.0%}): calibrated.",
        "source": f"{n:,} held-out rows of customers.csv",
        "facts": facts(n) | {"Task": f"classification of churn, {k} classes"},
        "columns": COLUMNS,
        "notes": NOTES,
        "history": history(),
        "rows": ClassificationRows(target, tuple(classes), probabilities, entropy, information),
        "metrics": (
            Metric("accuracy", "Accuracy", right, f"{right:.1%}", "higher is better", baselines(0.52, 0.61)),
            Metric("nll", "NLL", 0.41, "0.410", "lower is better, nats a row"),
            Metric("brier", "Brier score", 0.2, "0.203", "lower is better"),
            Metric("ece", "ECE", 0.03, "3.1%", "lower is better"),
        ),
        "coverage": (Coverage(0.9, 0.92, 0.86, 0.94, 1.31, "calibrated" if n >= 20 else "too few rows"),),
        "verdict": ("Confidence and accuracy agree within chance.",),
        "unsure": unsure_rows(np.argsort(-information), "churn"),
        "findings": FINDINGS,
        "drivers": tuple(Driver(one.name, 0.2, 0.2 + gain) for one, gain in zip(COLUMNS, (0.2, 0.1), strict=False)),
        "effects": effects(0.1, 0.8, classes[1]),
    }
    return Content(**(given | changes))


def unvalidated(**changes):
    """A report on a fit to all rows."""
    nothing = {"rows": None, "metrics": (), "coverage": (), "verdict": (), "unsure": (), "source": ""}
    nothing |= {"drivers": (), "effects": ()}
    words = "Fitted to all 640 rows; no rows were held out, so nothing is known of its errors."
    return regression(**(nothing | {"headline": words} | changes))


TEN = tuple(f"class number {i}" for i in range(10))
HUNDRED = tuple(f"label {i}" for i in range(100))
CONTENTS = {
    "regression": regression,
    "constant noise": lambda: regression(400, 1.6, constant_noise=True),
    "many rows": lambda: regression(100_000),
    "one row": lambda: regression(1),
    "nothing held out": unvalidated,
    "two classes": classification,
    "ten classes": lambda: classification(600, TEN),
    "a hundred classes": lambda: classification(900, HUNDRED, 3.0),
    "one row of two classes": lambda: classification(1),
    "bare": lambda: unvalidated(history=(), findings=(), columns=(), notes=(), facts={}),
}


@cache
def content_of(kind):
    """One of CONTENTS, made only once."""
    return CONTENTS[kind]()


HOSTILE = (
    "<script>window.owned = 1</script>",
    "</script><img src=x onerror='window.owned = 1'>",
    '"><svg onload="window.owned = 1">',
    "<a href='https://example.org'>here</a> & <b>bold</b>",
    "%{x} %{customdata[0]} $\\alpha$ ‮مرحبا 🏠 \u2028\x00 'quoted'",
)


def hostile(kind):
    a, b, c, d, e = HOSTILE
    given = {
        "title": f"{a} from {b}.csv",
        "target": c,
        "headline": " ".join(HOSTILE),
        "source": b,
        "facts": dict.fromkeys(HOSTILE, d) | {"odd": e},
        "columns": tuple(ColumnFacts(name, "dropped", name) for name in HOSTILE),
        "notes": HOSTILE,
        "metrics": tuple(Metric(name, name, 1.0, name, name) for name in HOSTILE),
        "drivers": tuple(Driver(name, 1.0, 2.0) for name in HOSTILE),
        "effects": tuple(replace(one, name=name) for one, name in zip(effects(1.0, 2.0, a), HOSTILE, strict=False)),
        "verdict": HOSTILE,
        "findings": tuple(Finding("ok", name, f"`{name}` {name}") for name in HOSTILE),
        "unsure": (UnsureRow(0, 2, {name: name for name in HOSTILE}),),
    }
    return classification(60, HOSTILE, **given) if kind == "classes" else regression(60, **given)


def figures_of(text):
    found = re.search(r'<script type="text/plain" id="figures">(.*?)</script>', text, re.DOTALL)
    return json.loads(unpacked(found[1]), parse_constant=lambda name: pytest.fail(f"{name} in the figures"))
