"""When a job is archived, and what its driver does when it cannot be."""

import itertools
import threading

import pytest

from penstock.engine.hosting.observer import JobEnded
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.model.messages import JobStatusChanged
from penstock.engine.model.states import JobStatus
from penstock.ops.history import archivist as module
from penstock.ops.history.archivist import Archivist
from penstock.ops.history.library import read_archive
from penstock.ops.registry.job_registry import JobRegistry
from tests.tools.observation.job_records import JOB, facts

PATIENCE_S = 60.0


class Job:
    """What an observer may look at."""

    exceptions = ExceptionHistory()


class Driver:
    """An job_registry that forgets jobs at once, and an archivist that waits for nothing at the end of the process."""

    def __init__(self, monkeypatch) -> None:
        self.at_exit = []
        monkeypatch.setattr(module.atexit, "register", lambda *call: self.at_exit.append(call))
        self.job_registry = JobRegistry()
        self.job_registry.capacity = 0
        self.said = []
        self.archivist = Archivist(self.job_registry, self.said.append)

    def ends(self, directory, status=JobStatus.FINISHED):
        """A job that is archived to the directory ends."""
        recorder = self.job_registry.watch(facts(), is_held=True)
        observer = self.archivist.observer(JOB, str(directory))
        recorder.observe(JobStatusChanged(status, 0))
        for one in (recorder, observer):
            one.observe(JobEnded(status, Job()))

    def done(self):
        assert self.archivist.finish(PATIENCE_S)


@pytest.fixture
def driver(monkeypatch):
    return Driver(monkeypatch)


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED])
def test_a_job_is_archived_when_it_has_ended_and_forgotten_then(driver, tmp_path, status):
    driver.ends(tmp_path, status)
    driver.done()
    told = read_archive((tmp_path / JOB).read_bytes())
    assert f'"state": "{status}"' in told["/jobs/overview"]
    assert '"classpath"' in told[f"/jobs/{JOB}/jobmanager/environment"]
    assert driver.said == []
    assert driver.job_registry.snapshot().jobs == ()


def test_a_job_that_another_driver_may_take_is_not_archived(driver, tmp_path):
    driver.ends(tmp_path, JobStatus.SUSPENDED)
    driver.done()
    assert list(tmp_path.iterdir()) == []
    assert driver.job_registry.snapshot().jobs == ()


def test_a_directory_that_cannot_be_written_is_a_warning(driver, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    driver.ends(tmp_path / "file")
    driver.done()
    (said,) = driver.said
    assert JOB in said
    assert "jobmanager.archive.fs.dir" in said
    assert str(tmp_path / "file") in said
    assert f"job={JOB}" in caplog.text
    assert "NOT WRITTEN" in caplog.text
    driver.ends(tmp_path)  # The next one is archived.
    driver.done()
    assert (tmp_path / JOB).exists()


def test_a_password_in_an_address_is_not_told(driver, caplog):
    driver.ends("nowhere://me:secret@host/archive")
    driver.done()
    assert len(driver.said) == 1
    assert "secret" not in caplog.text + driver.said[0]


def test_an_archive_that_is_there_is_no_reason_to_warn(driver, tmp_path):
    (tmp_path / JOB).write_text("the first")
    driver.ends(tmp_path)
    driver.done()
    assert driver.said == []
    assert (tmp_path / JOB).read_text() == "the first"


def test_the_end_of_the_process_waits_for_archives_but_not_for_ever(driver, tmp_path, monkeypatch):
    """Then nothing is left of the one that is being written, which nobody would see."""
    is_there = threading.Event()

    def endless(*_):
        for number in itertools.count():
            yield f"/{number}", {}
            is_there.set()

    monkeypatch.setattr(module, "archive_of", endless)
    driver.ends(tmp_path)  # Returns, although nothing is written yet.
    is_there.wait(PATIENCE_S)
    assert len(list(tmp_path.iterdir())) == 1
    (call,) = driver.at_exit
    assert call == (driver.archivist.finish, module.EXIT_WAIT_S)
    assert not driver.archivist.finish(0.0)
    assert driver.said == [f"archives are not written after 0 s. Without one: {JOB}"]
    assert list(tmp_path.iterdir()) == []
