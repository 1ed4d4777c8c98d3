"""How commands write: nothing that others have named or sent steers the terminal."""

import argparse
import ast
import json
from pathlib import Path

from penstock.ops.cli.remote import texts
from penstock.ops.cli.remote.texts import complain, show, shown

COMMANDS = Path(texts.__file__).parents[1]
EVIL = "job \x1b]0;title\x07\x9b31m\rlast"
ESCAPED = r"job \u001b]0;title\u0007\u009b31m\u000dlast"


def test_texts_and_complaints_are_escaped(capsys):
    show(f"{EVIL}\n\tä")
    complain(EVIL)
    shown({}, argparse.Namespace(json=False), EVIL)
    told = capsys.readouterr()
    assert told.out == f"{ESCAPED}\n\tä\n{ESCAPED}\n"
    assert told.err == f"penstock: {ESCAPED}\n"


def test_json_is_escaped_and_has_the_name_as_it_is(capsys):
    shown({"name": EVIL}, argparse.Namespace(json=True), "")
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": EVIL}
    assert "\x9b" not in out


def test_commands_print_in_no_other_way():
    """Each `print` would be one more place that has to know of escapes. `top` has colours of its own."""
    found = [
        f"{path.relative_to(COMMANDS)}:{node.lineno}"
        for path in COMMANDS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert {one.partition(":")[0] for one in found} == {"remote/texts.py", "top/command.py"}
