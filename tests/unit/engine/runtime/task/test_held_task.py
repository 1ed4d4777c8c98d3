"""StreamTask: a task that stops behind its snapshot, for another generation of the job to go on."""

import pytest

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.subtask import SubtaskCheckpoints
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MIN_WATERMARK, CheckpointBarrier, EndOfData, RowBatch
from penstock.engine.runtime.operators import MapOperator
from penstock.engine.runtime.task.finished_chain import FinishedChain, FinishedSource
from penstock.engine.runtime.task.input_processor import InputStatus
from penstock.engine.runtime.task.stream_task import StreamTask
from tests.tools.runtime.task_parts import Clock, ListInput, Remembering, opened, spec_of, timing_of


class Sink(MapOperator):
    """Remembers what it was told, and when it was finished."""

    def __init__(self) -> None:
        super().__init__(UserFunction(lambda one: one))
        self.told: list[object] = []

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.append(checkpoint_id)

    def finish(self):
        self.told.append("finished")
        return ()


@pytest.fixture
def held():
    """(task, its output, its operator, its snapshots): one record and the barrier are read, another record waits."""
    clock, out, sink, snapshots = Clock(), Remembering(), Sink(), []
    barrier = CheckpointBarrier(7, 0, CheckpointOptions(is_held=True))
    read = ListInput((0, RowBatch([1])), (0, barrier), (0, RowBatch([2])))
    checkpoints = SubtaskCheckpoints(has_final_checkpoint=True)
    task = StreamTask(
        opened([sink], clock), read, [out], timing_of(clock), checkpoints, snapshots.append
    )
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    return task, out, sink, snapshots


def test_behind_its_snapshot_it_reads_nothing(held):
    task, out, _, snapshots = held
    assert [one.barrier.checkpoint_id for one in snapshots] == [7]
    assert out.values == [1]
    assert isinstance(out.written[-1], CheckpointBarrier)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert out.values == [1]
    assert task.next_timer_ms() is None
    assert out.flushes, "consumers wait for the barrier"


def test_after_an_abort_it_goes_on_where_it_was(held):
    task, out, sink, _ = held
    task.notify_checkpoint_aborted(7, -1)
    task.process_input()
    assert out.values == [1, 2]
    assert sink.told == []


def test_when_the_checkpoint_is_complete_it_commits_and_ends_without_finishing(held):
    task, out, sink, _ = held
    task.notify_checkpoint_complete(7)
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert sink.told == [7]
    assert out.values == [1], "the record that waits belongs to the next generation"
    assert out.written[-1] == EndOfData(drain=False)
    assert out.is_ended
    assert task.is_done


def test_a_task_whose_source_had_finished_tells_its_watermark():
    """It has no operators that could have made one."""
    clock = Clock()
    chain = FinishedChain(spec_of([Sink()]), clock.now_ms)
    task = StreamTask(chain, FinishedSource(), [Remembering()], timing_of(clock))
    assert task.reported_watermark_ms == MIN_WATERMARK
