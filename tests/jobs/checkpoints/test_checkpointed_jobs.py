"""Jobs of a MiniCluster that take checkpoints: what they begin with after a failure, and what is left of them."""

from collections import Counter

import pytest

from penstock.common import WatermarkStrategy
from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.jobmanager.checkpoint_writer import SavepointFailed
from penstock.engine.hosting.os.file_systems import CheckpointDamaged, CheckpointIoError, LocalFiles
from penstock.engine.model.checkpoints import FileHandle
from penstock.engine.model.errors import ConfigurationError, ExternalError
from tests.tools.hosting.running_job import manager_of
from tests.tools.output_files import files_below, hidden_below
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Watcher,
    expected_sums,
    file_sink,
    lines_of,
    restarting_environment,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.user_functions import first_of, running_sum, same
from tests.tools.waiting import wait_until

EVERY = "20 ms"


def checkpointed(observer, tmp_path, **more):
    settings = {
        "execution__checkpointing__interval": EVERY,
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
    }
    return restarting_environment(observer, **settings | more)


def left_in(folder):
    return files_below(folder)


def test_after_a_failure_each_record_counts_once(tmp_path, stage):
    watcher = Watcher(stage)
    env = checkpointed(watcher, tmp_path)
    source = HeldSource(stage.name, splits=3, count=40, hold=20)
    sums_to_file(env, tmp_path / "out", source, FailsOnce(stage.name, 30))
    client = env.execute_async("sums")
    client.get_job_execution_result().result()
    assert stage.failed.is_set()
    assert lines_of(tmp_path / "out") == expected_sums(3, 40)
    assert hidden_below(tmp_path / "out") == []
    statistics = client.get_checkpoints().result()
    assert watcher.restored
    assert watcher.restored[0] is not None, "it began anew"
    assert statistics.restored == len(watcher.restored)
    assert statistics.latest_restored.checkpoint_id == watcher.restored[-1]
    assert statistics.completed == len(watcher.completed)
    assert left_in(tmp_path / "checkpoints") == []


def test_a_job_without_failures_commits_with_its_last_checkpoint(tmp_path, stage):
    stage.gate.set()
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 10, 0), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(2, 10)
    assert watcher.completed


def test_the_last_checkpoint_does_not_wait_for_its_time(tmp_path, stage):
    stage.gate.set()
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path, execution__checkpointing__interval="1 h")
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 3, 10, 0), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(3, 10)
    assert len(watcher.completed) == 1


def test_a_directory_is_not_needed_where_all_share_the_files(tmp_path, stage):
    stage.gate.set()
    watcher = Watcher()
    env = restarting_environment(watcher, execution__checkpointing__interval=EVERY)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 10, 0), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(2, 10)
    assert watcher.completed


def test_a_directory_that_cannot_be_written_is_refused_at_submit(tmp_path, stage):
    (tmp_path / "checkpoints").write_text("a file")
    env = checkpointed(Watcher(), tmp_path)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 1, 1, 0), same)
    with pytest.raises(
        ConfigurationError, match=r"execution\.checkpointing\.dir .* cannot be written"
    ):
        env.execute("sums")


def test_a_cancelled_job_keeps_its_checkpoint_where_it_is_told_to(tmp_path, stage):
    watcher = Watcher()
    retained = {
        "execution__checkpointing__externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"
    }
    env = checkpointed(watcher, tmp_path, **retained)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(2)
    client.cancel().result()
    assert client.get_job_status().result().name == "CANCELED"
    kept = client.get_checkpoints().result().latest_completed
    stage.gate.set()

    env = checkpointed(Watcher(), tmp_path, execution__state_recovery__path=kept.location)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)
    assert client.get_checkpoints().result().latest_restored.checkpoint_id == kept.checkpoint_id


def test_a_job_stopped_with_a_savepoint_goes_on_from_it(tmp_path, stage):
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(1)
    folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert client.get_job_status().result().name == "FINISHED"
    first = lines_of(tmp_path / "out")
    assert set(first) <= set(expected_sums(2, 20))
    assert hidden_below(tmp_path / "out") == []

    stage.gate.set()
    env = checkpointed(Watcher(), tmp_path, parallelism=3, execution__state_recovery__path=folder)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)


def test_a_savepoint_is_taken_of_a_job_without_periodic_checkpoints(tmp_path, stage):
    env = restarting_environment(Watcher())
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    wait_until_running(client)
    folder = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    assert (tmp_path / "savepoints") in type(tmp_path)(folder).parents
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)
    assert left_in(tmp_path / "savepoints"), "a savepoint is the user's"


def two_parts(env, folder, stage):
    """One part stands still; the other ends, and its output waits for the end of the job."""
    sums_to_file(env, folder / "out", HeldSource(stage.name, 2, 40, 20), same)
    ended = env.from_collection([(7, number) for number in range(5)])
    ended.map(lambda pair: f"{pair[0]} {pair[1]}").uid("short text").sink_to(
        file_sink(folder / "short")
    ).uid("short out")
    return env.execute_async("two parts")


def until_ended(client, least):
    """The other part runs, and so many subtasks of this one have ended. It has three."""
    vertices = manager_of(client).job_master.state.graph.vertices

    def has_ended():
        states = Counter(vertex.state.name for vertex in vertices)
        return states["FINISHED"] >= least and states.keys() == {"RUNNING", "FINISHED"}

    wait_until(has_ended, "no part of the job ends, or both do")


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_savepoint_holds_the_output_of_a_part_that_has_ended(tmp_path, stage, parallelism):
    client = two_parts(restarting_environment(Watcher()), tmp_path, stage)
    until_ended(client, 1)
    folder = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    client.cancel().result()
    assert lines_of(tmp_path / "short") == []
    stage.gate.set()
    path = {"execution__state_recovery__path": folder}
    again = two_parts(restarting_environment(Watcher(), parallelism, **path), tmp_path, stage)
    again.get_job_execution_result().result()
    assert lines_of(tmp_path / "short") == [(7, number) for number in range(5)]
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)


def test_the_output_of_a_part_that_has_ended_is_there_once_with_the_job_and_its_savepoint(
    tmp_path, stage
):
    """The savepoint stops the job, which commits at its end. Restored, the sink commits it again."""
    client = two_parts(restarting_environment(Watcher()), tmp_path, stage)
    until_ended(client, 3)
    folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert lines_of(tmp_path / "short") == [(7, number) for number in range(5)]
    stage.gate.set()
    path = {"execution__state_recovery__path": folder}
    again = two_parts(restarting_environment(Watcher(), **path), tmp_path, stage)
    again.get_job_execution_result().result()
    assert lines_of(tmp_path / "short") == [(7, number) for number in range(5)]
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)


def test_a_savepoint_that_cannot_be_stored_leaves_nothing_and_the_job_goes_on(
    tmp_path, stage, monkeypatch
):
    publish = LocalFiles.publish

    def full(files, unfinished, location):
        if "savepoint-" in location:
            raise CheckpointIoError("disk full")
        publish(files, unfinished, location)

    monkeypatch.setattr(LocalFiles, "publish", full)
    watcher = Watcher()
    env = restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__data_inline_threshold="0 b",
    )
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(1)
    with pytest.raises(SavepointFailed, match="disk full"):
        client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    stage.gate.set()
    client.get_job_execution_result().result()
    assert watcher.restored == []
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)
    assert list((tmp_path / "savepoints").iterdir()) == []


def test_a_savepoint_that_the_tasks_cannot_write_fails_alone(tmp_path, stage):
    """No checkpoint may fail in this job (tolerable-failed-checkpoints is 0), and it goes on all the same."""
    (tmp_path / "file").write_text("no folder", encoding="ascii")
    watcher = Watcher()
    inline = {"execution__checkpointing__data_inline_threshold": "0 b"}
    env = restarting_environment(
        watcher, execution__checkpointing__dir=str(tmp_path / "checkpoints"), **inline
    )
    env.enable_checkpointing(100)
    source = HeldSource(stage.name, splits=2, count=10, hold=5)
    sums_to_file(env, tmp_path / "out", source, same)
    client = env.execute_async("savepoint")
    stage.wait_until_held(2)
    watcher.wait_for(1)
    with pytest.raises(
        SavepointFailed, match=r"no savepoint was taken: .*Not a directory|File exists"
    ):
        client.trigger_savepoint(str(tmp_path / "file")).result()
    watcher.wait_for(len(watcher.completed) + 1)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert watcher.restored == []
    assert lines_of(tmp_path / "out") == expected_sums(2, 10)


def test_a_savepoint_of_a_job_that_has_ended_is_refused(tmp_path, stage):
    stage.gate.set()
    env = restarting_environment(Watcher())
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 1, 1, 0), same)
    client = env.execute_async("sums")
    client.get_job_execution_result().result()
    with pytest.raises(ExternalError, match="the job has ended"):
        client.trigger_savepoint(str(tmp_path / "savepoints")).result()


def test_a_savepoint_without_a_directory_says_what_to_name(tmp_path, stage):
    env = restarting_environment(Watcher())
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    wait_until_running(client)
    with pytest.raises(ExternalError, match="execution.checkpointing.savepoint-dir"):
        client.trigger_savepoint().result()
    stage.gate.set()
    client.get_job_execution_result().result()


def test_collected_rows_are_given_once_whatever_fails(tmp_path, stage):
    watcher = Watcher(stage)
    env = checkpointed(watcher, tmp_path)
    source = HeldSource(stage.name, splits=3, count=40, hold=20)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held")
    with stream.map(FailsOnce(stage.name, 30)).execute_and_collect() as rows:
        found = list(rows)
    assert stage.failed.is_set()
    assert sorted(found) == [(split, number) for split in range(3) for number in range(40)]
    assert watcher.restored[0] is not None


def test_collected_rows_are_given_with_the_checkpoint_that_covers_them(tmp_path, stage):
    """The source stands still: what it gave before comes, though the job goes on."""
    env = checkpointed(Watcher(), tmp_path)
    source = HeldSource(stage.name, splits=2, count=40, hold=20)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held")
    with stream.execute_and_collect() as rows:
        found = [next(rows) for _ in range(40)]
        stage.gate.set()
        found += list(rows)
    assert sorted(found) == [(split, number) for split in range(2) for number in range(40)]


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, stage, monkeypatch):
    """Of the newest one no file can be read, as if a byte of each were another."""
    watcher = Watcher(stage, opens_after=2)
    kept = {
        "execution__checkpointing__num_retained": "2",
        "execution__checkpointing__data_inline_threshold": "0 b",
    }
    env = checkpointed(watcher, tmp_path, **kept)
    source = HeldSource(stage.name, splits=2, count=40, hold=20)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    summed = stream.map(FailsOnce(stage.name, 30)).key_by(first_of).reduce(running_sum)
    summed.sink_to(file_sink(tmp_path / "out"))
    read = CheckpointStorage.read

    def damaged(self, handle):
        if isinstance(handle, FileHandle) and f"/chk-{watcher.restored[0]}/" in handle.path:
            raise CheckpointDamaged(f"{handle.path} has been altered")
        return read(self, handle)

    monkeypatch.setattr(CheckpointStorage, "read", damaged)
    client = env.execute_async("damaged")
    client.get_job_execution_result().result()
    first, second, *_ = watcher.restored
    assert second is not None
    assert second < first
    causes = [entry.root.failure.text for entry in manager_of(client).job_master.exceptions]
    assert any(f"/chk-{first}/" in text and "altered" in text for text in causes)
