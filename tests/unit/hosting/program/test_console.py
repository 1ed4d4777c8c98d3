"""What the console says of checkpoints: failures of their own, and what a restart begins with."""

import pytest

from penstock.hosting.program.console import Console
from penstock.model.checkpoints import CheckpointMetrics, CheckpointType
from penstock.model.config import Settings
from penstock.model.ids import ExecutionVertexId, VertexId
from penstock.model.messages import CheckpointEnded, CheckpointFailureReason, ResetSubtasks
from penstock.model.states import JobStatus


@pytest.fixture
def said(capfd):
    """What a console says that `act` is given."""

    def run(act):
        console = Console(Settings({"penstock.console.progress": "false"}))
        act(console)
        console.job_ended(JobStatus.FINISHED, None)
        return capfd.readouterr().err

    return run


def ended(kind=CheckpointType.CHECKPOINT, location=None, reason=None, text=""):
    return CheckpointEnded(7, kind, 0, 0, CheckpointMetrics(), location, reason, text)


def test_a_checkpoint_that_failed_is_told_with_its_cause(said):
    failed = ended(reason=CheckpointFailureReason.CHECKPOINT_EXPIRED, text="not acknowledged")
    assert said(lambda console: console.checkpoint_ended(failed)) == (
        "penstock: checkpoint 7 failed (CHECKPOINT_EXPIRED): not acknowledged\n"
    )
    failed = ended(
        CheckpointType.SAVEPOINT, None, CheckpointFailureReason.IO_EXCEPTION, "disk full"
    )
    assert "savepoint 7 failed" in said(lambda console: console.checkpoint_ended(failed))


@pytest.mark.parametrize(
    "one",
    [ended(location="there"), ended(reason=CheckpointFailureReason.COORDINATOR_SUSPEND)],
    ids=["complete", "a restart made it pointless"],
)
def test_others_are_not(said, one):
    assert said(lambda console: console.checkpoint_ended(one)) == ""


@pytest.mark.parametrize(
    ("checkpoint_id", "what"),
    [(7, "restarted subtasks: 1, from checkpoint 7;"), (None, "from the start of their sources")],
)
def test_a_restart_says_what_it_begins_with(said, checkpoint_id, what):
    reset = ResetSubtasks((ExecutionVertexId(VertexId("v"), 0),), False, checkpoint_id)
    assert what in said(lambda console: console.restarting(reset))
