"""A job of two vertices, told event by event."""

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.model.checkpoints import (
    CheckpointMetrics,
    CheckpointOptions,
    CheckpointType,
    SubtaskState,
)
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    ExecutionVertexId,
    JobId,
    ResourceId,
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.model.job_events import TaskDeployed
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointEnded,
    ExecutionStateChanged,
    JobStatusChanged,
    RecentFigures,
    RegisterTaskManager,
    TaskIo,
    TaskIoReported,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.jobs.record import JobRecord
from penstock.ops.jobs.snapshots import CheckpointFacts, InputFacts, JobFacts, VertexFacts

JOB = JobId("a" * 32)
SOURCE, SINK = VertexId("1" * 32), VertexId("2" * 32)
PLACE = TaskManagerLocation(ResourceId("tm-1"), "host-a", 5001)
BEGAN = 1_000_000


def io_of(**counters):
    """A report of a task. What ends in `_per_s` is of the last seconds."""
    recent = {name: counters.pop(name) for name in list(counters) if name.endswith("_per_s")}
    return TaskIo(**counters, recent=RecentFigures(**recent))


def facts(parallelism=2, **more):
    source = VertexFacts(SOURCE, "Source: Numbers -> Map", parallelism, 128, "default", (), ())
    edge = InputFacts(SOURCE, "HASH", "pipelined_bounded", "data set")
    sink = VertexFacts(SINK, "Reduce -> Sink: <out>", parallelism, 128, "default", (), (edge,))
    known = {"checkpoints": CheckpointFacts(CheckpointSettings(interval_ms=1000))} | more
    job_type = known.pop("job_type", JobType.STREAMING)
    vertices = known.pop("vertices", (source, sink))
    return JobFacts(JOB, "job", job_type, vertices, BEGAN, **known)


def attempt(vertex_id=SOURCE, subtask=0, number=0):
    return AttemptId(ExecutionVertexId(vertex_id, subtask), number)


class ToldJob:
    """A record, and a clock that the test moves."""

    def __init__(self, **more) -> None:
        self.record = JobRecord(facts(**more))
        self.now = BEGAN

    def tell(self, event, after_ms=0):
        self.now += after_ms
        self.record.apply(event, self.now)
        return self

    def status(self, status, after_ms=0, failure=None):
        return self.tell(JobStatusChanged(JobStatus(status), 0, failure), after_ms)

    def moves(self, attempt_id, *states, after_ms=0):
        former = ExecutionState.CREATED
        for state in map(ExecutionState, states):
            self.tell(ExecutionStateChanged(attempt_id, former, state, 0), after_ms)
            former = state
        return self

    def deployed(self, attempt_id, slot="slot-1"):
        return self.tell(TaskDeployed(attempt_id, PLACE, AllocationId(slot)))

    def runs(self, *, vertices=(SOURCE, SINK), number=0, parallelism=2):
        """All subtasks run."""
        for vertex_id in vertices:
            for subtask in range(parallelism):
                one = attempt(vertex_id, subtask, number)
                self.moves(one, "SCHEDULED", "DEPLOYING").deployed(one, f"slot-{subtask}")
                self.moves(one, "INITIALIZING", "RUNNING")
        return self

    def has(self, attempt_id, **counters):
        return self.tell(TaskIoReported(((attempt_id, io_of(**counters)),), 0))

    def registers(self, slots=2):
        registered = RegisterTaskManager(PLACE.resource_id, "host-a", 5001, slots, 1, 2, "3.11")
        return self.tell(registered)

    def triggers(self, checkpoint_id, kind="CHECKPOINT", after_ms=0):
        options = CheckpointOptions(CheckpointType(kind))
        first = TriggerCheckpoint(PLACE.resource_id, (attempt(),), checkpoint_id, 0, options)
        return self.tell(first, after_ms)

    def acknowledges(self, checkpoint_id, attempt_id, after_ms=0, **metrics):
        measured = CheckpointMetrics(**metrics)
        told = AcknowledgeCheckpoint(attempt_id, checkpoint_id, SubtaskState(), measured)
        return self.tell(told, after_ms)

    def ends(self, checkpoint_id, kind="CHECKPOINT", after_ms=0, **more):
        known = {"location": f"/chk-{checkpoint_id}"} | more
        told = CheckpointEnded(
            checkpoint_id, CheckpointType(kind), 0, 0, CheckpointMetrics(), **known
        )
        return self.tell(told, after_ms)

    def now_it_is(self, after_ms=0):
        """The snapshot."""
        self.now += after_ms
        return self.record.snapshot(self.now)
