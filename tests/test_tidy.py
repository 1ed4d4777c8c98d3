"""What no linter checks: sizes, module docstrings, machine paths, and that tests do not sleep or skip."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRACKED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split("\0")
PYTHON = [name for name in TRACKED if name.endswith(".py") and (ROOT / name).exists()]
PACKAGE = [name for name in PYTHON if name.startswith("penstock/")]
TESTS = [name for name in PYTHON if name.startswith("tests/")]
# PyFlink's own classes: many short methods under their names.
WIDE_CLASSES = {"DataStream", "KeyedStream", "StreamExecutionEnvironment", "ExecutionConfig"}
FILE_LINES, CLASS_LINES, FUNCTION_LINES, PARAMETERS = 500, 300, 50, 7


def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def length(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("name", PYTHON)
def test_a_file_is_short(name):
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= FILE_LINES


@pytest.mark.parametrize("name", PACKAGE)
def test_a_module_says_what_it_is(name):
    source = tree(name)
    assert ast.get_docstring(source) or not source.body, f"{name} has no docstring"


@pytest.mark.parametrize("name", PACKAGE)
def test_functions_and_classes_are_short(name):
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert length(node) <= FUNCTION_LINES, f"{name}: {node.name} is too long"
            is_api = name.startswith(("penstock/datastream/", "penstock/common/"))
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            count = len([a for a in arguments if a.arg not in {"self", "cls"}])
            assert is_api or count <= PARAMETERS, f"{name}: {node.name} takes {count} parameters"
        elif isinstance(node, ast.ClassDef) and node.name not in WIDE_CLASSES:
            assert length(node) <= CLASS_LINES, f"{name}: class {node.name} is too long"


def test_nothing_names_a_machine_or_a_registry():
    pattern = re.compile(
        r"(^|[^A-Za-z0-9._-])/(work|root|farm)/|files\.pythonhosted|pypi\.org/simple"
    )
    found = []
    for name in TRACKED:
        path = ROOT / name
        if not name or not path.is_file() or name == "tests/test_tidy.py":
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [name for line in text.splitlines() if pattern.search(line)]
    assert not found


@pytest.mark.parametrize("name", TESTS)
def test_tests_neither_sleep_nor_skip(name):
    if name == "tests/test_tidy.py":
        return
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Attribute):
            word = f"{getattr(node.value, 'id', '')}.{node.attr}"
            # A function under test may sleep; a test may not wait by sleeping.
            assert word not in {"pytest.skip", "pytest.importorskip", "pytest.xfail", "mark.skip"}


@pytest.mark.parametrize("name", PACKAGE)
def test_no_unfinished_marks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), f"{name} has an unfinished mark"
