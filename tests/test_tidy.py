"""What no linter checks: sizes, module docstrings, machine paths, and that tests neither sleep nor skip."""

import ast
import re

import pytest

from tests.limits import MEASURES, PACKAGE, PYTHON, ROOT, TESTS, TRACKED, beyond, listed, tree

# PyFlink's own classes: many short methods under their names.
WIDE_CLASSES = {"DataStream", "KeyedStream", "StreamExecutionEnvironment", "ExecutionConfig"}
SLEEPS = {
    "tests/jobs/test_async_functions.py": "the async function under test takes its time",
    "tests/spark/test_operators.py": "the async function under test gives its loop a turn",
    "tests/spark/test_session.py": "the function under test never returns",
    "tests/spark/test_stuck_tasks.py": "the functions under test never return",
    "tests/spark/test_word_count.py": "the function under test never returns",
    "tests/spark/waiting.py": "between two looks at a file system, in another process",
    "tests/tools/waiting.py": "between two looks at what tells nobody",
    "tests/unit/engine/hosting/taskmanager/task/test_async_calls.py": "gives its loop a turn",
    "tests/unit/engine/runtime/records/test_output_copies.py": "gives its loop a turn",
    "tests/unit/testing/test_harness.py": "the async function under test gives its loop a turn",
}
"""Files that sleep: why that is no way of theirs to wait for another."""
SKIPS = re.compile(
    r"(pytest|unittest)\.(mark\.)?(skip|importorskip|xfail|skip[A-Z]\w*)|(pytest\.)?mark\.xfail"
)
FILE_LINES, CLASS_LINES, FUNCTION_LINES, PARAMETERS = 700, 400, 80, 7


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


def names_used(name: str) -> set[str]:
    """With what they are names of, as far as the text tells: `time.sleep`, `pytest.mark.skip`."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Attribute | ast.Name):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("name", TESTS)
def test_tests_neither_sleep_nor_skip(name):
    """A function under test may take its time, where it is said; a test waits for what it wants to see."""
    used = names_used(name)
    assert not {word for word in used if SKIPS.fullmatch(word)}
    sleeps = {word for word in used if word.split(".")[-1] == "sleep"}
    assert bool(sleeps) == (name in SLEEPS), f"{sleeps}; allowed: {SLEEPS.get(name)}"


def test_only_files_that_are_there_may_sleep():
    assert set(SLEEPS) <= set(TESTS)


@pytest.mark.parametrize("kind", MEASURES)
def test_limits_are_kept_but_by_those_that_are_listed(kind):
    """Who is listed may get better, never worse, and leaves the list with the limit: `python -m tests.limits`."""
    today, allowed = beyond(kind), listed()[kind]
    assert {name: count for name, count in today.items() if count > allowed.get(name, 0)} == {}
    assert sorted(set(allowed) - set(today)) == [], "keep the limit now: python -m tests.limits"


@pytest.mark.parametrize("name", PACKAGE)
def test_no_unfinished_marks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), f"{name} has an unfinished mark"


def test_what_needs_spark_or_a_browser_is_where_make_test_looks_for_it():
    folders = re.search(r"^WITH_SPARK := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    needs = re.compile(r"mark\.(spark|browser)\b")
    elsewhere = [
        name
        for name in TESTS
        if needs.search((ROOT / name).read_text(encoding="utf-8"))
        and not name.startswith((*(f"{folder}/" for folder in folders), "tests/foreign/"))
    ]
    assert elsewhere == []
