"""Limits that some files do not keep yet, and the list of those: tests/limits.json. `python -m tests.limits` makes its numbers smaller.

Counted are attributes of classes, modules of ours that a module imports, lines of code that are too long, and words that are banned, and private members that tests use. Whoever is not listed
keeps the limit; whoever is listed may only get better, and leaves the list when it keeps the limit.
"""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TRACKED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split("\0")
PYTHON = [name for name in TRACKED if name.endswith(".py") and (ROOT / name).exists()]
PACKAGE = [name for name in PYTHON if name.startswith("penstock/")]
TESTS = [name for name in PYTHON if name.startswith("tests/")]
BENCHMARKS = [name for name in PYTHON if name.startswith("benchmarks/")]
LISTED = Path(__file__).with_name("limits.json")
ATTRIBUTES, IMPORTS, LINE = 15, 25, 100
NOT_PRIVATE = {
    *("_fields", "_asdict", "_replace", "_exit", "_getframe", "_ipython_display_", "_repr_html_"),
    *("_active_spark_context", "_gateway", "_instantiatedSession", "_jsc", "_jvm", "_sc"),
}
BANNED = ("told", "tells", "tell", "behind", "beside", "so many", "goes on", "one of each")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tree(name: str) -> ast.Module:
    return ast.parse(text_of(name))


def attributes(cls: ast.ClassDef) -> set[str]:
    """Declared in the class, as a dataclass has them, or set on `self`."""
    declared = {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return declared | {
        node.attr
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def attributes_of_classes() -> Iterator[tuple[str, int]]:
    for name in PACKAGE:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef):
                yield f"{name}: {node.name}", len(attributes(node))


def imports_of_modules() -> Iterator[tuple[str, int]]:
    """How many modules of ours; those that only types want count, too."""
    for name in PACKAGE:
        found = set()
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        yield name, len({module for module in found if module.split(".")[0] == "penstock"})


def long_lines_of_files() -> Iterator[tuple[str, int]]:
    """Of code: docstrings and comments are prose, which an editor wraps."""
    for name in PYTHON:
        if all(len(line) <= LINE for line in text_of(name).splitlines()):
            yield name, 0
            continue
        prose = set()
        for node in ast.walk(tree(name)):
            value = getattr(node, "value", None)
            is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
            if isinstance(node, ast.Expr) and is_text:
                prose |= set(range(node.lineno, node.end_lineno + 1))
        lines = enumerate(text_of(name).splitlines(), 1)
        code = [line for number, line in lines if number not in prose]
        yield name, sum(len(line) > LINE for line in code if not line.lstrip().startswith("#"))


def banned_words() -> Iterator[tuple[str, int]]:
    """In code, docstrings and pages. Say: logs, returns, reports; after, downstream of, together with."""
    pages = [one for one in TRACKED if one.startswith("docs/") and one.endswith(".md")]
    texts = [text_of(name) for name in ("README.md", *pages, *PACKAGE) if (ROOT / name).exists()]
    for word in BANNED:
        yield word, sum(len(re.findall(rf"\b{word}\b", text, re.IGNORECASE)) for text in texts)


def private_members() -> Iterator[tuple[str, int]]:
    """How often tests reach for a member whose name begins with an underscore, of another object than their own. Names that a named
    tuple, Spark or a notebook gives are public.
    """
    for name in TESTS:
        yield name, sum(map(_is_private, ast.walk(tree(name))))


def _is_private(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or not re.fullmatch("_[^_].*", node.attr):
        return False
    of = node.value
    is_own = isinstance(of, ast.Name) and of.id in {"self", "cls"}
    is_inherited = isinstance(of, ast.Call) and ast.unparse(of.func) == "super"
    return not (is_own or is_inherited or node.attr in NOT_PRIVATE)


MEASURES = {
    "banned words": (0, banned_words),
    "attributes of a class": (ATTRIBUTES, attributes_of_classes),
    "modules imported by a module": (IMPORTS, imports_of_modules),
    "long lines in a file": (0, long_lines_of_files),
    "private members that tests use": (0, private_members),
}


def listed() -> dict[str, dict[str, int]]:
    return json.loads(LISTED.read_text(encoding="utf-8"))


def beyond(kind: str) -> dict[str, int]:
    """Who does not keep the limit today."""
    limit, measure = MEASURES[kind]
    return {name: count for name, count in measure() if count > limit}


def main() -> None:
    former = listed()
    smaller = {}
    for kind in MEASURES:
        today = beyond(kind)
        smaller[kind] = {
            name: min(count, today[name]) for name, count in former[kind].items() if name in today
        }
    LISTED.write_text(json.dumps(smaller, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
