"""The audit is worth something: right runs pass, and each bug that is planted in the engine is caught."""

import pytest

from penstock.model.errors import JobExecutionError
from tests.audit.harness import Run
from tests.audit.plants import PLANTS


@pytest.fixture
def run(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch)
    yield run
    run.log.close()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_without_a_bug_nothing_is_wrong(run, parallelism):
    script = run.execute(parallelism=parallelism)
    assert run.problems() == []
    assert script.restarts >= 4
    assert min(check.rows for check in run.auditor.checks.values()) > 50


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(run, monkeypatch, plant):
    plant(monkeypatch)
    try:
        run.execute()
    except (JobExecutionError, TimeoutError) as error:
        caught = [f"the job failed: {error}"]
    else:
        caught = run.problems()
    assert caught, f"nobody noticed: {plant.__doc__}"
