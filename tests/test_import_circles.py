"""No circle of imports, those inside functions and those for type checkers included, but the one that a fluent API is.

A circle is a set of modules of which each one can be reached from each other one along imports.
"""

import ast
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("penstock", "simulation")
DECLARED = "penstock.datastream.data_stream"
"""The folder whose modules may know each other: what a method of one stream class gives is a stream of another one."""
Graph = Mapping[str, Iterable[str]]


def graph_of(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """By module, the modules that it imports, wherever the statement stands."""
    paths = {
        module_at(path.relative_to(root)): path
        for package in packages
        for path in (root / package).rglob("*.py")
    }
    return {name: imported(path, name, paths.keys()) - {name} for name, path in paths.items()}


def module_at(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, name: str, modules: Container[str]) -> set[str]:
    """`from a import b` is an import of `a.b` where that is a module, else of `a`."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [[alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [[f"{base}.{alias.name}", base] for alias in node.names]
    known = ([name for name in names if name in modules] for names in found)
    return {names[0] for names in known if names}


def circles_of(graph: Graph) -> set[frozenset[str]]:
    """The strongly connected components of more than one module."""
    reach = {name: reached_from(name, graph) for name in graph}
    found = set()
    for name in graph:
        if name in reach[name]:
            found.add(frozenset(other for other in reach[name] if name in reach[other]))
    return found


def reached_from(name: str, graph: Graph) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in graph[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def told(circle: Iterable[str], graph: Graph) -> str:
    """The circle as arrows, one line for each module."""
    return "\n".join(
        f"  {one} -> {', '.join(sorted(set(graph[one]) & set(circle)))}" for one in sorted(circle)
    )


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return graph_of(ROOT, PACKAGES)


def test_only_the_stream_classes_know_each_other_in_a_circle(graph):
    circles = circles_of(graph)
    declared = [one for one in circles if all(name.startswith(f"{DECLARED}.") for name in one)]
    assert len(declared) == 1
    others = circles - set(declared)
    assert not others, "circles of imports:\n" + "\n\n".join(told(one, graph) for one in others)


@pytest.mark.parametrize(
    "statement",
    [
        "from pack import b",
        "from pack.b import thing",
        "import pack.b",
        "from . import b",
        "from .b import thing",
        "def late():\n    from pack.b import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.b import Thing",
    ],
)
def test_a_circle_is_found_however_the_import_is_written(tmp_path, statement):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "a.py").write_text(statement)
    (tmp_path / "pack" / "b.py").write_text("import pack.a")
    (tmp_path / "pack" / "c.py").write_text("import pack.a")
    found = circles_of(graph_of(tmp_path, ["pack"]))
    assert found == {frozenset({"pack.a", "pack.b"})}
