"""Bugs to plant into the engine, each a change that somebody could make by mistake. Only tests apply them.

A plant is a function of a monkeypatch; its docstring says what is broken.
"""

from dataclasses import replace

from penstock.connectors import sql_sink
from penstock.connectors.sql.staged import loads_piece
from penstock.connectors.sql.tables import SqlDatabase
from penstock.engine.hosting.taskmanager.task import barriers as task_barriers
from penstock.engine.hosting.taskmanager.task import restore as in_flight_restore
from penstock.engine.machines.checkpoints import restore
from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.coordinator_state import CompletedCheckpointStore
from penstock.engine.machines.checkpoints.pending import PendingCheckpoint, Phase
from penstock.engine.machines.sources import SplitAssignmentTracker
from penstock.engine.runtime.checkpoint.barrier_handler import BarrierTracker, SingleBarrierHandler
from penstock.engine.runtime.checkpoint.input_checkpoints import InputsInFlight, replayed
from penstock.engine.runtime.checkpoint.subtask import (
    CheckpointNotifications,
    Completed,
    FinalCheckpoint,
)
from penstock.engine.runtime.checkpoint.two_phase_commit import CommitterState
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.operators import SinkOperator
from penstock.engine.runtime.operators.windowed.base import WindowOperator
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.state import snapshot_reader
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.state.timer_queues import HeapTimerQueue
from penstock.engine.runtime.task.stream_task import StreamTask

# ------------------------------------------------------------------ sinks and commits


def commit_before_completion(patch):
    """What a sink prepares is committed at the barrier."""
    prepare = SinkOperator.prepare_snapshot_pre_barrier

    def early(self, checkpoint_id):
        prepare(self, checkpoint_id)
        if self._committer is not None:
            self._committer.complete(checkpoint_id)
        return ()

    patch.setattr(SinkOperator, "prepare_snapshot_pre_barrier", early)


def commit_more_than_the_checkpoint(patch):
    """What came after the barrier is committed with it, when the checkpoint is complete."""
    complete = SinkOperator.notify_checkpoint_complete

    def greedy(self, checkpoint_id):
        if self._writer is not None and not self._context.has_final_checkpoint:
            return
        if self._committer is not None and self._writer is not None:
            self._committer.add(checkpoint_id, self._writer.prepare_commit())
            self._committer._expected.clear()
        complete(self, checkpoint_id)

    patch.setattr(SinkOperator, "notify_checkpoint_complete", greedy)


def forget_pending_transactions(patch):
    """A restored sink does not commit what was prepared."""
    patch.setattr(SinkOperator, "restore", lambda self, snapshot: None)


def pending_transactions_are_not_in_snapshots(patch):
    """A sink's snapshot is empty."""
    patch.setattr(SinkOperator, "snapshot", lambda self: OperatorSnapshot())


def commit_again_what_is_committed(patch):
    """A repeated commit writes the rows again."""

    def blind(self, transactions):
        with self.engine.begin() as connection:
            for transaction in transactions:
                writer = self._writer(transaction.columns)
                for pieces in self._read(connection, transaction):
                    writer.write(connection, map(loads_piece, pieces))

    patch.setattr(SqlDatabase, "_commit", blind)
    # As after a restart: what is restored is committed already, for the most part.


def commit_only_the_newest(patch):
    """What an aborted checkpoint left pending is dropped when a later one completes."""

    def only(self, checkpoint_id):
        self._completed = max(self._completed, checkpoint_id)
        done = [checkpoint_id] if checkpoint_id in self._waiting else []
        for one in done:
            self._try(one)
        for older in [one for one in self._waiting if one < checkpoint_id]:
            del self._waiting[older]
        self._expected.clear()
        return done

    patch.setattr(CommitterState, "complete", only)


def rows_stay_in_the_writer(patch):
    """The SQL sink does not flush before the barrier."""
    patch.setattr(sql_sink._SqlStagingWriter, "_flush", lambda self: None)


def completions_count_twice(patch):
    """Each completion reaches the operators twice, and their committers carry it out each time, as if it were new."""
    patch.setattr(CheckpointNotifications, "on_complete", lambda self, i: [Completed(i)] * 2)
    carried_out = {}

    def again(self, checkpoint_id):
        self._completed = max(self._completed, checkpoint_id)
        self._expected.clear()
        done = carried_out.setdefault(id(self), {})
        due = sorted(one for one in self._waiting if one <= checkpoint_id)
        for one in due:
            self._commit(self._waiting[one])
            done[one] = done.get(one, 0) + 1
            if done[one] > 1:
                del self._waiting[one]
        return due

    patch.setattr(CommitterState, "complete", again)
    commit_again_what_is_committed(patch)


def abort_is_taken_for_completion(patch):
    """Tasks that hear that a checkpoint was aborted commit it."""

    def wrong(self, checkpoint_id, latest_completed=-1):
        return [Completed(checkpoint_id)]

    patch.setattr(CheckpointNotifications, "on_abort", wrong)


def finish_without_the_last_checkpoint(patch):
    """A task at the end of its data does not wait for one more checkpoint."""
    patch.setattr(FinalCheckpoint, "may_finish", property(lambda self: self._is_at_end))


# ------------------------------------------------------------------ sources


def _shift_positions(patch, by):
    snapshot = SourceOperator.snapshot

    def shifted(self):
        made = snapshot(self)
        for part in made.lists.values():
            part.elements = [
                replace(split, position=max(0, split.position + by)) for split in part.elements
            ]
        return made

    patch.setattr(SourceOperator, "snapshot", shifted)


def offsets_are_one_too_far(patch):
    """A restored source leaves a record out."""
    _shift_positions(patch, 1)


def offsets_are_one_too_low(patch):
    """A restored source reads a record again."""
    _shift_positions(patch, -1)


def every_reader_gets_all_splits(patch):
    """The first list with two elements that is restored is not divided among the subtasks."""
    shares, done = restore.list_shares, []

    def undivided(states, parallelism):
        if done or sum(len(one.offsets) for state in states for one in state.lists) < 2:
            return shares(states, parallelism)
        done.append(True)
        return shares(states, 1) * parallelism

    patch.setattr(restore, "list_shares", undivided)


def readers_forget_their_splits(patch):
    """A restored reader begins without splits."""
    patch.setattr(SourceOperator, "restore", lambda self, snapshot: None)


def splits_come_back_that_readers_have(patch):
    """Which splits were assigned before a checkpoint is not remembered: they are handed out again."""
    patch.setattr(SplitAssignmentTracker, "checkpoint", lambda self, checkpoint_id: None)


# ------------------------------------------------------------------ barriers and records in flight


def the_first_barrier_is_enough(patch):
    """A task does not wait for the barriers of its other channels."""
    patch.setattr(SingleBarrierHandler, "_has_all", property(lambda self: True))


def barriers_do_not_block(patch):
    """Records behind a barrier are processed before the snapshot: at least once."""

    def tracker(channels, _alignment, **options):
        return BarrierTracker(channels, **options)

    patch.setattr(task_barriers, "SingleBarrierHandler", tracker)
    patch.setattr(CheckpointBarrier, "blocks_upstream", property(lambda self: False))


def forget_what_was_read_and_not_processed(patch):
    """The batch in hand is in no snapshot."""
    patch.setattr(StreamTask, "_in_hand", lambda self: ())


def what_was_in_hand_comes_twice(patch):
    """The batch in hand is restored twice."""
    restore_once = StreamTask.restore_in_hand

    def twice(self, elements):
        found = list(elements)
        restore_once(self, found)
        restore_once(self, found)

    patch.setattr(StreamTask, "restore_in_hand", twice)


# Of unaligned checkpoints:


def forget_what_is_in_flight(patch):
    """Data in flight is written, but not restored."""
    patch.setattr(in_flight_restore, "replayed", lambda data, loads: iter(()))


def what_is_in_flight_comes_twice(patch):
    """Data in flight is restored twice."""

    def twice(data, loads):
        yield from replayed(data, loads)
        yield from replayed(data, loads)

    patch.setattr(in_flight_restore, "replayed", twice)


def record_what_came_behind_the_barrier(patch):
    """Data in flight is recorded for channels whose barrier is there, too."""
    patch.setattr(
        InputsInFlight, "on_data", lambda self, channel, batch: self._of(channel).add(batch)
    )


def forget_what_barriers_overtook(patch):
    """What waits behind an unaligned barrier is not recorded."""
    on_barrier = InputsInFlight.on_barrier
    patch.setattr(
        InputsInFlight, "on_barrier", lambda self, channel, _: on_barrier(self, channel, tuple)
    )


# ------------------------------------------------------------------ state


def forget_keyed_state(patch):
    """Keyed state begins empty."""
    patch.setattr(HeapKeyedStateBackend, "restore", lambda self, snapshot: None)


def forget_one_key_group(patch):
    """The first key group of each file is not read."""
    read = snapshot_reader._read_group
    read_chunk = snapshot_reader._read_chunk

    def chunk(*arguments):
        is_first = [True]

        def group(*parts):
            if is_first[0]:
                is_first[0] = False
                return set()
            return read(*parts)

        snapshot_reader._read_group = group
        try:
            read_chunk(*arguments)
        finally:
            snapshot_reader._read_group = read

    patch.setattr(snapshot_reader, "_read_chunk", chunk)


def forget_timers(patch):
    """Timers are in no snapshot."""
    patch.setattr(HeapTimerQueue, "put_back", lambda self, part: None)


def forget_windows(patch):
    """What is in windows is in no snapshot."""
    patch.setattr(WindowOperator, "snapshot", _without_windows(WindowOperator.snapshot))


def _without_windows(snapshot):
    def without(self):
        made = snapshot(self)
        kept = made.keyed.items()
        made.keyed = {n: p for n, p in kept if not n.startswith("windows/")}
        return made

    return without


# ------------------------------------------------------------------ the coordinator


def one_acknowledgement_is_enough(patch):
    """A checkpoint is complete when the first task has acknowledged it."""
    acknowledge = PendingCheckpoint.acknowledge

    def hasty(self, *arguments):
        result = acknowledge(self, *arguments)
        if self.phase is Phase.TASKS:
            self.phase = Phase.READY
        return result

    patch.setattr(PendingCheckpoint, "acknowledge", hasty)


def all_acknowledgements_but_one_are_enough(patch):
    """A checkpoint is complete one acknowledgement too early."""
    acknowledge = PendingCheckpoint.acknowledge

    def hasty(self, *arguments):
        result = acknowledge(self, *arguments)
        if self.phase is Phase.TASKS and len(self.states) >= len(self.plan.running) - 1:
            self.phase = Phase.READY
        return result

    patch.setattr(PendingCheckpoint, "acknowledge", hasty)


def stale_acknowledgements_are_accepted(patch):
    """What comes late of a checkpoint that was aborted is taken for the one that is under way."""
    real = CheckpointCoordinator.on_acknowledged

    def accepts(self, message):
        if message.checkpoint_id not in self.pending and self.pending:
            pending = self.pending[max(self.pending)]
            vertex_id = message.attempt_id.execution_vertex_id
            current = next(
                (one for one in pending.plan.running if one.execution_vertex_id == vertex_id),
                message.attempt_id,
            )
            number = pending.checkpoint_id
            message = replace(message, checkpoint_id=number, attempt_id=current)
        real(self, message)

    patch.setattr(CheckpointCoordinator, "on_acknowledged", accepts)


def restart_with_the_checkpoint_before_the_latest(patch):
    """What a restart begins with is one checkpoint old."""

    def older(self):
        return (
            self._checkpoints[-2 if len(self._checkpoints) > 1 else -1]
            if self._checkpoints
            else None
        )

    patch.setattr(CompletedCheckpointStore, "latest", property(older))


PLANTS = [
    commit_before_completion,
    commit_more_than_the_checkpoint,
    forget_pending_transactions,
    pending_transactions_are_not_in_snapshots,
    commit_again_what_is_committed,
    commit_only_the_newest,
    rows_stay_in_the_writer,
    completions_count_twice,
    abort_is_taken_for_completion,
    finish_without_the_last_checkpoint,
    offsets_are_one_too_far,
    offsets_are_one_too_low,
    every_reader_gets_all_splits,
    readers_forget_their_splits,
    splits_come_back_that_readers_have,
    the_first_barrier_is_enough,
    barriers_do_not_block,
    forget_what_was_read_and_not_processed,
    what_was_in_hand_comes_twice,
    forget_keyed_state,
    forget_one_key_group,
    forget_timers,
    forget_windows,
    one_acknowledgement_is_enough,
    all_acknowledgements_but_one_are_enough,
    stale_acknowledgements_are_accepted,
    restart_with_the_checkpoint_before_the_latest,
]

OF_UNALIGNED = [
    forget_what_is_in_flight,
    what_is_in_flight_comes_twice,
    record_what_came_behind_the_barrier,
    forget_what_barriers_overtook,
]
