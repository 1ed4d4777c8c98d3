"""Effects of checkpoints, carried out by the driver's shell: who is asked to do what, and when it says it was."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.jobmanager import machine_shell
from penstock.engine.hosting.jobmanager.checkpoint_writer import NoCheckpoints
from penstock.engine.hosting.jobmanager.machine_shell import (
    JobManagerSettings,
    JobParts,
    MachineShell,
)
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.resources.resource_manager import ResourceSettings
from penstock.engine.model.checkpoints import CheckpointOptions, CheckpointType, CompletedCheckpoint
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId, ResourceId, VertexId
from penstock.engine.model.messages import (
    DiscardCheckpoint,
    SavepointAnswered,
    SnapshotCoordinators,
    StoreCheckpoint,
    TriggerCheckpoint,
)
from penstock.engine.model.states import JobStatus
from tests.tools.machines.job_graphs import job_graph

ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)
CHECKPOINT = CompletedCheckpoint(1, JobId("job"), CheckpointType.CHECKPOINT, 700, ())


class Recorder:
    """A driver's shell whose surroundings note what they are asked to do."""

    def __init__(self, gone=None) -> None:
        self.done = []
        sent = SimpleNamespace(send=lambda resource_id, message: self.done.append(message))
        checkpoints = SimpleNamespace(
            keep=self.done.append, coordinate=self.done.append, answer=self.done.append
        )
        host = SimpleNamespace(
            slots_per_taskmanager=1, max_taskmanagers=lambda: None, gone=lambda: gone
        )
        settings = JobManagerSettings(JobSettings(), ResourceSettings(), TaskSettings(), 1, 5, 5, 5)
        parts = JobParts(job_graph({"A": 1}, []), (), host, settings, JobObserver())
        self.shell = MachineShell(parts, sent, None, None, checkpoints, lambda: None)

    def carry_out(self, effect) -> object:
        machine_shell.JOB_EFFECTS[type(effect)](self.shell, effect)
        return self.done[-1]


@pytest.fixture
def clocks(monkeypatch) -> None:
    """1000 on the machines' clock is 5000 on the wall."""
    monkeypatch.setattr(machine_shell, "now_ms", lambda: 1000)
    monkeypatch.setattr(machine_shell, "wall_ms", lambda: 5000)


@pytest.mark.usefixtures("clocks")
def test_tasks_are_told_the_time_on_the_wall() -> None:
    trigger = TriggerCheckpoint(ResourceId("tm"), (ATTEMPT,), 1, 700, CheckpointOptions())
    assert Recorder().carry_out(trigger).timestamp_ms == 4700


@pytest.mark.usefixtures("clocks")
def test_so_is_the_storage() -> None:
    assert Recorder().carry_out(StoreCheckpoint(CHECKPOINT)).checkpoint.timestamp_ms == 4700


@pytest.mark.parametrize(
    "effect",
    [SnapshotCoordinators(1), DiscardCheckpoint(CHECKPOINT), SavepointAnswered("me", "there")],
)
def test_the_rest_goes_on_as_it_is(effect) -> None:
    assert Recorder().carry_out(effect) is effect


def test_a_driver_that_keeps_no_checkpoints_takes_their_effects_without_complaint() -> None:
    nobody = NoCheckpoints()
    nobody.keep(DiscardCheckpoint(CHECKPOINT))
    nobody.coordinate(SnapshotCoordinators(1))
    nobody.answer(SavepointAnswered("me", None))


@pytest.mark.parametrize(
    ("status", "is_recoverable", "gone", "is_kept"),
    [
        (JobStatus.FAILED, True, "the SparkSession was stopped", True),
        (JobStatus.FAILED, True, None, False),
        (JobStatus.FAILED, False, "the SparkSession was stopped", False),
        (JobStatus.CANCELED, True, "the SparkSession was stopped", False),
        (JobStatus.RUNNING, True, "the SparkSession was stopped", False),
    ],
)
def test_the_checkpoints_of_a_job_that_is_left_to_another_driver_stay(
    status, is_recoverable, gone, is_kept
) -> None:
    recorder = Recorder(gone)
    recorder.shell.guard.is_recoverable = is_recoverable
    recorder.shell.status = status
    discard = DiscardCheckpoint(CHECKPOINT)
    machine_shell.JOB_EFFECTS[DiscardCheckpoint](recorder.shell, discard)
    assert recorder.done == ([] if is_kept else [discard])
