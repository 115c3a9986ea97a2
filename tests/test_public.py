"""The names of the package: imported when they are used, and the same however one asks for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import livi

ROOT = Path(__file__).resolve().parents[1]


def in_a_new_process(script):
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_alone_does_not_load_torch():
    process = in_a_new_process("import sys, livi; print(livi.__version__, 'torch' in sys.modules)")
    assert process.stdout == f"{livi.__version__} False\n", process.stderr


def test_any_room_may_be_the_first_to_be_used():
    rooms = {path.stem for path in (ROOT / "livi").glob("*") if path.suffix in ("", ".py") and path.name[0] != "_"}
    assert len(rooms) > 10
    script = f"""
import sys
for room in {sorted(rooms)}:
    for name in [name for name in sys.modules if name.split(".")[0] == "livi"]:
        del sys.modules[name]
    import livi
    assert getattr(livi, room).__name__ == "livi." + room
"""
    process = in_a_new_process(script)
    assert process.returncode == 0, process.stderr


def test_rooms_answer_to_their_former_names_as_attributes():
    assert livi.baselines is livi.rivals
    assert livi.training is livi.inference
    assert livi.layout is livi.network
    assert livi.metrics.nll is livi.posterior.metrics.nll
    assert livi.generators.MLP is livi.MLP


def test_every_public_name_is_there_in_every_way():
    names = {}
    exec("from livi import *", names)
    assert names.keys() - {"__builtins__"} == set(livi.__all__)
    assert all(value is getattr(livi, name) for name, value in names.items() if name != "__builtins__")
    assert set(livi.__all__) <= set(dir(livi))
    assert livi.fit is livi.inference.fit


def test_what_is_offered_is_what_is_meant_for_use():
    shown = {name for name in dir(livi) if not name.startswith("__")}
    assert shown == {*livi.__all__, "Comparison", "LIVIClassifier", "LIVIRegressor", "compare", "estimators", "rivals"}
    metrics = {name for name in dir(livi.metrics) if not name.startswith("__")}
    assert {"METRICS", "Metric", "nll", "score", "auroc"} <= metrics
    assert not metrics & {"dataclass", "getattr_static", "itertools", "torch", "_labelled"}
    assert {"__version__", "__doc__"} <= set(dir(livi))


@pytest.mark.parametrize("name", ["nothing", "_nothing", "__nothing__"])
def test_a_name_that_is_not_there_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'livi' has no attribute '{name}'"):
        getattr(livi, name)


def test_a_package_that_a_room_lacks_is_named():
    process = in_a_new_process("import sys; sys.modules['sklearn'] = None; import livi; livi.LIVIRegressor")
    assert process.stderr.splitlines()[-1].startswith("ModuleNotFoundError: livi.estimators: expected scikit-learn")
