"""`pip install livi`, without extras: what needs none works, and what needs one says which.

Instead of installing torch once more, a new process sees of all installed packages only the dependencies of livi and
theirs. `make clean-install` makes a real environment.
"""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Not found is what a missing package is: neither by an import, nor by find_spec, nor by importlib.metadata.
ALONE = """
import runpy, sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

modules, distributions = {modules!r}, {distributions!r}

class Alone:
    def find_spec(name, path=None, target=None):
        top = name.split(".")[0]
        if top in modules or top in sys.stdlib_module_names or top.startswith("_sysconfigdata"):
            return PathFinder.find_spec(name, path, target)

    def find_distributions(*context):
        for found in PathFinder.find_distributions(*context):
            if found.metadata["Name"].lower().replace("_", "-") in distributions:
                yield found

sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Alone]
sys.path.insert(0, {root!r})
"""


def installed_with(names):
    """The distributions that pip would install for these, by what those installed here say of themselves."""
    found, open_names = set(), {canonicalize_name(name) for name in names}
    while open_names:
        name = open_names.pop()
        found.add(name)
        needed = [Requirement(text) for text in metadata.requires(name) or ()]
        wanted = {canonicalize_name(one.name) for one in needed if not one.marker or one.marker.evaluate({"extra": ""})}
        open_names |= wanted - found
    return found


def named(texts):
    return {Requirement(text).name for text in texts}


CORE = installed_with(named(PROJECT["dependencies"]))
OWNERS = {
    module: {canonicalize_name(name) for name in names} for module, names in metadata.packages_distributions().items()
}


def without_extras(script, but=()):
    """Run the script with the core, and with these extras."""
    distributions = CORE | installed_with(
        named(text for name in but for text in PROJECT["optional-dependencies"][name])
    )
    modules = {module for module, names in OWNERS.items() if names & distributions} | {"livi"}
    alone = ALONE.format(modules=modules, distributions=distributions, root=str(ROOT))
    command = [sys.executable, "-I", "-c", alone + script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_core_is_torch_numpy_and_safetensors():
    assert named(PROJECT["dependencies"]) == {"torch", "numpy", "safetensors"}


def test_no_package_of_an_extra_is_seen():
    extras = {
        canonicalize_name(Requirement(text).name)
        for texts in PROJECT["optional-dependencies"].values()
        for text in texts
    } - {"livi"}
    modules = {module for module, names in OWNERS.items() if names & extras}
    assert {"matplotlib", "sklearn", "pandas", "plotly", "pyarrow", "tensorboard", "scipy", "hypothesis"} <= modules
    process = without_extras(f"""
import importlib.metadata, importlib.util
print([name for name in {sorted(modules)!r} if importlib.util.find_spec(name) is not None])
print([found.metadata["Name"] for name in {sorted(extras)!r} for found in importlib.metadata.distributions(name=name)])
""")
    assert process.stdout == "[]\n[]\n", process.stderr


def test_fit_diagnose_save_load_and_predict_need_no_extra():
    process = without_extras(f"runpy.run_path({str(ROOT / 'scripts' / 'first_fit.py')!r}, run_name='__main__')")
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "fitted, diagnosed, saved, loaded and predicted"


def test_the_estimators_need_the_extra_sklearn_alone(tmp_path):
    process = without_extras(
        f"""
import importlib.util
import livi, numpy as np
assert importlib.util.find_spec("pandas") is None
x = np.random.default_rng(0).normal(size=(80, 2))
for model, targets in ((livi.LIVIRegressor(steps=20), x[:, 0]), (livi.LIVIClassifier(steps=20), x[:, 0] > 0.0)):
    model.fit(x, targets).save({str(tmp_path / "model.livi")!r})
    print(livi.estimators.load({str(tmp_path / "model.livi")!r}).predict(x).shape)
""",
        but=["sklearn"],
    )
    assert process.stdout == "(80,)\n(80,)\n", process.stderr


def test_every_public_name_is_there_without_an_extra():
    process = without_extras("from livi import *\nimport livi\nprint(livi.__file__)")
    assert process.stdout == f"{ROOT / 'livi' / '__init__.py'}\n", process.stderr


@pytest.mark.parametrize("command", [[], ["fit"], ["predict"], ["demo"], ["bench", "tables"], ["bench", "plain"]])
def test_help_needs_no_extra(command):
    process = without_extras(f"sys.argv[0] = 'livi'\nfrom livi import cli\ncli.main({[*command, '--help']!r})")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("usage: livi")


def test_the_toy_benchmark_needs_no_extra(tmp_path):
    arguments = ["bench", "toy", "--quick", "--data", "A", "--methods", "livi,map", "--out", str(tmp_path)]
    process = without_extras(f"from livi import cli\nsys.exit(cli.main({arguments!r}))")
    assert process.returncode == 0, process.stderr
    assert "| A | livi | 1 |" in process.stdout


def test_what_needs_an_extra_names_it(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    out = str(tmp_path / "out")
    table = ["fit", str(tmp_path / "a.csv"), "--target", "y", "--out", out]
    process = without_extras(f"""
import livi, torch
from livi import cli
x = torch.randn(9, 1)
assert cli.main(["demo", "--quick", "--out", {out!r}]) == 1
assert cli.main({table!r}) == 1
assert cli.main(["bench", "tables", "--quick", "--out", {out!r}]) == 1
assert cli.main(["predict", "none.livi", "none.parquet", "--out", "-"]) == 1
for use in (
    lambda: livi.LIVIRegressor,
    lambda: livi.fit(torch.nn.Linear(1, 1), (x, x[:, 0]), likelihood=livi.Gaussian(), log_dir={out!r}),
):
    try:
        use()
    except ImportError as error:
        print(error, file=sys.stderr)
""")
    assert process.returncode == 0, process.stderr
    extras = ("plots", "tables", "tables", "tables", "sklearn", "tensorboard")
    said = process.stderr.splitlines()
    assert len(said) == len(extras), process.stderr
    for sentence, extra in zip(said, extras, strict=True):
        assert f'pip install "livi[{extra}]"' in sentence
    assert not (tmp_path / "out").exists()
