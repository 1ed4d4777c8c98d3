"""A task that begins with a snapshot goes on exactly where that was taken: nothing is lost, nothing comes twice."""

import pickle
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import CheckpointOptions, RedistributionMode
from penstock.engine.runtime.checkpoint.subtask import EndHooks, SubtaskCheckpoints
from penstock.engine.runtime.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfData,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.state.snapshot import IN_HAND, ListPart, OperatorSnapshot
from penstock.engine.runtime.task.input_processor import InputStatus
from tests.tools.runtime.restoring import rescaled
from tests.tools.runtime.task_parts import Clock, ListInput, Remembering, task_of, values_of

BATCHES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), max_size=6)


class Running(Operator):
    """Each number becomes as many running sums, each of which takes its time."""

    def __init__(self, clock, ms_each) -> None:
        self.clock, self.ms_each = clock, ms_each
        self.total = 0

    def process(self, batch, input_index):
        for value in batch.values:
            self.is_in_record = True
            for _ in range(value):
                self.clock.spend_ms(self.ms_each)
                self.total += value
                yield RowBatch([self.total])
            self.is_in_record = False

    def snapshot(self):
        return OperatorSnapshot(lists={"total": ListPart(RedistributionMode.SPLIT, [self.total])})

    def restore(self, snapshot):
        (self.total,) = snapshot.elements("total")


class Head(Operator):
    """The source: what it makes comes from its input."""


def elements(batches):
    found = []
    for number, batch in enumerate(batches):
        found += [RowBatch(batch), Watermark(number)]
    return [*found, EndOfData()]


def started(given_elements, ms_each, out, state=None, restored_id=None, **parts):
    clock = Clock()
    source = ListInput(is_closed=True, is_source=True)
    source.elements = deque((0, one) for one in given_elements)
    running = Running(clock, ms_each)
    parts.setdefault("checkpoints", SubtaskCheckpoints(restored_id))
    task = task_of([Head(), running], source, [out], clock, **parts)
    if state is not None:
        head, tail = state
        task.restore_in_hand(head.elements(IN_HAND))
        running.restore(tail)
    return task


def run(task, out):
    """To the end; an output that is full gets room for one more."""
    while task.process_input() is not InputStatus.END_OF_INPUT:
        if not task.is_output_available:
            out.room = len(out.written) + 1


@given(BATCHES, st.sampled_from([0.01, 1.0, 4.0]), st.integers(0, 30), st.booleans())
def test_a_restored_task_goes_on_where_its_snapshot_was_taken(batches, ms_each, turns, is_slow):
    whole = Remembering()
    run(started(elements(batches), ms_each, whole), whole)

    taken = []
    out = Remembering(room=1 if is_slow else None)
    task = started(
        elements(batches),
        ms_each,
        out,
        on_snapshot=lambda snapshot: taken.append((snapshot, list(task.input.elements))),
    )
    for _ in range(turns):
        task.process_input()
        if is_slow and not task.is_output_available:
            out.room = len(out.written) + 1
    if not task.input.is_finished:
        task.trigger_checkpoint(CheckpointBarrier(1, 0))
    run(task, out)
    assert out.values == whole.values
    if not taken:
        return

    ((snapshot, left),) = taken
    before = out.written[: out.written.index(snapshot.barrier)]
    state = []
    for uid in ("uid0", "uid1"):
        (found,) = rescaled([snapshot.operators.get(uid, OperatorSnapshot())], 1)
        state.append(found)
    again = Remembering()
    second = started([one for _, one in left], ms_each, again, state, restored_id=1)
    run(second, again)
    assert values_of(before) + again.values == whole.values
    assert again.written[-1] == EndOfData()


@given(
    st.lists(
        st.tuples(st.sampled_from(["trigger", "abort", "complete", "turn"]), st.integers(1, 6))
    )
)
def test_each_checkpoint_is_taken_at_most_once_and_in_order(events):
    out, taken = Remembering(), []
    task = started(
        [], 1.0, out, on_snapshot=lambda snapshot: taken.append(snapshot.barrier.checkpoint_id)
    )
    task.input.is_closed = False
    aborted = set()
    for kind, number in events:
        if kind == "trigger":
            task.trigger_checkpoint(CheckpointBarrier(number, 0))
        elif kind == "abort":
            task.notify_checkpoint_aborted(number, -1)
            aborted.add(number)
        elif kind == "complete":
            task.notify_checkpoint_complete(number)
        task.process_input()
    assert taken == sorted(set(taken))
    sent = [one.checkpoint_id for one in out.written if isinstance(one, CheckpointBarrier)]
    assert sent == taken
    given_up = [one.checkpoint_id for one in out.written if isinstance(one, CancelCheckpointMarker)]
    assert set(given_up) <= aborted
    assert not set(given_up) & set(taken)


@given(BATCHES, st.integers(0, 5))
def test_a_task_with_a_final_checkpoint_ends_after_it_and_not_before(batches, early):
    out = Remembering()
    task = started(
        elements(batches),
        0.01,
        out,
        checkpoints=SubtaskCheckpoints(has_final_checkpoint=True),
        on_snapshot=lambda snapshot: pickle.dumps(snapshot.operators),
    )
    for number in range(early):
        task.trigger_checkpoint(CheckpointBarrier(number + 1, 0))
        task.process_input()
    while task.process_input() is not InputStatus.NOTHING_AVAILABLE:
        pass
    end = out.written.index(EndOfData())
    if any(isinstance(one, CheckpointBarrier) for one in out.written[end:]):
        return  # a trigger was early, but not early enough
    before_end = [
        one.checkpoint_id for one in out.written[:end] if isinstance(one, CheckpointBarrier)
    ]
    for number in before_end:
        task.notify_checkpoint_complete(number)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert not out.is_ended
    task.trigger_checkpoint(CheckpointBarrier(10, 0))
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    task.notify_checkpoint_complete(10)
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert out.is_ended


def test_a_task_that_has_read_all_takes_what_is_overdue_with_what_it_has_in_hand():
    """Its output stands still; what it is triggered for does not wait for that
    (docs/spec/checkpoints.md#finished-tasks).
    """
    clock, out, taken = Clock(), Remembering(room=1), []
    rows = ListInput((0, RowBatch([1, 1, 1])), is_closed=True)
    task = task_of([Running(clock, 0.01)], rows, [out], clock, on_snapshot=taken.append)
    assert task.process_input() is InputStatus.MORE_AVAILABLE
    assert out.values == [1] and not task.is_output_available
    task.trigger_checkpoint(CheckpointBarrier(1, 0, CheckpointOptions(is_unaligned=True)))
    task.process_input()
    (snapshot,) = taken
    assert values_of(one for _, one in snapshot.in_hand) == [1, 1]
    assert out.written[1] == snapshot.barrier


def test_a_task_ends_when_its_consumers_have_read_everything():
    out, are_read = Remembering(), []
    hooks = EndHooks(are_records_read=lambda: bool(are_read))
    task = started(elements([[1]]), 0.01, out, checkpoints=SubtaskCheckpoints(hooks=hooks))
    assert run_while_there_is_something(task) is InputStatus.NOTHING_AVAILABLE
    assert out.written[-1] == EndOfData() and not out.is_ended
    are_read.append(True)
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert task.is_done


def run_while_there_is_something(task):
    while (status := task.process_input()) is InputStatus.MORE_AVAILABLE:
        pass
    return status


class PuttingOff(Operator):
    """Commits what each checkpoint covers at the third try."""

    def __init__(self) -> None:
        self.tries = 0
        self.is_waiting = False

    @property
    def has_put_off(self):
        return self.is_waiting

    def open(self, context):
        self.timers = context.timers

    def notify_checkpoint_complete(self, checkpoint_id):
        self._try()

    def on_processing_time(self, now_ms):
        self._try()
        return ()

    def _try(self):
        self.tries += 1
        self.is_waiting = self.tries < 3
        if self.is_waiting:
            self.timers.schedule(self.timers.now_ms() + 1000)


def test_a_task_at_its_end_waits_for_commits_that_were_put_off():
    clock, out = Clock(), Remembering()
    source = ListInput((0, EndOfData()), is_closed=True, is_source=True)
    committer = PuttingOff()
    final = SubtaskCheckpoints(has_final_checkpoint=True)
    task = task_of([Head(), committer], source, [out], clock, checkpoints=final)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    task.trigger_checkpoint(CheckpointBarrier(1, 0))
    task.process_input()
    task.notify_checkpoint_complete(1)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert committer.tries == 1
    clock.spend_ms(1000)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert committer.tries == 2
    clock.spend_ms(1000)
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert committer.tries == 3


def test_other_timers_are_silent_behind_the_end_of_the_data():
    class Ticking(Operator):
        def open(self, context):
            context.timers.schedule(5)

        def on_processing_time(self, now_ms):
            raise AssertionError("a timer fired behind the end")

    clock, out = Clock(), Remembering()
    source = ListInput((0, EndOfData()), is_closed=True, is_source=True)
    final = SubtaskCheckpoints(has_final_checkpoint=True)
    task = task_of([Head(), Ticking()], source, [out], clock, checkpoints=final)
    task.process_input()
    clock.spend_ms(10)
    assert task.next_timer_ms() is None
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE


class Overtaking(ListInput):
    """What `priority` holds overtakes, or has come where something was told to overtake."""

    def __init__(self, *elements) -> None:
        super().__init__(*elements)
        self.priority: deque = deque()

    def poll_priority(self):
        return (0, [self.priority.popleft()]) if self.priority else None


def test_a_barrier_passes_a_full_output_and_takes_what_is_in_hand_along():
    clock, out = Clock(), Remembering(room=1)
    given = Overtaking((0, RowBatch([1, 2, 3, 4])))
    taken = []
    task = task_of([Running(clock, 0.01)], given, [out], clock, on_snapshot=taken.append)
    task.process_input()
    assert not task.is_output_available
    unaligned = CheckpointBarrier(1, 0, CheckpointOptions(is_unaligned=True))
    given.priority.append(unaligned)
    task.notice_priority()
    task.process_input()
    assert unaligned in out.written
    (snapshot,) = taken
    done = values_of(out.written[: out.written.index(unaligned)])
    assert done == [1]
    assert values_of(batch for _, batch in snapshot.in_hand) == [2, 3, 4]
    assert not task.is_output_available


def test_records_that_come_where_a_barrier_was_told_of_keep_their_turn():
    clock, out = Clock(), Remembering(room=1)
    given = Overtaking((0, RowBatch([1, 2, 3])), (0, RowBatch([5])))
    task = task_of([Running(clock, 0.01)], given, [out], clock)
    task.process_input()
    given.priority.append(RowBatch([4]))
    task.notice_priority()
    task.process_input()
    assert len(out.values) == 1
    out.room = None
    task.process_input()
    whole = Remembering()
    other = task_of(
        [Running(Clock(), 0)], ListInput((0, RowBatch([1, 2, 3, 4, 5]))), [whole], Clock()
    )
    other.process_input()
    assert out.values == whole.values
