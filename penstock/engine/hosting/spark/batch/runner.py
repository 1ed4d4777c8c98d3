"""The port through which stages run, and a runner in this process for tests and debugging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.engine.hosting.shipping.pickling import serialize
from penstock.engine.hosting.spark.batch.batch_task import BatchTask
from penstock.engine.hosting.spark.batch.plan import Orders, Plan, Stage
from penstock.engine.hosting.spark.dataframes.source import Frame
from penstock.engine.hosting.taskmanager.task.failures import user_failure
from penstock.engine.model.errors import UserCodeError
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.messages.batch import AttemptSeen
from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.error_text import traceback_of


class StageError(Exception):
    """The host has given up a stage."""

    def __init__(self, failure: FailureInfo) -> None:
        super().__init__(failure.text)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class StageResult:
    """`bytes_by_partition`: sizes in the stage's shuffle. `for_driver`: records of the driver's
    partition.
    """

    bytes_by_partition: tuple[int, ...]
    for_driver: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class StageOrder:
    """What a runner needs to run one stage.

    `reads`: reduce partitions of each subtask; empty for a source. `splits`: splits of a source by
    subtask, else empty. `report`: called from any thread with each change of an attempt. `frame`:
    the DataFrame that the stage reads, or None.
    """

    stage: Stage
    orders: Orders
    reads: Sequence[Sequence[int]]
    splits: Sequence[Sequence[Any]]
    report: Callable[[AttemptSeen], None]
    frame: Frame | None = None


class StageRunner(Protocol):
    """Runs the stages of one job. `run` may be called from several threads at once, for stages that
    do not wait for each other.
    """

    def run(self, order: StageOrder) -> StageResult:
        """Return when all subtasks have finished. Raises: StageError."""

    def cancel(self, vertex_id: VertexId) -> None:
        """Make the stage's `run` raise soon. Any thread."""

    def close(self) -> None:
        """Release the shuffled data."""


@dataclass(slots=True)
class ThreadRunner:
    """Runs one subtask after the other on the calling thread; shuffled data stays in memory."""

    plan: Plan
    _shuffled: dict[VertexId, list[list[bytes]]] = field(default_factory=dict)
    _canceled: set[VertexId] = field(default_factory=set)

    def run(self, order: StageOrder) -> StageResult:
        stage = order.stage
        vertex_id, made = stage.vertex_id, [list[bytes]() for _ in range(self.plan.partitions)]
        for subtask in range(stage.vertex.parallelism):
            order.report(AttemptSeen(vertex_id, subtask, 0, ExecutionState.RUNNING))
            try:
                self._run_subtask(order, subtask, made)
            except StageError as error:
                failed = AttemptSeen(vertex_id, subtask, 0, ExecutionState.FAILED, error.failure)
                order.report(failed)
                raise
            order.report(AttemptSeen(vertex_id, subtask, 0, ExecutionState.FINISHED))
        self._shuffled[vertex_id] = made
        sizes = tuple(sum(map(len, records)) for records in made)
        return StageResult(sizes, made[self.plan.driver_partition])

    def _run_subtask(self, order: StageOrder, subtask: int, made: list[list[bytes]]) -> None:
        stage = order.stage
        if stage.inputs:
            records = [
                one
                for place in order.reads[subtask]
                for producer in stage.producers
                for one in self._shuffled[producer][place]
            ]
        elif order.frame is not None:
            records = order.frame.collected(stage.vertex.parallelism, subtask)
        else:
            records = [serialize(order.splits[subtask])]
        try:
            for partition, record in BatchTask(order.orders, subtask, 0, iter(records)).run():
                made[partition].append(record)
                if stage.vertex_id in self._canceled:
                    break
        except Exception as error:  # As on Spark, an error of a subtask fails the stage.
            failure = failure_of(error, is_full=order.orders.settings.shows_all_frames)
            raise StageError(failure) from error
        if stage.vertex_id in self._canceled:
            raise StageError(FailureInfo("JobCancelled", "the stage was cancelled"))

    def cancel(self, vertex_id: VertexId) -> None:
        self._canceled.add(vertex_id)

    def close(self) -> None:
        self._shuffled.clear()


def failure_of(error: Exception, where: str = "", *, is_full: bool = False) -> FailureInfo:
    """Return a user's error as it was reported; any other error with its traceback. The others: as in `failure_info`."""
    if isinstance(error, UserCodeError):
        return FailureInfo("UserCodeError", user_failure(error, where, is_full), is_user_code=True)
    text = "\n".join(filter(None, [traceback_of(error), where]))
    return FailureInfo(type(error).__name__, text)
