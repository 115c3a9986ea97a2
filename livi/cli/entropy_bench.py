"""The command `livi bench entropy`. Progress goes to stderr, the table to stdout."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from livi.cli.benches import add_bench, run_bench
from livi.cli.options import count, names, seeds

DESCRIPTION = """\
The paper's test of the entropy approximation: train a VAE, and estimate the entropy of its decoder along the way by
importance sampling and by every method, at the same draws. Writes DIR/entropy.json after every training, and prints a
Markdown table. A run that was stopped goes on where it was.

data      weights of the toy network by NUTS, as in the paper (where numpyro is installed), digits (where scikit-learn
          is installed), mnist (in the folder that LIVI_DATA_DIR names)
methods   exact-terms (equation 14), exact (L'), lanczos (L', matrix-free), smallest (L''), encoder (importance sampling
          with the encoder as the proposal: the paper's truth)
"""

EXAMPLES = """\
examples:
  livi bench entropy --only digits --seeds 0 --epochs 3
  livi bench entropy --out results --jobs 3 --figure entropy.png
"""


def add_command(benches: argparse._SubParsersAction[Any]) -> None:
    command = add_bench(
        benches,
        "entropy",
        _run,
        summary="the entropy of a VAE's decoder along its training, by every estimator and by importance sampling",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    command.add_argument("--only", type=names, metavar="NAME,...", help="data (default: all that can be had)")
    command.add_argument("--seeds", type=seeds, metavar="SEED,...", help="default: 500,501,502")
    command.add_argument("--epochs", type=count, help="default: 100")
    command.add_argument("--draws", type=count, help="behind each entropy (default: 256)")
    command.add_argument("--figure", type=Path, metavar="FILE", help="also draw the curves of the first seed")


def _run(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("livi.experiments.entropy_bench")
    given = {name: getattr(chosen, name) for name in ("methods", "seeds", "epochs", "draws")}

    def configure(_: Path | None) -> Any:
        return bench.Config(
            data=bench.available() if chosen.only is None else chosen.only,
            **{name: value for name, value in given.items() if value is not None},
        )

    code = run_bench(chosen, bench, configure)
    if chosen.figure is not None:
        importlib.import_module("livi.report.entropy").draw(chosen.out / bench.FILE, chosen.figure)
    return code
