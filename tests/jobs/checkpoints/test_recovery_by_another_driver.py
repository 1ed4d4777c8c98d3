"""A job with checkpoints whose driver is gone: the next one goes on from the newest, and the former can do no harm."""

from pathlib import Path

import pytest

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.jobmanager.checkpoint_writer import JobStorage
from penstock.engine.hosting.os.file_systems import CheckpointDamaged
from penstock.engine.hosting.program.checkpoint_setup import Surroundings, with_checkpoints
from penstock.engine.hosting.program.settings import job_manager_settings
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError, JobSuspendedError
from penstock.engine.model.program import ProgramSettings
from tests.tools.hosting.stored_checkpoints import JOB, LARGE, stored
from tests.tools.machines.job_graphs import A2A, BLOCKING, job_graph
from tests.tools.programs.checkpoint_programs import (
    HeldSource,
    Stage,
    Watcher,
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
)
from tests.tools.programs.failover_programs import pause
from tests.tools.programs.user_functions import same


def recoverable(observer, folder: Path, **more):
    settings = {
        "execution__checkpointing__interval": "20 ms",
        "high_availability__type": "FILE",
        "high_availability__storageDir": str(folder / "ha"),
        "penstock__high_availability__lease_duration": "2 s",
        "penstock__high_availability__renew_interval": "100 ms",
    }
    return restarting_environment(observer, **settings | more)


def test_another_driver_goes_on_from_the_newest_checkpoint(tmp_path, capfd):
    stage = Stage("takeover")
    source = HeldSource(stage.name, splits=3, count=40, hold=20)
    watcher = Watcher()
    env = recoverable(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", source, same)
    lost = env.execute_async("sums")
    watcher.wait_for(2)
    resume = pause(lost)
    stage.gate.set()
    second = Watcher()
    env = recoverable(second, tmp_path)
    sums_to_file(env, tmp_path / "out", source, same)
    client = env.execute_async("sums")
    client.get_job_execution_result().result()
    resume()
    with pytest.raises(JobSuspendedError):
        lost.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(3, 40)
    assert "it continues from checkpoint" in capfd.readouterr().err
    newest = max(one.checkpoint_id for one in watcher.completed)
    restored = client.get_checkpoints().result().latest_restored
    assert restored.checkpoint_id >= newest
    assert min(one.checkpoint_id for one in second.completed) > restored.checkpoint_id
    left = [path for path in tmp_path.rglob("chk-*") if path.is_dir()]
    assert left == []


# ---------------------------------------------------------------------- what a job begins with


def built(graph=None, settings=None, **around):
    settings = Settings(settings or {})
    told = []
    surroundings = {"shares_files": True, "draw": lambda: 0.0, "say": told.append} | around
    made = with_checkpoints(
        job_manager_settings(settings, ProgramSettings()),
        settings,
        graph or graph_of_job(),
        Surroundings(**surroundings),
    )
    return made, told


def graph_of_job():
    graph = job_graph({"A": 1}, [])
    graph.job_id = JOB
    return graph


INTERVAL = {"execution.checkpointing.interval": "1 s"}


def at(folder) -> dict[str, str]:
    return INTERVAL | {"execution.checkpointing.dir": str(folder)}


def test_without_a_shared_file_system_a_directory_must_be_named():
    with pytest.raises(ConfigurationError, match=r"Set execution\.checkpointing\.dir"):
        built(settings=INTERVAL, shares_files=False)
    made, _ = built(shares_files=False)
    assert made.storage is None
    assert made.job.checkpoints is None


def test_tasks_are_told_what_the_driver_knows(tmp_path):
    more = {"execution.checkpointing.data-inline-threshold": "7 kb"}
    made, _ = built(settings=at(tmp_path) | more, shares_files=False)
    told = made.task.checkpointing
    assert (told.directory, told.inline_bytes) == (str(tmp_path), 7 << 10)
    assert told.has_final_checkpoint
    assert made.job.checkpoints.interval_ms == 1000
    assert made.storage == JobStorage(made.storage.storage)


def test_a_job_that_cannot_be_snapshotted_waits_for_no_final_checkpoint(tmp_path):
    blocking = job_graph({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)])
    made, _ = built(blocking, at(tmp_path))
    assert not made.task.checkpointing.has_final_checkpoint


def test_a_temporary_directory_is_private_and_made_only_for_periodic_checkpoints():
    made, _ = built(settings=INTERVAL)
    folder = Path(made.task.checkpointing.directory)
    assert made.storage.is_temporary
    assert folder.stat().st_mode & 0o077 == 0
    made.storage.drop_unused()
    assert not folder.exists()
    made, _ = built()
    assert not Path(made.task.checkpointing.directory).exists()
    assert made.job.checkpoints.interval_ms is None


def test_ids_go_on_above_all_that_lies_there(tmp_path):
    storage = CheckpointStorage(str(tmp_path), JOB)
    stored(storage, 41, LARGE)
    unfinished = storage.writer(storage.folder_of(57), 0)
    unfinished.add(LARGE)
    unfinished.close()
    made, _ = built(settings=at(tmp_path))
    assert made.job.checkpoints.first_id == 58


def pointers(*checkpoints):
    return tuple((one.checkpoint_id, one.location) for one in checkpoints)


def test_who_takes_over_begins_with_what_is_whole_and_says_so(tmp_path):
    storage = CheckpointStorage(str(tmp_path), JOB)
    first, second = stored(storage, 1, LARGE), stored(storage, 2, LARGE)
    made, told = built(settings=at(tmp_path), pointers=pointers(first, second))
    assert [one.checkpoint_id for one in made.storage.completed] == [1, 2]
    assert made.storage.is_taken_over
    assert told == []
    Path(second.location).write_bytes(b"torn")
    made, told = built(settings=at(tmp_path), pointers=pointers(first, second))
    assert [one.checkpoint_id for one in made.storage.completed] == [1]
    assert "checkpoint 1 instead: checkpoint 2:" in told[0]


def test_where_none_is_whole_nothing_is_run(tmp_path):
    storage = CheckpointStorage(str(tmp_path), JOB)
    first = stored(storage, 1, LARGE)
    for path in Path(storage.folder_of(1)).iterdir():
        if path.name != "_metadata":
            path.write_bytes(b"short")
    with pytest.raises(ExternalError, match=r"none of the job's completed checkpoints.*too short"):
        built(settings=at(tmp_path), pointers=pointers(first))


@pytest.mark.parametrize(("mode", "is_savepoint"), [("CLAIM", False), ("NO_CLAIM", True)])
def test_a_checkpoint_that_is_claimed_is_the_jobs_own(tmp_path, mode, is_savepoint):
    storage = CheckpointStorage(str(tmp_path / "old"), JOB)
    stored(storage, 5, LARGE)
    settings = at(tmp_path / "new") | {
        "execution.state-recovery.path": storage.folder_of(5),
        "execution.state-recovery.claim-mode": mode,
    }
    made, _ = built(settings=settings)
    (found,) = made.storage.completed
    assert found.checkpoint_type.is_savepoint is is_savepoint


def test_what_is_not_there_is_named(tmp_path):
    """With what there is beside it."""
    storage = CheckpointStorage(str(tmp_path / "old"), JOB)
    stored(storage, 5, LARGE)
    for given, told in {
        tmp_path / "nowhere": "it is not there, or empty",
        storage.folder_of(6): "it is not there, or empty",
        storage.root: f"without the file _metadata.*such as {storage.folder_of(5)}",
        f"{storage.root}/_metadata": f"without the file _metadata.*such as {storage.folder_of(5)}",
    }.items():
        settings = at(tmp_path) | {"execution.state-recovery.path": str(given)}
        with pytest.raises(CheckpointDamaged, match=f"no savepoint or checkpoint at .*{told}"):
            built(settings=settings)


def test_what_others_may_write_is_not_opened(tmp_path):
    storage = CheckpointStorage(str(tmp_path), JOB)
    stored(storage, 5, LARGE)
    folder = Path(storage.folder_of(5))
    folder.chmod(0o777)
    settings = at(tmp_path) | {"execution.state-recovery.path": str(folder)}
    with pytest.raises(ConfigurationError, match=r"other users may write .*chmod go-w"):
        built(settings=settings)


def test_a_savepoint_can_be_moved(tmp_path):
    storage = CheckpointStorage(str(tmp_path / "old"), JOB)
    stored(storage, 5, LARGE)
    moved = tmp_path / "moved"
    Path(storage.folder_of(5)).rename(moved)
    found = storage.load(str(moved))
    storage.verify(found)
    assert found.location == f"{moved}/_metadata"


def test_a_savepoint_of_another_file_system_is_found_by_its_uri(tmp_path):
    storage = CheckpointStorage(str(tmp_path / "old"), JOB)
    stored(storage, 5, LARGE)
    uri = f"file://{storage.folder_of(5)}"
    assert storage.load(storage.find(uri)).checkpoint_id == 5


def test_no_checkpoint_is_written_over(tmp_path):
    """Two drivers, one of which does not know that it is past."""
    storage = CheckpointStorage(str(tmp_path), JOB)
    first = stored(storage, 5, LARGE)
    with pytest.raises(ExternalError, match="exists"):
        stored(storage, 5, b"other")
    storage.verify(storage.load(first.location))
    assert not [path for path in Path(storage.folder_of(5)).iterdir() if path.name.startswith(".")]
