"""The programs in README and docs do what they say: each is run, with its own assertions, and prints what stands below it."""

import pytest

from penstock.engine.hosting.program import spark_host as session
from penstock.testing import MiniCluster
from tests.docs.snippets import PAGES, PROGRAMS, run


@pytest.fixture(scope="module")
def cluster():
    return MiniCluster()


@pytest.fixture
def threads(cluster):
    """Programs that choose no cluster run in this process."""
    session.override_executor(cluster.executor())
    yield
    session.override_executor(None)


def ids(programs):
    return [pytest.param(program, id=program.name) for program in programs]


@pytest.mark.parametrize("program", ids(p for p in PROGRAMS if not p.needs_spark))
@pytest.mark.usefixtures("threads")
def test_a_program_does_what_it_says(program, tmp_path, monkeypatch, capsys):
    run(program, tmp_path, monkeypatch, capsys)


@pytest.mark.spark
@pytest.mark.parametrize("program", ids(p for p in PROGRAMS if p.needs_spark))
def test_a_program_on_spark_does_what_it_says(program, spark, tmp_path, monkeypatch, capsys):
    run(program, tmp_path, monkeypatch, capsys, spark=spark)


def test_every_python_block_is_run():
    blocks = sum(page.read_text("utf-8").count("```python") for page in PAGES)
    assert blocks == sum(len(program.parts) for program in PROGRAMS)
    assert any(program.page.name == "README.md" for program in PROGRAMS)
