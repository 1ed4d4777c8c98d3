"""A job is refused where its checkpoints could not be restored later, before it runs for days."""

import os

import pytest

from penstock.engine.hosting.program.checkpoint_setup import Surroundings, with_checkpoints
from penstock.engine.hosting.program.settings import job_manager_settings
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.program import ProgramSettings
from tests.tools.hosting.stored_checkpoints import JOB
from tests.tools.machines.job_graphs import job_graph
from tests.tools.permissions import AS_ROOT, SOMEBODY, mode

INTERVAL = {"execution.checkpointing.interval": "1 s"}
DIR, SAVEPOINTS = "execution.checkpointing.dir", "execution.checkpointing.savepoint-dir"


def told_at_submit(settings, **around) -> list[str]:
    """What is said of a job that is not refused."""
    graph = job_graph({"A": 1}, [])
    graph.job_id = JOB
    told = []
    surroundings = Surroundings(True, lambda: 0.0, told.append, **around)
    given = Settings(settings)
    with_checkpoints(job_manager_settings(given, ProgramSettings()), given, graph, surroundings)
    return told


def test_relative_directories_are_resolved_at_submit(tmp_path, monkeypatch):
    """Tasks work in other directories, and this one may be removed while the job runs."""
    monkeypatch.chdir(tmp_path)
    graph = job_graph({"A": 1}, [])
    graph.job_id = JOB
    given = Settings(INTERVAL | {DIR: "checkpoints", SAVEPOINTS: "savepoints"})
    asked = job_manager_settings(given, ProgramSettings())
    built = with_checkpoints(asked, given, graph, Surroundings(True, lambda: 0.0, print))
    assert built.task.checkpointing.directory == f"{tmp_path}/checkpoints"
    assert built.storage.savepoints == f"{tmp_path}/savepoints"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "given" / "checkpoints"
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize("option", [DIR, SAVEPOINTS])
@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777], ids="{:o}".format)
@pytest.mark.parametrize("above", [False, True], ids=["itself", "the folder above"])
def test_a_directory_that_others_may_write_is_refused(folder, option, bits, above):
    place = folder.parent if above else folder
    settings = INTERVAL | {DIR: str(folder.parent.parent / "good"), option: str(folder)}
    assert told_at_submit(settings) == []
    place.chmod(bits)
    with pytest.raises(ConfigurationError, match=r"make it yours alone: chmod \w+-w ") as refused:
        told_at_submit(settings)
    assert f"nothing could be restored from {option} {str(folder)!r}: " in str(refused.value)
    assert f"other users may write to {str(place)!r}" in str(refused.value)
    place.chmod(0o1777)
    assert told_at_submit(settings) == []


@AS_ROOT
def test_a_directory_of_another_user_is_refused(folder):
    os.chown(folder, SOMEBODY, SOMEBODY)
    with pytest.raises(ConfigurationError, match=r"it belongs to .*65534.* chown 0 "):
        told_at_submit(INTERVAL | {DIR: str(folder)})


def test_a_link_to_a_directory_that_others_may_write_is_refused(folder):
    (folder.parent / "link").symlink_to(folder)
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match=rf"{folder}' on the way to '{folder.parent}/link"):
        told_at_submit(INTERVAL | {DIR: str(folder.parent / "link")})


def test_the_directory_of_high_availability_is_refused_too(folder):
    folder.chmod(0o770)
    with pytest.raises(ConfigurationError, match="other users may write"):
        told_at_submit(INTERVAL, recovery_directory=str(folder / "cluster-checkpoints"))


def test_a_directory_that_the_job_may_never_use_is_warned_of(folder):
    folder.chmod(0o770)
    (told,) = told_at_submit({DIR: str(folder)})
    assert told.startswith(f"warning: nothing could be restored from {DIR} ")
    assert f"chmod g-w {folder}" in told


def test_a_directory_that_is_not_there_yet_is_made_for_this_user_alone(folder):
    assert told_at_submit(INTERVAL | {DIR: str(folder / "a" / "b")}) == []
    assert [mode(path) for path in (folder / "a", folder / "a" / "b")] == [0o700, 0o700]
