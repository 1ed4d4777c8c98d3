"""The examples of the documents do what they say: each is run, with its own assertions, in a program of its own."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SNIPPETS = [
    pytest.param(found[1], id=f"{path.stem}-{number}")
    for path in sorted(DOCS.glob("*.md"))
    for number, found in enumerate(PYTHON.finditer(path.read_text("utf-8")), 1)
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "snippet.py"
    script.write_text(code, "utf-8")
    runpy.run_path(str(script), run_name="__main__")


def test_there_are_snippets():
    assert len(SNIPPETS) >= 4
