"""Bookkeeping of exactly-once output. Expectations:
docs/spec/sources-and-sinks.md#two-phase-commit, #writers-and-committers.
"""

import pytest

from penstock.engine.model.errors import EngineBug, FinalError
from penstock.engine.runtime.checkpoint.two_phase_commit import CommitterState
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.operators import SinkOperator
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.sink import Committer, Sink
from tests.conformance.two_phase_commit import TwoPhaseCommit
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import rescaled


class Transactions:
    """Numbered; `failing` cannot be committed."""

    def __init__(self, failing=()):
        self.log = []
        self.begun = 0
        self.failing = failing

    def begin(self):
        self.begun += 1
        return self.begun

    def pre_commit(self, transaction):
        self.log.append(("pre-commit", transaction))

    def commit(self, transaction):
        self.log.append(("commit", transaction))
        if transaction in self.failing:
            raise OSError(f"transaction {transaction}")

    def abort(self, transaction):
        self.log.append(("abort", transaction))

    def done(self, what):
        return [transaction for word, transaction in self.log if word == what]


def test_a_completion_commits_everything_up_to_it_oldest_first():
    transactions = Transactions()
    sink = TwoPhaseCommit(transactions)
    for checkpoint_id in (1, 2, 3):
        sink.snapshot(checkpoint_id)
    sink.complete(2)
    assert transactions.done("commit") == [1, 2]
    sink.complete(1)
    sink.complete(3)
    assert transactions.done("commit") == [1, 2, 3]
    assert sink.open == 4
    sink.close()
    assert transactions.done("abort") == [4]


def test_all_commits_are_tried_and_the_first_error_is_raised_at_the_end():
    transactions = Transactions(failing={1, 2})
    sink = TwoPhaseCommit(transactions)
    for checkpoint_id in (1, 2, 3):
        sink.snapshot(checkpoint_id)
    with pytest.raises(OSError, match="transaction 1"):
        sink.complete(3)
    assert transactions.done("commit") == [1, 2, 3]


def test_a_restore_commits_what_its_checkpoint_covers_and_aborts_what_was_open():
    first = Transactions()
    sink = TwoPhaseCommit(first)
    sink.snapshot(1)
    state = sink.snapshot(2)
    second = Transactions()
    TwoPhaseCommit(second, [state])
    assert second.log == [("commit", 1), ("commit", 2), ("abort", 3)]


def test_committables_wait_for_their_checkpoint_and_those_put_off_for_a_second():
    calls = []
    put_off = [["b"], [], []]

    def commit(committables):
        calls.append(list(committables))
        return put_off.pop(0)

    state = CommitterState(commit)
    state.add(1, ["a", "b"])
    state.add(2, ["c"])
    state.add(3, ["d"])
    state.expect(2, 1)
    assert state.complete(2) == [2]
    assert calls == [["a", "b"], ["c"]]
    assert state.retry_after_ms == 1000
    assert state.pending() == [(1, "b"), (3, "d")]
    assert state.retry() == [1]
    assert calls[2:] == [["b"]]
    assert state.retry_after_ms is None
    assert state.take() == ["d"]
    assert state.pending() == []


@pytest.mark.parametrize("count", [0, 2])
def test_counts_must_match_the_summary(count):
    state = CommitterState(lambda _committables: None)
    state.add(4, ["a"])
    state.expect(4, count)
    with pytest.raises(EngineBug, match=f"checkpoint 4 has 1 committables.*announced {count}"):
        state.complete(4)


class Parts(Sink, Committer):
    """Sink, writer and committer in one: every checkpoint prepares one part."""

    accepts = Accepts.ANY

    def __init__(self):
        self.written = []
        self.committed = []
        self.put_off = 0

    def create_writer(self, context):
        self.restored_checkpoint_id = context.restored_checkpoint_id
        return self

    def create_committer(self):
        return self

    def write(self, batch: Batch, _watermark_ms):
        self.written += batch.values

    def prepare_commit(self):
        prepared, self.written = self.written, []
        return prepared

    def close(self):
        pass

    def commit(self, committables):
        if self.put_off:
            self.put_off -= 1
            return committables
        self.committed += committables
        return None

    def abort(self, job_prefix):
        pass


def sink_operator(parts, snapshot=None, **context):
    operator = SinkOperator(parts)
    if snapshot is not None:
        operator.restore(snapshot)
    return OperatorHarness(operator, **context)


def test_a_sink_commits_when_a_checkpoint_completes_and_hands_the_rest_to_the_driver():
    parts = Parts()
    op = sink_operator(parts)
    for checkpoint_id in (1, 2, 3):
        op.feed([checkpoint_id])
        op.take(op.operator.prepare_snapshot_pre_barrier(checkpoint_id))
    op.operator.notify_checkpoint_aborted(1)
    op.operator.notify_checkpoint_complete(2)
    assert parts.committed == [1, 2]
    op.feed([4])
    op.finish()
    assert op.committables == [3, 4]
    assert parts.committed == [1, 2]


def test_a_sink_with_a_final_checkpoint_waits_for_it():
    parts = Parts()
    op = sink_operator(parts, has_final_checkpoint=True)
    op.feed(["last"])
    op.take(op.operator.finish())
    op.take(op.operator.prepare_snapshot_pre_barrier(7))
    assert (op.committables, parts.committed) == ([], [])
    op.operator.notify_checkpoint_complete(7)
    assert parts.committed == ["last"]


def test_a_restored_sink_commits_at_once_what_its_checkpoint_had_prepared():
    subtasks = [sink_operator(Parts(), subtask=index, parallelism=2) for index in range(2)]
    for op in subtasks:
        op.feed([f"part of {op.context.subtask}"])
        op.take(op.operator.prepare_snapshot_pre_barrier(5))
    snapshots = [op.operator.snapshot().freeze(plain_dumps) for op in subtasks]
    (restored,) = rescaled(snapshots, 1)
    parts = Parts()
    op = sink_operator(parts, restored, restored_checkpoint_id=5)
    assert sorted(parts.committed) == ["part of 0", "part of 1"]
    assert parts.restored_checkpoint_id == 5
    assert op.operator.snapshot().elements("committables") == []


def test_a_commit_that_is_put_off_is_tried_again_after_a_second():
    parts = Parts()
    parts.put_off = 2
    op = sink_operator(parts)
    op.feed(["a"])
    op.take(op.operator.prepare_snapshot_pre_barrier(1))
    op.operator.notify_checkpoint_complete(1)
    op.advance(999)
    assert parts.put_off == 1
    op.advance(1000)
    assert parts.committed == []
    op.advance(2000)
    assert parts.committed == ["a"]
    assert op.timers.due is None


class Hoarder(Parts):
    """Prepares nothing before the end."""

    def __init__(self):
        super().__init__()
        self.ended = False

    def snapshot_state(self):
        return list(self.written)

    def restore_state(self, state):
        self.written += state

    def end_input(self):
        self.ended = True

    def prepare_commit(self):
        return super().prepare_commit() if self.ended else []


def test_what_a_writer_keeps_is_in_checkpoints_and_shared_out():
    subtasks = [sink_operator(Hoarder(), subtask=index, parallelism=2) for index in range(2)]
    for op in subtasks:
        op.feed([f"of {op.context.subtask}"])
        op.take(op.operator.prepare_snapshot_pre_barrier(5))
    snapshots = [op.operator.snapshot().freeze(plain_dumps) for op in subtasks]
    (one,) = rescaled(snapshots, 1)
    op = sink_operator(Hoarder(), one, restored_checkpoint_id=5)
    op.finish()
    assert sorted(op.committables) == ["of 0", "of 1"]
    three = [sink_operator(Hoarder(), part) for part in rescaled(snapshots, 3)]
    assert sorted(len(op.operator.snapshot().elements("writer")) for op in three) == [0, 1, 1]


def test_state_of_another_sinks_writer_is_refused():
    op = sink_operator(Hoarder())
    op.feed(["kept"])
    op.take(op.operator.prepare_snapshot_pre_barrier(5))
    (restored,) = rescaled([op.operator.snapshot().freeze(plain_dumps)], 1)
    with pytest.raises(FinalError, match=r"state of another sink's writer: 'kept'.* uid"):
        sink_operator(Parts(), restored, restored_checkpoint_id=5)


def test_a_committer_is_closed_with_its_task():
    class Closing(Parts):
        closed = 0

        def close(self):
            self.closed += 1

    parts = Closing()
    op = sink_operator(parts)
    op.take(op.operator.prepare_snapshot_pre_barrier(1))
    op.operator.close()
    assert parts.closed == 2, "once as a writer, once as a committer"
