"""Jobs whose keyed state lies in RocksDB: the same results, after failures and at another parallelism, and nothing left on disk."""

import sys
from pathlib import Path

import pytest

from penstock.engine.hosting.checkpoints.storage import decode_metadata
from penstock.engine.model.checkpoints import FileHandle
from penstock.engine.model.errors import ConfigurationError, JobCancelledError, JobExecutionError
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Watcher,
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
)
from tests.tools.programs.user_functions import same
from tests.tools.waiting import wait_until

INCREMENTAL = {"execution__checkpointing__incremental": "true"}
RETAINED = {"execution__checkpointing__externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}


def on_disk(observer, tmp_path, **more):
    (tmp_path / "io").mkdir(exist_ok=True)
    settings = {
        "execution__checkpointing__interval": "20 ms",
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
        "state__backend__type": "rocksdb",
        "io__tmp__dirs": str(tmp_path / "io"),
    }
    return restarting_environment(observer, **settings | more)


def cancel(client):
    """Until nothing of the job is left: what was superseded is removed behind its end."""
    client.cancel().result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()


def kept_of(tmp_path, stage, checkpoints, splits=3, **settings):
    """A job of held sources up to so many checkpoints, cancelled. Returns: the newest one, which was retained."""
    watcher = Watcher()
    env = on_disk(watcher, tmp_path, **settings, **RETAINED)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, splits, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(checkpoints)
    cancel(client)
    return client.get_checkpoints().result().latest_completed


@pytest.mark.parametrize("is_incremental", [False, True])
def test_after_a_failure_each_record_counts_once(tmp_path, stage, is_incremental):
    watcher = Watcher(stage)
    env = on_disk(watcher, tmp_path, execution__checkpointing__incremental=str(is_incremental))
    source = HeldSource(stage.name, splits=3, count=40, hold=20)
    sums_to_file(env, tmp_path / "out", source, FailsOnce(stage.name, 30))
    env.execute("sums")
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    assert lines_of(tmp_path / "out") == expected_sums(3, 40)
    assert list((tmp_path / "io").rglob("*.sst")) == []


def test_an_incremental_checkpoint_that_was_kept_is_gone_on_from_at_any_parallelism(
    tmp_path, stage
):
    """Files of the job that it begins with are read, and never referred to: they are not its own."""
    kept = kept_of(tmp_path, stage, 4, **INCREMENTAL)
    assert 0 < kept.written_bytes < kept.size_bytes
    stage.gate.set()
    env = on_disk(
        Watcher(),
        tmp_path,
        parallelism=3,
        execution__state_recovery__path=kept.location,
        **INCREMENTAL,
        **RETAINED,
    )
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 3, 40, 20), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(3, 40)
    assert files_in(tmp_path / "checkpoints") == files_of(kept.location)


@pytest.mark.parametrize("is_another_kept", [False, True])
def test_of_a_claimed_checkpoint_nothing_stays_but_what_one_beside_it_shares(
    tmp_path, stage, is_another_kept
):
    number = "2" if is_another_kept else "1"
    settings = INCREMENTAL | {"execution__checkpointing__num_retained": number}
    claimed = kept_of(tmp_path, stage, 3, **settings).location
    others = set(map(str, (tmp_path / "checkpoints").rglob("_metadata")))
    others.remove(claimed.removeprefix("file://"))
    stage.gate.set()
    env = on_disk(
        Watcher(),
        tmp_path,
        execution__state_recovery__path=claimed,
        execution__state_recovery__claim_mode="CLAIM",
        **settings,
    )
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 3, 40, 20), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(3, 40)
    assert len(others) == int(is_another_kept)
    assert files_in(tmp_path / "checkpoints") == set().union(*map(files_of, others))


@pytest.mark.parametrize("goes_on_from", ["nothing", "a savepoint", "the kept one"])
def test_files_that_a_kept_checkpoint_of_an_earlier_run_refers_to_stay(
    tmp_path, stage, goes_on_from
):
    """Both runs have the same job id, and so the same directory."""
    same_id = INCREMENTAL | {
        "pipeline__fixed_job_id": "ab" * 16,
        "execution__checkpointing__num_retained": "2",
    }
    watcher = Watcher()
    env = on_disk(watcher, tmp_path, **same_id, **RETAINED)
    sums_to_file(env, tmp_path / "first", HeldSource(stage.name, 3, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(4)
    folder = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    cancel(client)
    newest = client.get_checkpoints().result().latest_completed.location
    folders = tmp_path / "checkpoints"
    wait_until(lambda: len(list(folders.rglob("_metadata"))) == 2, "a third one is not removed")
    kept = list(map(str, folders.rglob("_metadata")))
    assert newest.removeprefix("file://") in kept
    begin = {"nothing": {}, "a savepoint": {"path": folder}, "the kept one": {"path": newest}}
    more = {f"execution__state_recovery__{k}": v for k, v in begin[goes_on_from].items()}
    watcher = Watcher()
    env = on_disk(watcher, tmp_path, **same_id, **more)
    sums_to_file(env, tmp_path / "second", HeldSource(stage.name, 3, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(5)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert files_in(tmp_path / "checkpoints") == set().union(*map(files_of, kept))


def files_in(folder):
    return {str(path) for path in folder.rglob("*") if path.is_file()}


def files_of(location):
    """The metadata, and what it refers to."""
    checkpoint = decode_metadata(Path(location).read_bytes(), location)
    subtasks = [one for operator in checkpoint.operators for one in operator.subtasks if one]
    handles = [handle for state in subtasks for handle in state.handles]
    return {location} | {one.path for one in handles if isinstance(one, FileHandle)}


def test_an_incremental_checkpoint_is_for_rocksdb_only(tmp_path, stage):
    kept = kept_of(tmp_path, stage, 2, splits=2, **INCREMENTAL)
    env = on_disk(
        Watcher(),
        tmp_path,
        execution__state_recovery__path=kept.location,
        state__backend__type="hashmap",
        restart_strategy__type="none",
    )
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    with pytest.raises(JobExecutionError, match=r"'sum'.*state\.backend\.type is now 'hashmap'"):
        env.execute("sums")


@pytest.mark.parametrize(("first", "second"), [("rocksdb", "hashmap"), ("hashmap", "rocksdb")])
def test_a_savepoint_is_for_either_backend_at_any_parallelism(tmp_path, stage, first, second):
    watcher = Watcher()
    env = on_disk(watcher, tmp_path, state__backend__type=first)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    client = env.execute_async("sums")
    watcher.wait_for(1)
    folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    stage.gate.set()
    env = on_disk(
        Watcher(),
        tmp_path,
        parallelism=3,
        execution__state_recovery__path=folder,
        state__backend__type=second,
    )
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)


def test_a_machine_without_the_package_is_told_so(tmp_path, stage, monkeypatch):
    stage.gate.set()
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    env = on_disk(Watcher(), tmp_path, restart_strategy__type="none")
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 1, 1, 0), same)
    with pytest.raises(
        JobExecutionError, match=r"package 'rocksdict' cannot be imported.*penstock\[rocksdb\]"
    ):
        env.execute("sums")


def test_a_backend_that_there_is_not_is_refused_at_submit(tmp_path, stage):
    env = on_disk(Watcher(), tmp_path, state__backend__type="filesystem")
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 1, 1, 0), same)
    with pytest.raises(
        ConfigurationError, match=r"state\.backend\.type.*'filesystem'.*'hashmap'.*'rocksdb'"
    ):
        env.execute("sums")
