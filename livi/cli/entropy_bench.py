"""The command `livi bench entropy`. Progress goes to stderr, the table to stdout."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from livi.cli.benches import add_bench, configured, draw_figure, given, run_bench
from livi.cli.options import count, names

DESCRIPTION = """\
The paper's test of the entropy approximation. Trains a VAE, and during the training estimates the entropy of its
decoder by importance sampling and by every method, at the same draws. Writes DIR/entropy.json after every training, and
prints a Markdown table. The same command continues an interrupted run.

data      weights of the toy network by NUTS, as in the paper (if numpyro is installed), digits (if scikit-learn is
          installed), mnist (in the folder that LIVI_DATA_DIR names)
methods   exact-terms (equation 14), exact (L'), lanczos (L', matrix-free), smallest (L''), encoder (importance sampling
          with the encoder as the proposal, which the paper takes as the truth)
"""

EXAMPLES = """\
examples:
  livi bench entropy --only digits --seeds 0 --epochs 3
  livi bench entropy --out results --jobs 3 --figure entropy.png
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "entropy",
        _run,
        {"jobs": None, "seeds": "default: 500,501,502", "figure": "also draw the curves of the first seed"},
        summary="the entropy of a VAE's decoder during training, by every estimator and by importance sampling",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--only", type=names, metavar="NAME,...", help="data (default: all that are available)")
    command.add_argument("--epochs", type=count, help="epochs of each training (default: 100)")
    command.add_argument("--draws", type=count, help="draws for each estimate of an entropy (default: 256)")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.entropy_bench")
    data = bench.available() if chosen.only is None else chosen.only
    config = configured(chosen, lambda: bench.Config(data, **given(chosen, "methods", "seeds", "epochs", "draws")))
    if run_bench(chosen, bench, config) is not None:
        draw_figure(chosen, "entropy", chosen.out / bench.FILE)
    return 0
