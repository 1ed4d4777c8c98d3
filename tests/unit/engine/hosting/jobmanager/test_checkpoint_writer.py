"""The checkpoint writer: every question is answered once, and nothing of a job stays that nobody wants."""

import queue
from pathlib import Path

import pytest

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.jobmanager.checkpoint_writer import (
    CheckpointWriter,
    JobStorage,
    SavepointFailed,
)
from penstock.engine.hosting.jobmanager.ha.store import LeaseTaken
from penstock.engine.hosting.os.file_systems import CheckpointIoError, LocalFiles
from penstock.engine.model.checkpoints import (
    CheckpointType,
    CompletedCheckpoint,
    OperatorCheckpoint,
    OperatorSubtaskState,
    SubtaskState,
)
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.messages import (
    CheckpointNotStored,
    CheckpointStored,
    CoordinatorsCheckpointEnded,
    CoordinatorsSnapshotted,
    DiscardCheckpoint,
    DiscardStates,
    FailureInfo,
    RestoreCoordinators,
    SavepointAnswered,
    SnapshotCoordinators,
    StoreCheckpoint,
)

JOB = JobId("job")
WAIT_S = 30


class Coordinators:
    """Answers at once, with what a test gives it."""

    def __init__(self):
        self.told = []
        self.result = ((("source", b"splits"),), None)

    def snapshot(self, checkpoint_id, answer):
        answer(*self.result)

    def checkpoint_ended(self, checkpoint_id, *, is_completed):
        self.told.append((checkpoint_id, is_completed))

    def restore(self, states, kept=frozenset()):
        self.told.append((states, kept))


class Pointers:
    def __init__(self):
        self.recorded = []
        self.error = None

    def record_checkpoints(self, pointers):
        if self.error is not None:
            raise self.error
        self.recorded.append(tuple(checkpoint_id for checkpoint_id, _ in pointers))


class Bench:
    def __init__(self, folder: Path, **place):
        self.storage = CheckpointStorage(str(folder), JOB)
        self.coordinators = Coordinators()
        self.pointers = Pointers()
        self.answers = queue.SimpleQueue()
        self.checkpoint_writer = CheckpointWriter(
            JOB,
            JobStorage(self.storage, **place),
            self.coordinators,
            self.pointers,
            lambda make: self.answers.put(make(7)),
        )

    def answer(self):
        return self.answers.get(timeout=WAIT_S)

    def store(self, checkpoint_id, **more):
        checkpoint = self.written(checkpoint_id, **more)
        self.checkpoint_writer.keep(StoreCheckpoint(checkpoint))
        return checkpoint, self.answer()

    def written(self, checkpoint_id, kind=CheckpointType.CHECKPOINT, target=None):
        """A checkpoint whose one subtask has a file."""
        folder = target or self.storage.folder_of(checkpoint_id)
        writer = self.storage.writer(folder, inline_bytes=0)
        handle = writer.add(b"state")
        writer.close()
        self.state = SubtaskState((("uid", state_of(handle)),))
        operator = OperatorCheckpoint("uid", "Map", 1, 128, (state_of(handle),))
        return CompletedCheckpoint(
            checkpoint_id, JOB, kind, 0, (operator,), target_directory=target
        )


def state_of(handle):
    from penstock.engine.model.checkpoints import ListStateHandle, RedistributionMode

    return OperatorSubtaskState(
        lists=(ListStateHandle("list", RedistributionMode.SPLIT, (0,), handle),)
    )


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "checkpoints")
    yield made
    made.checkpoint_writer.close(is_over=True)


def test_a_stored_checkpoint_is_whole_and_pointed_at(bench):
    _, answer = bench.store(3)
    assert isinstance(answer, CheckpointStored)
    assert (answer.checkpoint_id, answer.now_ms) == (3, 7)
    assert bench.pointers.recorded == [(3,)]
    found = bench.storage.load(answer.location)
    bench.storage.verify(found)
    assert answer.metadata_bytes == (Path(bench.storage.root) / "chk-3/_metadata").stat().st_size
    assert bench.checkpoint_writer.keeps_own
    assert bench.checkpoint_writer.is_settled


def test_a_disk_that_fails_is_an_answer_too(bench, monkeypatch):
    checkpoint = bench.written(3)
    monkeypatch.setattr(
        LocalFiles, "publish", lambda *_: (_ for _ in ()).throw(CheckpointIoError("disk full"))
    )
    bench.checkpoint_writer.keep(StoreCheckpoint(checkpoint))
    answer = bench.answer()
    assert isinstance(answer, CheckpointNotStored)
    assert "disk full" in answer.text
    assert bench.pointers.recorded == []
    assert not bench.checkpoint_writer.keeps_own


@pytest.mark.parametrize("error", [LeaseTaken("driver B"), OSError("gone")])
def test_what_cannot_be_pointed_at_is_not_to_be_found(bench, error):
    bench.pointers.error = error
    checkpoint, answer = bench.store(3)
    assert isinstance(answer, CheckpointNotStored)
    assert not Path(bench.storage.folder_of(3), "_metadata").exists()
    assert Path(bench.storage.folder_of(3)).exists(), "another driver may write there"
    assert checkpoint.checkpoint_id == 3


def test_pointers_leave_out_what_was_discarded(bench):
    first, answer = bench.store(1)
    bench.store(2)
    bench.checkpoint_writer.keep(DiscardCheckpoint(located(first, answer)))
    bench.store(3)
    assert bench.pointers.recorded == [(1,), (1, 2), (2, 3)]


def located(checkpoint, answer):
    from dataclasses import replace

    return replace(checkpoint, location=answer.location)


def test_a_savepoint_is_no_business_of_who_takes_over_and_stays(bench, tmp_path):
    target = bench.checkpoint_writer.savepoint_folder(str(tmp_path / "savepoints"))
    _, answer = bench.store(4, kind=CheckpointType.SAVEPOINT, target=target)
    assert bench.pointers.recorded == []
    assert bench.checkpoint_writer.keeps_own
    bench.checkpoint_writer.close(is_over=True)
    bench.storage.verify(bench.storage.load(answer.location))
    assert not Path(bench.storage.root).exists()


def test_snapshots_of_an_aborted_checkpoint_go(bench):
    bench.written(5)
    bench.checkpoint_writer.keep(DiscardStates(5, (bench.state,)))
    bench.checkpoint_writer.close(is_over=False)
    assert list(Path(bench.storage.folder_of(5)).iterdir()) == []


def test_a_suspended_job_leaves_everything(bench):
    _, answer = bench.store(3)
    bench.written(4)
    bench.checkpoint_writer.close(is_over=False)
    assert bench.storage.load(answer.location).checkpoint_id == 3
    assert list(Path(bench.storage.folder_of(4)).iterdir())


def test_a_job_that_is_over_leaves_what_is_kept_on_purpose(bench):
    _, answer = bench.store(3)
    bench.written(4)
    bench.checkpoint_writer.close(is_over=True)
    bench.storage.verify(bench.storage.load(answer.location))
    assert not Path(bench.storage.folder_of(4)).exists()


def test_nothing_stays_when_nothing_is_kept(bench):
    checkpoint, answer = bench.store(3)
    bench.checkpoint_writer.keep(DiscardCheckpoint(located(checkpoint, answer)))
    bench.checkpoint_writer.close(is_over=True)
    assert not Path(bench.storage.root).exists()


def test_a_temporary_directory_goes_with_its_job(tmp_path):
    bench = Bench(tmp_path / "temporary", is_temporary=True)
    checkpoint, answer = bench.store(1)
    bench.checkpoint_writer.keep(DiscardCheckpoint(located(checkpoint, answer)))
    bench.checkpoint_writer.close(is_over=True)
    assert not (tmp_path / "temporary").exists()


def test_who_takes_over_sweeps_what_was_unfinished(tmp_path):
    former = Bench(tmp_path)
    checkpoint, answer = former.store(1)
    former.written(2)
    former.checkpoint_writer.close(is_over=False)
    bench = Bench(tmp_path, completed=(located(checkpoint, answer),), is_taken_over=True)
    bench.checkpoint_writer.close(is_over=False)
    assert sorted(path.name for path in Path(bench.storage.root).iterdir()) == ["chk-1"]
    assert bench.storage.next_id() == 2


@pytest.mark.parametrize("failure", [None, "it raised"])
def test_coordinators_are_asked_and_answer(bench, failure):
    bench.coordinators.result = ((("source", b"splits"),), failure)
    bench.checkpoint_writer.coordinate(SnapshotCoordinators(9))
    assert bench.answer() == CoordinatorsSnapshotted(9, (("source", b"splits"),), 7, failure)


def test_coordinators_hear_of_the_end_and_of_restores(bench):
    bench.checkpoint_writer.coordinate(CoordinatorsCheckpointEnded(9, is_completed=True))
    kept = frozenset({VertexId("other")})
    bench.checkpoint_writer.coordinate(RestoreCoordinators(9, (("source", b"splits"),), kept))
    assert bench.coordinators.told == [(9, True), ((("source", b"splits"),), kept)]


def test_who_asks_for_a_savepoint_gets_its_folder_or_the_reason(bench):
    good, bad = (
        bench.checkpoint_writer.expect_savepoint("a"),
        bench.checkpoint_writer.expect_savepoint("b"),
    )
    bench.checkpoint_writer.answer(SavepointAnswered("a", "/here/_metadata"))
    bench.checkpoint_writer.answer(
        SavepointAnswered("b", None, FailureInfo("CheckpointFailed", "too late"))
    )
    bench.checkpoint_writer.answer(SavepointAnswered("nobody", None))
    assert good.result(0) == "/here"
    with pytest.raises(SavepointFailed, match="too late"):
        bad.result(0)


def test_who_waits_at_the_end_of_the_job_does_not_wait_for_ever(bench):
    waiting = bench.checkpoint_writer.expect_savepoint("a")
    bench.checkpoint_writer.close(is_over=True)
    for future in (waiting, bench.checkpoint_writer.expect_savepoint("b")):
        with pytest.raises(SavepointFailed, match="the job has ended"):
            future.result(0)


def test_without_a_directory_there_is_no_folder_for_a_savepoint(bench, tmp_path):
    assert bench.checkpoint_writer.savepoint_folder(None) is None
    other = Bench(tmp_path / "x", savepoints=str(tmp_path / "saved"))
    assert other.checkpoint_writer.savepoint_folder(None).startswith(
        str(tmp_path / "saved" / "savepoint-job-")
    )
