"""The drawn state machines are those of the tables."""

import pytest

from penstock.engine.model.states import ExecutionState, JobStatus, SlotState
from scripts.state_diagrams import ATTEMPT_PLACES, JOB_PLACES, SLOT_PLACES, documents


@pytest.mark.parametrize(
    ("path", "text"), [pytest.param(path, text, id=path.name) for path, text in documents().items()]
)
def test_the_diagrams_are_up_to_date(path, text) -> None:
    assert path.read_text("utf-8") == text, "run: python -m scripts.state_diagrams"


def test_every_state_has_its_place() -> None:
    assert set(ATTEMPT_PLACES) == set(ExecutionState) - {ExecutionState.RECONCILING}
    assert set(SLOT_PLACES) == set(SlotState)
    assert set(JOB_PLACES) == set(JobStatus) - {JobStatus.RECONCILING}
