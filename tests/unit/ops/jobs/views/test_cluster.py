import sys

from penstock.engine.model.states import JobStatus
from penstock.ops.jobs.snapshots import DriverSnapshot
from penstock.ops.jobs.views import cluster
from penstock.ops.jobs.views.cluster import environment
from tests.tools.observation.job_records import BEGAN, JOB, ToldJob


def test_secrets_on_the_command_line_are_not_told(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "job.py", "jdbc://me:secret@host/db"])
    told = environment()
    assert told["jvm"]["options"] == ["job.py", "jdbc://******@host/db"]
    assert told["jvm"]["version"].startswith("Python 3.")
    assert told["classpath"] == sys.path


def test_jobs_that_are_forgotten_still_count():
    driver = DriverSnapshot(
        (ToldJob().registers().runs().status("RUNNING").now_it_is(),),
        BEGAN,
        {JobStatus.FAILED: 2, JobStatus.FINISHED: 1},
    )
    told = cluster.overview(driver)
    assert (told["jobs-running"], told["jobs-failed"], told["jobs-finished"]) == (1, 2, 1)
    assert (told["taskmanagers"], told["slots-total"], told["slots-available"]) == (1, 2, 0)


def features(**more):
    told = cluster.dashboard_config(refresh_ms=1, zone=("UTC", 0), **more)
    return {name for name, is_on in told["features"].items() if is_on}


def test_the_dashboard_may_do_what_the_options_allow():
    """Flink tells of rescales where the Adaptive scheduler runs the job."""
    assert features(may=()) == set()
    every = tuple(cluster.Action)
    assert features(may=every) == {"web-cancel"}
    assert features(may=every, is_elastic=True) == {"web-cancel", "web-rescale"}
    assert features(may=(cluster.Action.CANCEL,), is_elastic=True) == {"web-cancel"}


def test_a_job_is_an_application_of_its_own():
    job = ToldJob().status("RUNNING", 5).status("CANCELLING", 5).now_it_is()
    told = cluster.application(job)
    assert (told["id"], told["name"]) == (JOB, "SingleJobApplication(job)")
    assert (told["status"], told["timestamps"]["RUNNING"]) == ("CANCELING", BEGAN + 5)
    (listed,) = cluster.applications(DriverSnapshot((job,), BEGAN))["applications"]
    assert listed["jobs"] == {"CANCELLING": 1}
