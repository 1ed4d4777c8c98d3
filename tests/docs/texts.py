"""All texts in the package's code, with `…` for what is filled in when it runs."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "penstock"


def plain(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(plain(part) or "…" for part in node.values)
    return None


@cache
def texts() -> tuple[str, ...]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = plain(node)
            if text is not None:
                found.append(" ".join(text.split()))
    return tuple(found)
