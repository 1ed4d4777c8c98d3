"""The task side of checkpoints on real TaskManagers: triggers, snapshots, acknowledgements, restore, the end.

Expectations: docs/spec/checkpoints.md#barriers, #in-a-task, #data-in-flight,
#savepoints-and-stopping, #finished-tasks.
"""

import os
import threading
import zlib
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage, StateWriter
from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.taskmanager.services.local_copies import SnapshotWriters
from penstock.engine.hosting.taskmanager.task.checkpoints import (
    Handover,
    TaskCheckpoints,
    start_delay_ms,
)
from penstock.engine.model.checkpoints import (
    CheckpointOptions,
    CheckpointType,
    FileHandle,
    InlineHandle,
    TaskCheckpointing,
)
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import CheckpointFailureReason, TaskStateChanged
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from tests.tools.identities import new_credentials
from tests.tools.programs.gated_program import (
    FLOOD,
    ROWS,
    Flooding,
    Hoarding,
    count_of_splits,
    expected,
    gated_program,
    numbers_of_splits,
    seen,
    stand_still,
)

HELD = CheckpointBarrier(7, 0, CheckpointOptions(is_held=True))
USUAL = CheckpointBarrier(7, 0, CheckpointOptions())
DATA = b"state" * 10_000
PATH = "/checkpoints"


@pytest.fixture
def planes():
    credentials = new_credentials()
    made = [
        DataPlane(ResourceId(f"tm-{i}"), Endpoint("127.0.0.1"), credentials).start() for i in (1, 2)
    ]
    yield made
    for one in made:
        one.close()


def at(plane, check_continues=lambda: None, room=1 << 30, directory="s3://bucket/checkpoints"):
    """What an attempt at this TaskManager has."""
    settings = SimpleNamespace(checkpointing=TaskCheckpointing(directory, kept_bytes=room))
    host = SimpleNamespace(data_plane=plane, host_name="127.0.0.1", task_settings=settings)
    return Handover(SimpleNamespace(host=host, check_continues=check_continues))


def written(data=DATA, offset=0):
    return FileHandle("chk-7/x", offset, len(data), zlib.crc32(data))


def test_an_attempt_elsewhere_and_one_here_take_the_same(planes):
    one, other = planes
    handle = at(one).keeper(HELD)(written(), DATA)
    assert handle == written(), "where it is kept is no part of what it is"
    assert at(other).read(handle) == DATA
    assert at(one).read(handle) is DATA


def test_what_another_process_of_this_machine_wrote_is_read_as_a_file(planes):
    """If it is one: the page cache has it. What this TaskManager keeps itself is nearer still."""
    one, other = planes
    handle = at(one).keeper(HELD)(written(), DATA)
    assert at(other, directory=PATH).read(handle) is None
    assert at(one, directory=PATH).read(handle) is DATA
    far = replace(handle, kept_by=replace(handle.kept_by, host="localhost"))
    assert at(other, directory=PATH).read(far) == DATA


def test_only_the_snapshot_of_a_handover_is_kept_as_far_as_there_is_room(planes):
    one, _ = planes
    assert at(one).keeper(USUAL)(written(), DATA).kept_by is None
    keep = at(one, room=len(DATA)).keeper(HELD)
    assert keep(written(), DATA).kept_by is not None
    assert keep(written(DATA, len(DATA)), DATA).kept_by is None


def test_what_nobody_keeps_is_read_elsewhere(planes):
    one, _ = planes
    assert at(one).read(written()) is None
    assert at(one).read(InlineHandle(b"x", zlib.crc32(b"x"))) is None


def test_what_arrives_is_checked_and_who_sent_it_is_not_asked_again(planes):
    one, other = planes
    keep = at(one).keeper(HELD)
    good, bad = keep(written(), DATA), keep(written(DATA, len(DATA)), b"other" * 10_000)
    taking = at(other)
    assert [taking.read(handle) for handle in (good, bad, good)] == [DATA, None, None]


def test_a_taskmanager_that_is_gone_is_asked_once(planes):
    one, other = planes
    handle = at(one).keeper(HELD)(written(), DATA)
    one.close()
    checks = []
    taking = at(other, lambda: checks.append("waits"))
    assert taking.read(handle) is None
    count = len(checks)
    assert taking.read(handle) is None
    assert len(checks) == count


def test_it_is_forgotten_with_its_checkpoint(planes):
    one, other = planes
    keeping = at(one)
    handle = keeping.keeper(HELD)(written(), DATA)
    keeping.forget(lambda checkpoint_id: checkpoint_id < 8)
    assert keeping.read(handle) is None
    assert at(other).read(handle) is None


def taken_at_the_end(driver, checkpoint_id=1):
    """Checkpoints until there is one for which all tasks had seen the end of their data. Returns: its id."""
    while True:
        driver.trigger(checkpoint_id)
        acks = driver.until_acknowledged(checkpoint_id)
        if all(ack.state.is_finished for ack in acks.values()):
            return checkpoint_id
        checkpoint_id += 1


def checkpoint_of_large_state(gate, run):
    """Of a run that is over. Returns: checkpoint 1, with files."""
    first = run(gated_program(gate.name, 1, function=Hoarding), inline_bytes=100)
    first.until_running()
    gate.open(3)
    first.until(lambda: len(first.rows) >= 2 * ROWS)
    first.trigger(1)
    completed = first.checkpoint(1)
    first.cancel()
    first.until_ended(ExecutionState.CANCELED)
    return completed


@pytest.mark.parametrize("taskmanagers", [1, 2])
def test_a_trigger_of_the_sources_is_acknowledged_by_every_task(gate, run, taskmanagers):
    driver = run(gated_program(gate.name), taskmanagers=taskmanagers)
    driver.until_running()
    gate.open(4)
    driver.until(lambda: len(driver.rows) >= 3 * ROWS)
    driver.trigger(1)
    acks = driver.until_acknowledged(1)
    assert set(acks) == set(driver.attempts)
    for attempt_id in driver.source_attempts:
        assert [uid for uid, _ in acks[attempt_id].state.operators] == ["steps"]
    assert not any(ack.state.is_finished for ack in acks.values())
    assert all(ack.metrics.async_ms > 0 and ack.metrics.sync_ms > 0 for ack in acks.values())
    assert all(ack.metrics.alignment_ms >= 0 for ack in acks.values())


@pytest.mark.parametrize(("now_ms", "expected"), [(1_300, 180.0), (1_090, 0.0)])
def test_the_start_delay_ends_with_the_first_barrier(now_ms, expected):
    """The alignment comes after it, and the sync phase after that. Clocks of two machines may differ."""
    barrier = CheckpointBarrier(1, timestamp_ms=1_000)
    assert start_delay_ms(barrier, now_ms, since_first_ms=100 + 20) == expected


def test_small_state_is_inline_and_large_state_in_files_of_the_checkpoints_folder(
    gate, run, tmp_path
):
    driver = run(gated_program(gate.name, function=Hoarding), inline_bytes=5_000)
    driver.until_running()
    gate.open(3)
    driver.until(lambda: len(driver.rows) >= 2 * ROWS)
    driver.trigger(7)
    acks = driver.until_acknowledged(7)
    handles = [
        handle
        for ack in acks.values()
        for _, state in ack.state.operators
        for handle in state.handles
    ]
    kinds = {type(handle) for handle in handles}
    assert kinds == {InlineHandle, FileHandle}
    files = {handle.path for handle in handles if isinstance(handle, FileHandle)}
    assert {str(path) for path in (tmp_path / "job" / "chk-7").iterdir()} == files


def test_a_savepoint_lies_where_the_user_wants_it(gate, run, tmp_path):
    driver = run(gated_program(gate.name), inline_bytes=1)
    driver.until_running()
    gate.open(3)
    driver.until(lambda: len(driver.rows) >= 2 * ROWS)
    target = str(tmp_path / "mine")
    driver.trigger(1, options=CheckpointOptions(CheckpointType.SAVEPOINT, target=target))
    driver.until_acknowledged(1)
    assert os.listdir(target)
    assert not (tmp_path / "job").exists()


def test_a_task_that_does_not_run_declines(gate, run):
    driver = run(gated_program(gate.name))
    driver.until_running()
    (first, *_) = driver.source_attempts
    driver.cancel()
    driver.until_ended(ExecutionState.CANCELED)
    driver.trigger(1, [first])
    driver.until(driver.declined)
    assert driver.declined()[0].reason in {
        CheckpointFailureReason.TASK_NOT_READY,
        CheckpointFailureReason.TASK_CLOSING,
    }


@pytest.mark.parametrize("may_be_unaligned", [False, True])
def test_a_task_that_only_waits_for_its_consumers_declines(gate, run, may_be_unaligned):
    """Nobody would see its barrier: a consumer that stands still has its end in front of it."""
    flood = gated_program(gate.name, parallelism=1, function=Flooding)
    driver = run(flood, may_be_unaligned=may_be_unaligned)
    stand_still(driver, gate)
    gate.open()
    driver.until_all(driver.source_attempts, lambda source: source.built.task.is_done)
    driver.trigger(1)
    driver.until(driver.declined)
    (decline,) = driver.declined()
    assert decline.attempt_id in driver.source_attempts
    assert decline.reason is CheckpointFailureReason.TASK_CLOSING
    driver.grant_what_came()
    driver.until_ended()
    assert len(driver.rows) == FLOOD * count_of_splits(1)


def test_state_that_cannot_be_written_is_declined_and_the_job_goes_on(gate, run, tmp_path):
    driver = run(gated_program(gate.name), inline_bytes=0)
    driver.until_running()
    gate.open(3)
    driver.until(lambda: len(driver.rows) >= 2 * ROWS)
    (tmp_path / "job").write_text("in the way of the folder")
    driver.trigger(1)
    driver.until(driver.declined)
    (decline, *_) = driver.declined()
    assert decline.reason is CheckpointFailureReason.ASYNC_EXCEPTION
    assert "cannot create" in decline.text
    assert str(tmp_path / "job") in decline.text
    (tmp_path / "job").unlink()
    driver.trigger(2)
    driver.until_acknowledged(2)
    gate.open()
    driver.until_ended()


def test_whatever_stops_a_writer_is_declined_and_the_next_is_written(gate, run, monkeypatch):
    def exits(writer, data):
        raise SystemExit("from a file system's client")

    driver = run(gated_program(gate.name, parallelism=1), inline_bytes=0)
    driver.until_running()
    gate.open(3)
    driver.until(lambda: len(driver.rows) >= 2 * ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(StateWriter, "add", exits)
        driver.trigger(1)
        driver.until(lambda: len(driver.declined()) == len(driver.attempts))
    assert "SystemExit: from a file system's client" in driver.declined()[0].text
    driver.trigger(2)
    driver.until_acknowledged(2)


def test_an_aborted_checkpoint_is_not_written_on(gate, run, tmp_path, monkeypatch):
    is_adding, may_go_on = threading.Event(), threading.Event()
    add = StateWriter.add

    def slow_add(writer, data):
        handle = add(writer, data)
        is_adding.set()
        assert may_go_on.wait(30)
        return handle

    monkeypatch.setattr(StateWriter, "add", slow_add)
    driver = run(gated_program(gate.name, parallelism=1), inline_bytes=0)
    driver.until_running()
    gate.open(3)
    driver.until(lambda: len(driver.rows) >= 2 * ROWS)
    driver.trigger(1)
    assert is_adding.wait(30)
    driver.abort(1)
    may_go_on.set()
    monkeypatch.setattr(StateWriter, "add", add)
    driver.trigger(2)
    driver.until_acknowledged(2)
    gate.open()
    driver.until_ended()  # a task ends when what it had begun to write is written or gone
    assert not driver.acknowledged(1)
    assert not list(tmp_path.glob("job/chk-1/*"))


def test_what_is_aborted_while_its_snapshot_is_taken_is_not_written(gate, run, monkeypatch):
    take, closed = TaskCheckpoints.on_snapshot, []
    close = OperatorSnapshot.close

    def late(checkpoints, snapshot):
        if snapshot.barrier.checkpoint_id == 1:
            driver.abort(1)
        take(checkpoints, snapshot)

    def noted(snapshot, *, is_kept):
        closed.append(is_kept)
        close(snapshot, is_kept=is_kept)

    monkeypatch.setattr(TaskCheckpoints, "on_snapshot", late)
    monkeypatch.setattr(OperatorSnapshot, "close", noted)
    driver = run(gated_program(gate.name, parallelism=1))
    driver.until_running()
    driver.trigger(1)
    driver.trigger(2)
    driver.until_acknowledged(2)
    assert not driver.acknowledged(1)
    assert False in closed, "what it held on disk stays"


def test_what_is_aborted_before_its_trigger_is_not_taken(gate, run):
    driver = run(gated_program(gate.name, parallelism=1))
    driver.until_running()
    driver.abort(1)
    driver.trigger(1)
    driver.trigger(2)
    driver.until_acknowledged(2)
    assert not driver.acknowledged(1)


def test_splits_behind_a_trigger_are_not_in_its_snapshot(gate, run):
    driver = run(gated_program(gate.name, parallelism=1, splits=2))
    driver.feeds = False
    driver.until_running()
    (source,) = driver.sources
    driver.trigger(1)
    source.enumerator.handle_split_request(0, "")
    acks = driver.until_acknowledged(1)
    assert acks[driver.source_attempts[0]].state.operators == ()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("has_final", [False, True])
def test_every_record_counts_once_after_a_restore(gate, run, parallelism, has_final):
    first = run(gated_program(gate.name, 2, splits=3), taskmanagers=2, inline_bytes=100)
    first.until_running()
    gate.open(17)
    first.until(lambda: len(first.rows) == 2 * 17 * ROWS)
    first.trigger(1)
    completed = first.checkpoint(1)
    before = list(first.rows)
    gate.open(30)
    first.until(lambda: len(first.rows) > len(before) + ROWS)
    first.cancel()
    first.until_ended(ExecutionState.CANCELED)
    gate.open(0)
    graph = gated_program(gate.name, parallelism, splits=3)
    second = run(graph, completed, taskmanagers=2, has_final_checkpoint=has_final)
    second.until_running()
    gate.open()
    if has_final:
        second.notify(taken_at_the_end(second, 2))
    second.until_ended()
    rows = before + second.rows
    assert Counter(value for value, _ in rows) == Counter(numbers_of_splits(3))
    assert seen(rows) == Counter(expected(3))


def test_a_damaged_file_is_named_and_nothing_is_processed(gate, run, tmp_path):
    completed = checkpoint_of_large_state(gate, run)
    for path in (tmp_path / "job" / "chk-1").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    second = run(gated_program(gate.name, 1, function=Hoarding), completed)
    failure = second.failure()
    assert failure.kind == "CheckpointDamaged"
    assert str(tmp_path / "job" / "chk-1") in failure.text
    assert "altered" in failure.text
    assert not second.rows


def test_a_restore_can_be_cancelled(gate, run, tmp_path, monkeypatch):
    completed = checkpoint_of_large_state(gate, run)
    is_reading, may_go_on, reads = threading.Event(), threading.Event(), []
    read = CheckpointStorage.read

    def slow_read(storage, handle):
        reads.append(handle)
        is_reading.set()
        assert may_go_on.wait(30)
        return read(storage, handle)

    monkeypatch.setattr(CheckpointStorage, "read", slow_read)
    second = run(gated_program(gate.name, 1, function=Hoarding), completed)
    assert is_reading.wait(30)
    second.cancel()
    may_go_on.set()
    second.until_ended(ExecutionState.CANCELED)
    assert len(reads) <= len(second.attempts)


def test_a_task_at_its_end_waits_for_a_checkpoint_that_begins_after_it(gate, run):
    driver = run(gated_program(gate.name), has_final_checkpoint=True)
    driver.until_running()
    gate.open()
    last = taken_at_the_end(driver)
    assert all(driver.states[one] is ExecutionState.RUNNING for one in driver.attempts)
    driver.notify(last)
    driver.until_ended()
    assert len(driver.rows) == count_of_splits(2)


def test_a_checkpoint_from_before_the_end_does_not_end_a_task(gate, run):
    driver = run(gated_program(gate.name), has_final_checkpoint=True)
    driver.until_running()
    driver.trigger(1)
    driver.until_acknowledged(1)
    gate.open()
    last = taken_at_the_end(driver, 2)
    driver.notify(1)
    driver.trigger(last + 1)
    driver.until_acknowledged(last + 1)
    assert all(driver.states[one] is ExecutionState.RUNNING for one in driver.attempts)
    driver.notify(last + 1)
    driver.until_ended()


def test_without_a_final_checkpoint_a_task_ends_behind_its_acknowledgements(gate, run, monkeypatch):
    may_go_on = threading.Event()
    close = StateWriter.close

    def slow_close(writer):
        assert may_go_on.wait(30)
        close(writer)

    monkeypatch.setattr(StateWriter, "close", slow_close)
    driver = run(gated_program(gate.name, parallelism=1))
    driver.until_running()
    gate.open(3)
    driver.until(lambda: len(driver.rows) >= 2 * ROWS)
    driver.trigger(1)
    gate.open()
    driver.until(lambda: len(driver.rows) == count_of_splits(1))
    may_go_on.set()
    driver.until_ended()
    for attempt_id in driver.attempts:
        ended = [
            place
            for place, one in enumerate(driver.heard)
            if isinstance(one, TaskStateChanged)
            and one.attempt_id == attempt_id
            and one.state is ExecutionState.FINISHED
        ]
        assert driver.heard.index(driver.acknowledged(1)[attempt_id]) < ended[0]


@pytest.mark.parametrize("kind", [CheckpointType.STOP_DRAIN, CheckpointType.STOP_SUSPEND])
def test_a_job_that_stops_with_a_savepoint_ends_when_that_is_complete(gate, run, kind, tmp_path):
    driver = run(gated_program(gate.name), inline_bytes=100)
    driver.until_running()
    gate.open(4)
    driver.until(lambda: len(driver.rows) >= 3 * ROWS)
    options = CheckpointOptions(kind, target=str(tmp_path / "stopped"))
    driver.trigger(1, options=options)
    completed = driver.checkpoint(1)
    is_drained = kind is CheckpointType.STOP_DRAIN
    acks = driver.acknowledged(1).values()
    assert all(ack.state.is_finished is is_drained for ack in acks)
    assert all(driver.states[one] is ExecutionState.RUNNING for one in driver.attempts)
    driver.notify(1)
    driver.until_ended()
    if is_drained:
        return
    gate.open(0)
    second = run(gated_program(gate.name, 3, splits=2), completed)
    second.until_running()
    gate.open()
    second.until_ended()
    assert seen(driver.rows) + seen(second.rows) == Counter(expected(2))


def test_tasks_that_had_finished_only_pass_the_end_on(gate, run):
    first = run(gated_program(gate.name), has_final_checkpoint=True)
    first.until_running()
    gate.open()
    completed = first.checkpoint(taken_at_the_end(first))
    first.cancel()
    first.until_ended(ExecutionState.CANCELED)
    second = run(gated_program(gate.name), completed, has_final_checkpoint=True)
    second.until_running()
    second.notify(taken_at_the_end(second, 100))
    second.until_ended()
    assert second.rows == []


def test_writers_take_a_bounded_number_and_end():
    begun, done, may_go_on = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    writers = SnapshotWriters(2)

    def job():
        begun.release()
        assert may_go_on.wait(30)
        done.release()

    taken = 0
    while writers.submit(job):
        taken += 1
    assert taken == 256 + 2
    assert begun.acquire(timeout=30)
    assert begun.acquire(timeout=30)
    may_go_on.set()
    assert all(done.acquire(timeout=30) for _ in range(taken))
    writers.close()
    assert not writers.submit(job)


def test_a_job_that_raises_does_not_end_its_writer(caplog):
    writers = SnapshotWriters(1)
    done = threading.Event()

    def bad():
        raise RuntimeError("a bug in a job")

    assert writers.submit(bad)
    assert writers.submit(done.set)
    assert done.wait(30)
    writers.close()
    assert "a bug in a job" in caplog.text
