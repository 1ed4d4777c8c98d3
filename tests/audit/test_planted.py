"""The audit is worth something: right runs pass, and each bug that is planted in the engine is caught."""

import contextlib

import pytest

from penstock.engine.model.errors import JobExecutionError
from tests.audit.harness import Run
from tests.audit.plants import OF_UNALIGNED, PLANTS

# A cancelled task is interrupted anywhere, also where a file was just opened; the file is closed when nobody has it.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
ROCKSDB = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
}
ROUNDS = 6
"""Some bugs only show when threads take turns in a certain order: a plant has so many runs to be caught in."""


@pytest.mark.parametrize(
    ("parallelism", "settings"),
    [
        (2, {}),
        pytest.param(2, UNALIGNED, marks=pytest.mark.long),
        pytest.param(2, ROCKSDB, marks=pytest.mark.long),
        pytest.param(1, {}, marks=pytest.mark.long),
        pytest.param(3, {}, marks=pytest.mark.long),
        pytest.param(3, UNALIGNED, marks=pytest.mark.long),
    ],
    ids=lambda value: next(iter(value), "aligned") if isinstance(value, dict) else None,
)
def test_without_a_bug_nothing_is_wrong(tmp_path, monkeypatch, parallelism, settings):
    with contextlib.closing(Run(tmp_path, monkeypatch)) as run:
        script = run.execute(parallelism=parallelism, **settings)
        assert run.problems() == []
        assert script.restarts >= 4
        assert min(check.rows for check in run.auditor.checks.values()) > 50


IN_EVERY_RUN = {
    "readers_forget_their_splits",
}
"""The others are `long`."""


def plants():
    assert {plant.__name__ for plant in PLANTS + OF_UNALIGNED} >= IN_EVERY_RUN
    for plant in PLANTS + OF_UNALIGNED:
        marks = [] if plant.__name__ in IN_EVERY_RUN else [pytest.mark.long]
        yield pytest.param(plant, id=plant.__name__, marks=marks)


@pytest.mark.parametrize("plant", list(plants()))
def test_a_planted_bug_is_caught(tmp_path, plant):
    settings = UNALIGNED if plant in OF_UNALIGNED else {}
    caught = []
    for number in range(ROUNDS):
        if caught := what_is_noticed(tmp_path / str(number), plant, settings):
            break
    assert caught, f"nobody noticed: {plant.__doc__}"


def what_is_noticed(folder, plant, settings):
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Run(folder, patch)) as run:
        plant(patch)
        try:
            run.execute(**settings)
        except (JobExecutionError, TimeoutError) as error:
            return [f"the job failed: {error}"]
        return run.problems()
