"""Where tests lie: tests/unit mirrors the package, helpers are in tests/tools, and no folder is a hall."""

import ast
import re
from collections import Counter

import pytest

from tests.limits import BENCHMARKS, PACKAGE, ROOT, TESTS, tree

UNIT = [name for name in TESTS if name.startswith("tests/unit/")]
UNIT_TESTS = [name for name in UNIT if name.rpartition("/")[2].startswith("test_")]
FILES_IN_A_FOLDER = 25
HISTORY = re.compile(r"review|found|issue|regression|bug|fixed|former|old|new")
"""Names that say when a test came instead of what it shows."""


def room(name: str) -> str:
    """penstock/x/y of tests/unit/x/y/test_z.py."""
    return name.rpartition("/")[0].replace("tests/unit", "penstock", 1)


def imported(name: str) -> set[str]:
    """Modules, and names out of modules, with dots."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("folder", sorted({name.rpartition("/")[0] for name in UNIT}))
def test_a_folder_of_unit_tests_has_its_room(folder):
    assert (ROOT / room(f"{folder}/")).is_dir()


@pytest.mark.parametrize("name", UNIT_TESTS)
def test_a_unit_test_is_about_a_module_of_its_room_or_about_the_room(name):
    """`test_z.py` is about the module `z`. Where there is none, the name says what is shown, of a room that is imported."""
    module = f"{room(name)}/{name.rpartition('/test_')[2]}"
    inside = room(name).replace("/", ".") + "."
    is_of_the_room = any(f"{one}.".startswith(inside) for one in imported(name))
    assert module in PACKAGE or is_of_the_room, f"neither {module} nor anything of {inside}"


def test_unit_tests_have_no_helpers_among_them():
    others = {name for name in UNIT if name not in UNIT_TESTS}
    assert {name.rpartition("/")[2] for name in others} <= {"__init__.py", "conftest.py"}


def test_no_test_has_the_name_of_a_module_that_lies_elsewhere_in_its_room():
    """Its place would be in the folder of that module."""
    astray = []
    for name in UNIT_TESTS:
        module = name.rpartition("/test_")[2]
        here = ROOT / room(name)
        below = [path for path in here.rglob(module) if path.parent != here]
        if len(below) == 1 and not (here / module).exists():
            astray.append(name)
    assert astray == []


@pytest.mark.parametrize("name", [name for name in TESTS if "/test_" in name])
def test_a_test_is_named_by_what_it_shows(name):
    words = name.rpartition("/test_")[2].removesuffix(".py").split("_")
    assert not any(HISTORY.fullmatch(word) for word in words)


def test_no_folder_has_too_many_files():
    names = [name for name in (*TESTS, *PACKAGE, *BENCHMARKS) if not name.endswith("/__init__.py")]
    files = Counter(name.rpartition("/")[0] for name in names)
    assert {folder: n for folder, n in files.items() if n > FILES_IN_A_FOLDER} == {}


def test_no_folder_of_the_dashboard_has_too_many_files():
    modules = (ROOT / "penstock/ops/dashboard/app").rglob("*.js")
    files = Counter(str(path.parent.relative_to(ROOT)) for path in modules)
    assert files
    assert {folder: n for folder, n in files.items() if n > FILES_IN_A_FOLDER} == {}


def test_helpers_that_several_folders_use_are_tools():
    """Nobody imports from another one's test; from the test beside it, or from what its folder has, it may."""
    reaching = []
    for name in TESTS:
        for module in imported(name):
            parts = module.split(".")
            is_test = parts[0] == "tests" and any(part.startswith("test_") for part in parts)
            folder = name.rpartition("/")[0].replace("/", ".")
            if is_test and not module.startswith(f"{folder}."):
                reaching.append((name, module))
    assert reaching == []
