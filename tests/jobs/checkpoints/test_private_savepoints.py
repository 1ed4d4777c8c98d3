"""A job goes on from a savepoint that is its user's alone, and from no other."""

import shutil

import pytest

from penstock.engine.model.errors import ConfigurationError
from tests.tools.hosting.running_job import control_of
from tests.tools.output_files import files_below
from tests.tools.permissions import mode, open_to_others, umask
from tests.tools.programs.checkpoint_programs import (
    HeldSource,
    Watcher,
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.user_functions import same

UNALIGNED = {"execution__checkpointing__unaligned__enabled": "true"}
ROCKS = {
    "state__backend__type": "rocksdb",
    "execution__checkpointing__incremental": "true",
    "execution__checkpointing__data_inline_threshold": "0 b",
}
KINDS = {
    "in files": {"execution__checkpointing__data_inline_threshold": "0 b"},
    "in the metadata": {},
    "of RocksDB": ROCKS,
}


def started(tmp_path, stage, watcher=None, **settings):
    env = restarting_environment(watcher or Watcher(), **settings)
    sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 40, 20), same)
    return env


@pytest.mark.parametrize("kind", KINDS)
def test_a_private_savepoint_is_restored_and_its_copy_for_a_group_is_refused(tmp_path, stage, kind):
    settings = KINDS[kind] | UNALIGNED
    with umask(0):
        client = started(tmp_path, stage, **settings).execute_async("sums")
        wait_until_running(client)
        stage.wait_until_held(2)
        folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert open_to_others(tmp_path / "savepoints") == {}
    assert mode(tmp_path / "savepoints") == 0o700
    before = lines_of(tmp_path / "out")
    stage.gate.set()

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for place in (copy, *copy.iterdir()):
        former = mode(place)
        place.chmod(former | 0o020)
        for given in (copy, copy / "_metadata"):
            env = started(tmp_path, stage, execution__state_recovery__path=str(given), **settings)
            with pytest.raises(ConfigurationError) as refused:
                env.execute("sums")
            told = str(refused.value)
            assert f"other users may write to {str(place)!r}" in told
            assert f"{former | 0o020:04o} lets the group" in told
            assert f"chmod {'' if place == copy else '-R '}g-w {copy}" in told
        place.chmod(former)
    assert lines_of(tmp_path / "out") == before

    given = str(copy / "_metadata")
    env = started(tmp_path, stage, execution__state_recovery__path=given, **settings)
    env.execute("sums")
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)


def test_a_savepoint_into_a_folder_that_others_may_write_fails_alone(tmp_path, stage):
    """It could not be restored. The job goes on, and a savepoint elsewhere is taken."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    watcher = Watcher()
    client = started(tmp_path, stage, watcher).execute_async("sums")
    wait_until_running(client)
    told = f"other users may write to '{tmp_path}/shared'"
    with pytest.raises(ConfigurationError, match=told):
        client.stop_with_savepoint(False, str(tmp_path / "shared")).result()
    with pytest.raises(ConfigurationError, match=told):
        client.trigger_savepoint(str(tmp_path / "shared" / "below")).result()
    assert files_below(tmp_path / "shared") == []
    assert client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    stage.gate.set()
    client.get_job_execution_result().result()
    assert watcher.restored == []
    assert lines_of(tmp_path / "out") == expected_sums(2, 40)


def test_checkpoints_of_a_running_job_are_this_users_alone(tmp_path, stage):
    folder = tmp_path / "checkpoints"
    watcher = Watcher()
    with umask(0):
        client = started(
            tmp_path,
            stage,
            watcher,
            execution__checkpointing__interval="20 ms",
            execution__checkpointing__dir=str(folder),
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
            **ROCKS,
        ).execute_async("sums")
        stage.wait_until_held(2)
        watcher.wait_for(len(watcher.completed) + 2)
        client.cancel().result()
        control_of(client).wait(30)
    assert files_below(folder)
    assert open_to_others(folder) == {}
    assert mode(folder) == 0o700
    made = [mode(path) for path in files_below(tmp_path / "out")]
    assert set(made) == {0o666}, "what a sink has written is for others, as the umask says"
