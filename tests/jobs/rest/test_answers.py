"""The REST API of a running job, against the answers of a true Flink cluster."""

import re

import pytest

from tests.conformance.rest.shapes import RECORDED, differences
from tests.tools.hosting.rest import rest_server
from tests.tools.programs.failing_on_demand import fail_once, failing_on_demand
from tests.tools.waiting import wait_until

NO_JOB = "0" * 32
REQUIREMENTS = "/jobs/{job}/resource-requirements"
OTHERWISE = {"/jars", "/taskmanagers/{tm}/logs", REQUIREMENTS}
"""Penstock takes no jars, and says so; Flink lists those that were uploaded. TaskManagers of a MiniCluster have no log files. Every
streaming job can be asked for its requirements; Flink refuses without its adaptive scheduler.
"""
ASKED = [name for name in RECORDED if ", " not in name and name not in OTHERWISE]
"""The others are of a job that was cancelled."""


ALL_STATES = (
    "initializing", "created", "running", "restarting", "cancelling", "failing", "deploying",
    "allSubTasksRunningOrFinished",
)  # fmt: skip


@pytest.fixture(scope="module")
def client():
    with rest_server() as client:
        yield client


@pytest.fixture(scope="module")
def job(client, tmp_path_factory):
    """A job of two vertices that has failed once, was restored, and has completed checkpoints since."""
    settings = {
        "execution.checkpointing.interval": "20 ms",
        "metrics.job.status.enable": "STATE,TOTAL_TIME",
        "metrics.fetcher.update-interval": "100 ms",
    }
    folder = tmp_path_factory.mktemp("checkpoints")
    with failing_on_demand("golden job", folder, **settings) as running:
        yield Ids(client, str(running.get_job_id()))


class Ids:
    """The ids that stand in recorded paths."""

    def __init__(self, client, job_id) -> None:
        def latest(kind):
            return client.get(f"/jobs/{job_id}/checkpoints")["latest"][kind]

        wait_until(lambda: latest("completed"), "no checkpoint")
        fail_once()
        restored = wait_until(lambda: latest("restored"), "no restart with a checkpoint")
        wait_until(
            lambda: latest("completed")["id"] > restored["id"] + 1,
            "no checkpoint after the failure",
        )
        details = client.get(f"/jobs/{job_id}")
        by_kind = {bool(node.get("inputs")): node["id"] for node in details["plan"]["nodes"]}
        subtasks = f"/jobs/{job_id}/vertices/{by_kind[True]}/subtasks/metrics"
        wait_until(
            lambda: client.get("/taskmanagers/metrics") and client.get(subtasks),
            "no TaskManager reports its metrics and those of subtasks",
        )
        self.known = {
            "job": job_id,
            "vertex0": by_kind[False],
            "vertex1": by_kind[True],
            "tm": client.get("/taskmanagers")["taskmanagers"][0]["id"],
        }
        self._client = client

    def path(self, recorded):
        newest = self._client.get(f"/jobs/{self.known['job']}/checkpoints")["latest"]["completed"]
        return re.sub(
            r"\{(\w+)\}", lambda found: self.known.get(found[1], str(newest["id"])), recorded
        )


@pytest.mark.parametrize("recorded", ASKED)
def test_an_answer_has_the_shape_of_flinks(client, job, recorded):
    theirs = RECORDED[recorded]
    status, ours = client.ask(job.path(recorded))
    assert (status, differences(theirs["body"], ours)) == (theirs["status"], [])


def test_every_vertex_may_have_from_one_subtask_up_to_what_it_has(client, job):
    """The form is that of Flink's adaptive scheduler, which is not recorded."""
    vertices = client.get(job.path("/jobs/{job}"))["vertices"]
    assert client.get(job.path(REQUIREMENTS)) == {
        one["id"]: {"parallelism": {"lowerBound": 1, "upperBound": one["parallelism"]}}
        for one in vertices
    }


def test_bytes_that_stay_in_the_process_are_written_too(client, job):
    """All tasks of the job are in one process. `numBytesOut` has all bytes."""
    source = "/jobs/{job}/vertices/{vertex0}"
    reported = job.path(f"{source}/subtasks/metrics?get=numBytesOut&agg=sum")
    (sent,) = wait_until(
        lambda: [one for one in client.get(reported) if one["sum"] > 0], "nothing is sent"
    )

    def of_subtasks():
        subtasks = client.get(job.path(source))["subtasks"]
        return sum(one["metrics"]["write-bytes"] for one in subtasks)

    def of_vertex():
        vertices = client.get(job.path("/jobs/{job}"))["vertices"]
        (found,) = (one for one in vertices if one["id"] == job.known["vertex0"])
        return found["metrics"]["write-bytes"]

    # Heartbeats and reports of metrics come at different times.
    wait_until(lambda: of_subtasks() >= sent["sum"], "the subtasks have not written them")
    wait_until(lambda: of_vertex() >= sent["sum"], "the vertex has not written them")


def test_the_metrics_of_states_are_those_that_are_asked_for(client, job):
    names = {one["id"] for one in client.get(job.path("/jobs/{job}/metrics"))}
    wanted = {f"{state}{kind}" for state in ALL_STATES for kind in ("State", "TimeTotal")}
    assert {name for name in names if name.startswith(tuple(ALL_STATES))} == wanted
    path = job.path("/jobs/{job}/metrics?get=runningState,failingState,runningTimeTotal")
    found = {one["id"]: int(one["value"]) for one in client.get(path)}
    assert (found["runningState"], found["failingState"]) == (1, 0)
    assert found["runningTimeTotal"] > 0


def test_the_last_checkpoint_tells_its_bytes(client, job):
    names = ("MetadataSize", "ProcessedData", "PersistedData")
    path = job.path(f"/jobs/{{job}}/metrics?get={','.join(f'lastCheckpoint{n}' for n in names)}")
    found = {one["id"]: int(one["value"]) for one in client.get(path)}
    assert found["lastCheckpointMetadataSize"] > 0
    assert found["lastCheckpointProcessedData"] >= 0
    assert found["lastCheckpointPersistedData"] == 0  # barriers overtake nothing


def test_a_vertex_has_a_history_of_its_figures(client, job):
    path = job.path("/jobs/{job}/vertices/{vertex1}/history")
    told = wait_until(
        lambda: (
            found if any((found := client.get(path))["figures"]["numRecordsInPerSecond"]) else None
        ),
        "no rates in the history",
    )
    assert (told["step"], told["kept"]) == (1_000, 600_000)
    assert all(len(values) == len(told["timestamps"]) for values in told["figures"].values())
    assert all(at_ms % 1_000 == 0 for at_ms in told["timestamps"])
    assert any(0 < one <= 1_000 for one in told["figures"]["busyTimeMsPerSecond.max"])
    assert any(one is not None for one in told["figures"]["checkpointDuration"])
    last = told["timestamps"][-1]
    later = client.get(f"{path}?since={last - 1_000}&get=stateSize,watermarkLag")
    assert set(later["figures"]) == {"stateSize", "watermarkLag"}
    assert later["timestamps"][0] == last


def test_all_vertices_of_a_job_have_one_together(client, job):
    told = client.get(job.path("/jobs/{job}/history?step=10000"))
    assert (told["step"], told["kept"]) == (10_000, 21_600_000)
    assert {one["id"] for one in told["vertices"]} == {job.known["vertex0"], job.known["vertex1"]}


@pytest.mark.parametrize(
    ("query", "cause"), [("step=5", "expected 1000 or 10000"), ("get=stateSize,x", "get has x")]
)
def test_a_history_that_is_not_kept_is_refused_with_what_there_is(client, job, query, cause):
    status, told = client.ask(job.path(f"/jobs/{{job}}/vertices/{{vertex0}}/history?{query}"))
    assert status == 400
    assert cause in told["errors"][0]


def test_who_limits_the_job_is_told(client, job):
    assert client.get(job.path("/jobs/{job}/bottleneck"))["sentence"]
    assert client.get(job.path("/jobs/{job}/metrics/top-n?n=1"))["total"] >= 1


def test_every_path_exists_with_the_version_before_it(client, job):
    path = job.path("/jobs/{job}/plan")
    assert client.ask(f"/v1{path}") == client.ask(path)
