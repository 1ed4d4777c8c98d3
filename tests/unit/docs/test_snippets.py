"""The examples of the documents do what they say: each is run, with its own assertions, and prints what stands below it."""

import re
import runpy
from pathlib import Path

import pytest

from penstock.hosting.spark import host as session
from penstock.testing import MiniCluster

DOCS = Path(__file__).parents[3] / "docs"
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
SNIPPETS = [
    pytest.param(found["code"], found["printed"], id=f"{path.stem}-{number}")
    for path in sorted(DOCS.glob("*.md"))
    for number, found in enumerate(PYTHON.finditer(path.read_text("utf-8")), 1)
    if "spark" not in found["code"]
]


@pytest.fixture
def threads():
    """Programs that choose no cluster run in this process."""
    session.override_executor(MiniCluster().executor())
    yield
    session.override_executor(None)


@pytest.mark.parametrize(("code", "printed"), SNIPPETS)
@pytest.mark.usefixtures("threads")
def test_a_snippet_does_what_it_says(code, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "snippet.py"
    script.write_text(code, "utf-8")
    runpy.run_path(str(script), run_name="__main__")
    if printed is not None:
        assert sorted(capsys.readouterr().out.splitlines()) == sorted(printed.splitlines())


def test_there_are_snippets():
    assert len(SNIPPETS) >= 10
