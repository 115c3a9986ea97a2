"""Imports point one way, rooms are known and small, and `import livi` stays light.

Source files are parsed, never imported, so an import inside a function or under `if TYPE_CHECKING` counts
like any other. Every check is a function from a folder to a list of complaints; it is run on the package,
which must give none, and on a small fake package with one fault, which must give exactly that one.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "livi"

# A room (a file or a folder directly under the package) may import only from strictly lower floors, which are the rows
# above it in docs/architecture.md. Files in one folder may import each other, without cycles. The package's own
# __init__.py may import anything.
FLOORS = {
    0: {"checks", "draws", "durations", "outliers", "running", "spec", "version"},
    1: {"network"},
    2: {"model"},
    3: {"family"},
    4: {"posterior"},
    5: {"sampling"},
    6: {"inference"},
    7: {"public", "rivals"},
    8: {"tables"},
    9: {"experiments"},
    10: {"report"},
    11: {"comparison"},
    12: {"cli"},
    13: {"__main__"},
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}

OPTIONAL = (
    "curvlinops",
    "ivon",
    "jax",
    "laplace",
    "matplotlib",
    "numpyro",
    "pandas",
    "plotly",
    "pyarrow",
    "scipy",
    "sklearn",
    "tensorboard",
)
NAMES_THAT_SAY_NOTHING = {"common", "helper", "helpers", "misc", "util", "utils"}
MAX_LINES = 400


# --- the checks -----------------------------------------------------------------------------------


def source_files(package: Path) -> dict[str, Path]:
    """Every source file of the package by module name; an __init__.py goes by its folder's name."""
    files = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def room_of(module: str) -> str:
    """`livi.family.linalg.lanczos` is in the room `linalg`; the package's own __init__.py is in the room ''."""
    return [*module.split("."), ""][1]


def modules_named(statement: ast.AST, home: str) -> Iterator[str]:
    """The names an import statement may refer to; relative ones start from the package `home`."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        above = home.split(".")[: len(home.split(".")) - statement.level + 1] if statement.level else []
        base = ".".join([*above, *filter(None, [statement.module])])
        # `from a import b` is an import of the file a/b.py, of a itself where there is no such file.
        yield from (f"{base}.{alias.name}" for alias in statement.names)


def imports_by_file(package: Path) -> dict[str, set[str]]:
    """For each module of the package, the modules of the same package that its source imports, anywhere."""
    files = source_files(package)
    graph = {}
    for module, path in files.items():
        home = module if path.name == "__init__.py" else module.rpartition(".")[0]
        graph[module] = {
            owner_of(name, files)
            for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for name in modules_named(statement, home)
            if name.split(".")[0] == package.name
        }
    return graph


def owner_of(name: str, files: dict[str, Path]) -> str:
    """The longest prefix of a dotted name that is a source file: where an imported object comes from."""
    while name not in files and "." in name:
        name = name.rpartition(".")[0]
    return name


def upward_imports(package: Path) -> list[str]:
    complaints = []
    for module, targets in imports_by_file(package).items():
        room = room_of(module)
        for target in sorted(targets):
            target_room = room_of(target)
            if room == "" or target_room == room:
                continue
            if target_room == "":
                complaints.append(f"{module} imports from {target} itself, not from the room that owns the name")
                continue
            here, there = FLOOR_OF.get(room), FLOOR_OF.get(target_room)
            if here is not None and there is not None and there >= here:  # else unknown_rooms complains
                complaints.append(f"{module} (floor {here}) imports {target} (floor {there})")
    return complaints


def import_cycles(package: Path) -> list[str]:
    graph = {
        module: targets - {module} for module, targets in imports_by_file(package).items() if module != package.name
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def cycles_between_parts(package: Path) -> list[str]:
    """Folders inside a room, and its files, are parts: they too import one way, whatever their files do."""
    graph: dict[str, set[str]] = {}
    for module, targets in imports_by_file(package).items():
        if len(module.split(".")) < 3:  # the rooms' own __init__.py, which gather names
            continue
        part = ".".join(module.split(".")[:3])
        others = {".".join(target.split(".")[:3]) for target in targets}
        graph.setdefault(part, set()).update(others - {part})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def unknown_rooms(package: Path) -> list[str]:
    rooms = {room_of(module) for module in source_files(package)} - {""}
    return [f"{room} has no floor; add it to FLOORS" for room in sorted(rooms - FLOOR_OF.keys())]


def names_that_say_nothing(package: Path) -> list[str]:
    return [
        module
        for module in source_files(package)
        if any(NAMES_THAT_SAY_NOTHING & set(part.split("_")) for part in module.split("."))
    ]


def long_files(package: Path) -> list[str]:
    lengths = {
        module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in source_files(package).items()
    }
    return [f"{module}: {length} lines" for module, length in lengths.items() if length > MAX_LINES]


def optional_modules_loaded(package: Path) -> list[str]:
    """The optional extras that are loaded by the package and all its public names in a fresh interpreter."""
    script = f"import sys; from {package.name} import *; print(*[name for name in {OPTIONAL!r} if name in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


CHECKS = (
    upward_imports,
    import_cycles,
    cycles_between_parts,
    unknown_rooms,
    names_that_say_nothing,
    long_files,
    optional_modules_loaded,
)


# --- the package ----------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_gives_no_complaint(check):
    assert source_files(PACKAGE), f"no source files under {PACKAGE}"
    assert check(PACKAGE) == []


def test_the_architecture_page_lists_every_room_in_the_order_of_the_floors():
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.partition("## The rooms")[2].splitlines() if line.startswith("| `")]
    listed = [{name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", cell)} for cell in cells]
    floors = [FLOOR_OF[room] for rooms in listed for room in sorted(rooms)]
    assert floors == sorted(floors)
    assert set().union(*listed) == FLOOR_OF.keys() - {"__main__"}


@pytest.mark.parametrize("check", [names_that_say_nothing, long_files], ids=lambda check: check.__name__)
def test_the_tests_give_no_complaint_either(check):
    tests = Path(__file__).resolve().parent
    assert source_files(tests), f"no source files under {tests}"
    assert check(tests) == []


# --- the checks can fail --------------------------------------------------------------------------


def build(folder: Path, files: dict[str, str]) -> Path:
    """A package `house` with the given sources; it always has an __init__.py."""
    for name, source in ({"__init__.py": ""} | files).items():
        path = folder / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return folder / "house"


def test_a_sound_package_gives_no_complaint(tmp_path):
    (tmp_path / "houseboat.py").touch()
    house = build(
        tmp_path,
        {
            "__init__.py": "from house.cli import main\nfrom house import family",
            "cli.py": "from house import posterior\nmain = posterior.Exact",
            "posterior.py": "from house.family import Exact\nfrom house.checks import positive",
            "family/__init__.py": "from house.family.entropy.exact import Exact",
            "family/entropy/exact.py": "from .base import Entropy\nfrom ..linalg.cg import solve\nExact = Entropy",
            "family/entropy/base.py": "from house.network import Entropy",
            "family/linalg/cg.py": "from house.checks import positive as solve",
            "network.py": "import houseboat\nEntropy = houseboat",
            "checks.py": "positive = 1",
        },
    )
    assert {check.__name__: check(house) for check in CHECKS} == {check.__name__: [] for check in CHECKS}


@pytest.mark.parametrize(
    "statement",
    [
        "import house.posterior",
        "import house.posterior as p",
        "from house.posterior import Posterior",
        "from house import posterior",
        "from . import posterior",
        "from .posterior import Posterior",
        "def late():\n    from house import posterior",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.posterior import Posterior",
    ],
)
def test_an_import_from_a_higher_floor_is_found_however_it_is_written(tmp_path, statement):
    house = build(tmp_path, {"network.py": statement, "posterior.py": ""})
    assert upward_imports(house) == ["house.network (floor 1) imports house.posterior (floor 4)"]


def test_an_import_from_the_same_floor_is_found(tmp_path):
    house = build(tmp_path, {"public.py": "from house.rivals import swag", "rivals/swag.py": ""})
    assert upward_imports(house) == ["house.public (floor 7) imports house.rivals.swag (floor 7)"]


def test_an_import_of_the_package_itself_is_found(tmp_path):
    house = build(tmp_path, {"cli.py": "from house import fit"})
    assert upward_imports(house) == ["house.cli imports from house itself, not from the room that owns the name"]


def test_a_cycle_inside_a_folder_is_found(tmp_path):
    house = build(
        tmp_path,
        {"network/modes.py": "from house.network import statistics", "network/statistics.py": "from . import modes"},
    )
    assert upward_imports(house) == []
    [cycle] = import_cycles(house)
    assert set(cycle.split(" -> ")) == {"house.network.modes", "house.network.statistics"}


def test_a_cycle_between_the_folders_of_a_room_is_found_even_if_no_file_is_in_one(tmp_path):
    house = build(
        tmp_path,
        {
            "family/entropy/exact.py": "from house.family.linalg import cg",
            "family/entropy/report.py": "",
            "family/linalg/cg.py": "",
            "family/linalg/lanczos.py": "from house.family.entropy import report",
        },
    )
    assert import_cycles(house) == []
    [cycle] = cycles_between_parts(house)
    assert set(cycle.split(" -> ")) == {"house.family.entropy", "house.family.linalg"}


@pytest.mark.parametrize("name", ["attic.py", "attic/__init__.py", "attic/box.py"])
def test_a_room_without_a_floor_is_found(tmp_path, name):
    assert unknown_rooms(build(tmp_path, {name: ""})) == ["attic has no floor; add it to FLOORS"]


@pytest.mark.parametrize("name", ["utils", "linalg/helpers", "models/common", "linalg/cg_utils"])
def test_a_name_that_says_nothing_is_found(tmp_path, name):
    assert names_that_say_nothing(build(tmp_path, {f"{name}.py": ""})) == [f"house.{name.replace('/', '.')}"]


def test_a_long_file_is_found(tmp_path):
    house = build(tmp_path, {"cli.py": "\n" * MAX_LINES, "checks.py": "\n" * (MAX_LINES + 1)})
    assert long_files(house) == [f"house.checks: {MAX_LINES + 1} lines"]


def test_an_optional_extra_loaded_on_import_is_found(tmp_path):
    (tmp_path / "tensorboard.py").touch()
    house = build(tmp_path, {"__init__.py": "import house.report", "report.py": "import tensorboard"})
    assert optional_modules_loaded(house) == ["tensorboard"]
