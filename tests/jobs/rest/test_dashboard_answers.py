"""What the dashboard asks of a running job, and Flink's paths do not answer."""

import json
import urllib.request

import pytest

from penstock.common import Types
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.ops.history.library import Library
from tests.tools.hosting.rest import SETTINGS, rest_server
from tests.tools.programs.environments import minicluster_environment
from tests.tools.programs.failing_on_demand import fail_once, failing_on_demand
from tests.tools.waiting import wait_until


@pytest.fixture(scope="module")
def client():
    with rest_server() as client:
        yield client


@pytest.fixture(scope="module")
def job(client, tmp_path_factory):
    """The path of a job of two vertices with two subtasks each, that has failed once and takes checkpoints."""
    settings = {
        "execution.checkpointing.interval": "50 ms",
        "metrics.fetcher.update-interval": "50 ms",
        "heartbeat.interval": "100 ms",
    }
    folder = tmp_path_factory.mktemp("checkpoints")
    with failing_on_demand("shown job", folder, **settings) as running:
        path = f"/jobs/{running.get_job_id()}"
        counts = f"{path}/checkpoints"
        wait_until(lambda: client.get(counts)["counts"]["completed"], "no checkpoint")
        fail_once()
        wait_until(lambda: client.get(counts)["counts"]["restored"], "it does not restart")
        yield path


def until(client, path, is_so):
    """The first answer of which it is true."""
    last = {}

    def look():
        last.update(client.get(path))
        return is_so(last)

    wait_until(look, f"{path} never tells it")
    assert json.loads(json.dumps(last, allow_nan=False)) == last
    return last


def test_a_failure_with_the_line_of_the_program(client, job):
    told = until(client, f"{job}/exceptions/groups", lambda told: told["groups"])
    (group,) = [one for one in told["groups"] if one["exception"] == "ValueError"]
    assert (group["exception"], group["count"], group["vertex-name"]) == (
        "ValueError",
        1,
        "Source: Numbers -> slow",
    )
    assert group["headline"].startswith("ValueError: planned failure at ")
    assert group["line"]["function"] == "number_or_failure"
    assert group["line"]["text"].startswith('raise ValueError(f"planned failure')
    assert group["line"]["file"].endswith("failing_on_demand.py")
    assert group["operator"] == "slow"
    assert group["record"] is not None
    assert group["restart"]["number"] == 1
    assert "restart 1" in group["hint"].lower()
    assert len(group["subtasks"]) == len(group["places"]) == 1
    alone = client.get(f"{job}/exceptions/groups?fingerprint={group['fingerprint']}")
    assert alone["groups"][0]["text"].startswith(group["headline"])
    assert client.get(f"{job}/exceptions/groups?fingerprint=none")["shown"] == 0


def test_the_options_of_a_job(client, job):
    told = client.get(f"{job}/options")
    found = {one["key"]: one for subject in told["subjects"] for one in subject["options"]}
    interval = found["execution.checkpointing.interval"]
    assert (interval["value"], interval["set"], interval["set-by"]) == ("50 ms", True, "program")
    assert interval["default"] is None
    timeout = found["heartbeat.timeout"]
    assert (timeout["set"], timeout["set-by"]) == (False, None)
    assert timeout["value"] == timeout["default"] != timeout["flink-default"]


def test_the_checkpoints_of_a_job(client, job):
    told = until(client, f"{job}/checkpoints/strip", lambda told: told["completed"] > 12)
    assert told["interval"] == 50
    assert told["shown"] == len(told["checkpoints"]) <= told["total"]
    done = [one for one in told["checkpoints"] if one["state"] == "COMPLETED"]
    assert len(done) > 10  # The history of the job has ten.
    assert [one["id"] for one in done] == sorted((one["id"] for one in done), reverse=True)
    newest = done[0]
    assert (newest["subtasks"], newest["acknowledged"]) == (4, 4)
    assert 0 <= newest["straggler"]["after"] <= newest["duration"]
    path = f"{job}/checkpoints/details/{newest['id']}/gantt"
    gantt = client.get(path)
    assert (gantt["total"], gantt["shown"], gantt["missing"]) == (4, 4, 0)
    lasted = [one["after"] for one in gantt["subtasks"]]
    assert lasted == sorted(lasted, reverse=True)
    assert gantt["subtasks"][0]["subtask"] == newest["straggler"]["subtask"]
    one = client.get(f"{path}?vertexid={newest['straggler']['vertex-id']}")
    assert one["total"] == 2
    assert client.ask(f"{path}?vertexid={'0' * 32}")[0] == 404


def test_the_states_of_a_job_over_time(client, job):
    told = client.get(f"{job}/timeline")
    states = [one["state"] for one in told["job"]["spans"]]
    assert states[0] == "INITIALIZING"
    assert states[-1] == "RUNNING"
    assert "RESTARTING" in states
    assert told["job"]["spans"][-1]["to"] is None
    assert {"failure", "restart", "restore"} <= {one["kind"] for one in told["marks"]}
    source, sink = told["vertices"]
    for one in (source, sink):
        assert one["spans"][-1]["state"] == "RUNNING"
        assert one["spans"][-1]["from"] >= told["from"]
    attempts = client.get(f"{job}/timeline?vertexid={source['id']}")
    assert (attempts["total"], attempts["shown"]) == (4, 4)
    causes = [one["cause"] for one in attempts["attempts"] if one["state"] == "FAILED"]
    assert any("planned failure" in (cause or "") for cause in causes)
    assert all(one["taskmanager-id"] for one in attempts["attempts"])
    one = client.get(f"{job}/timeline?vertexid={source['id']}&subtaskindex=1&offset=1")
    assert [(row["subtask"], row["attempt"]) for row in one["attempts"]] == [(1, 1)]
    assert client.ask(f"{job}/timeline?vertexid={source['id']}&subtaskindex=2")[0] == 404


def vertices_of(client, job):
    return [one["id"] for one in client.get(f"{job}/graph")["nodes"]]


def test_the_watermarks_of_a_job_without_event_time(client, job):
    found = client.get(f"{job}/watermarks")["vertices"]
    assert [one["id"] for one in found] == vertices_of(client, job)
    assert {one["why"] for one in found} <= {
        "no subtask has reported yet",
        "none of its subtasks has a watermark yet",
    }


def test_chosen_vertices_of_a_job_over_time(client, job):
    source, sink = vertices_of(client, job)
    told = client.get(f"{job}/history?get=stateSize&vertices={sink}")
    assert [one["id"] for one in told["vertices"]] == [sink]
    both = client.get(f"{job}/history?vertices={sink},{source}")
    assert {one["id"] for one in both["vertices"]} == {source, sink}
    status, refused = client.ask(f"{job}/history?vertices={'0' * 32}")
    assert (status, refused["errors"]) == (404, [f"JobVertex {'0' * 32} not found"])


def test_how_subtasks_spend_their_time(client, job):
    source, _ = vertices_of(client, job)
    path = f"{job}/vertices/{source}/lanes"
    told = until(client, path, lambda told: told["subtasks"] and any(told["subtasks"][0]["busy"]))
    assert (told["step"], told["total"], told["shown"]) == (2_000, 2, 2)
    for row in told["subtasks"]:
        assert len(row["busy"]) == len(row["back-pressured"]) == len(told["timestamps"])
        assert all(one is None or 0 <= one <= 100 for one in row["busy"])
    last = told["timestamps"][-1]
    later = client.get(f"{path}?since={last}&sort=back-pressured")
    assert all(at_ms > last for at_ms in later["timestamps"])
    assert client.ask(f"{path}?sort=name")[0] == 400


def test_the_archive_of_a_job_that_runs(client, job, tmp_path):
    source, _ = vertices_of(client, job)
    until(
        client,
        f"{job}/vertices/{source}/history",
        lambda told: any(told["figures"]["numRecordsOutPerSecond"]),
    )
    with urllib.request.urlopen(f"{client.address}{job}/archive", timeout=60) as answer:
        name = answer.headers["Content-Disposition"].partition('"')[2].rstrip('"')
        (tmp_path / name).write_bytes(answer.read())
    library = Library([str(tmp_path)])
    assert (library.refresh(), f"/jobs/{name}") == (1, job)

    def archived(path):
        return json.loads(library.answer(path))

    (line,) = archived("/jobs/overview")["jobs"]
    assert (line["jid"], line["state"]) == (name, "RUNNING")
    assert archived(f"{job}/graph")["job"]["name"] == "shown job"
    assert archived(f"{job}/timeline")["job"]["spans"][-1]["state"] == "RUNNING"
    assert any(archived(f"{job}/vertices/{source}/history")["figures"]["numRecordsOutPerSecond"])
    told, live = archived(f"{job}/vertices/{source}"), client.get(f"{job}/vertices/{source}")
    assert [one["attempt"] for one in told["subtasks"]] == [
        one["attempt"] for one in live["subtasks"]
    ]


def test_a_page_of_subtasks(client, job):
    source, _ = vertices_of(client, job)
    path = f"{job}/vertices/{source}/table"
    told = until(
        client,
        f"{path}?sort=records-out&order=desc&limit=1",
        lambda told: told["subtasks"][0]["records-out"] and told["quantiles"]["state-bytes"],
    )
    assert (told["total"], told["shown"]) == (2, 1)
    (row,) = told["subtasks"]
    assert row["records-out"] == told["quantiles"]["records-out"]["max"]
    assert row["slot"] is not None
    assert row["state-durations"]["RUNNING"] <= row["duration"]
    rest = client.get(f"{path}?offset=1&state=running,failed")
    assert [one["subtask"] for one in rest["subtasks"]] == [1]
    assert client.get(f"{path}?state=finished")["total"] == 0
    for wrong in ("sort=name", "order=up", "state=ill"):
        assert client.ask(f"{path}?{wrong}")[0] == 400


def test_the_spread_of_records(client, job):
    source, keyed = vertices_of(client, job)
    told = until(client, f"{job}/vertices/{keyed}/skew", lambda told: told["factor"])
    assert (told["keyed"], told["total"], told["shown"], told["why"]) == (True, 2, 2, {})
    first, second = sorted(told["subtasks"], key=lambda one: one["subtask"])
    assert (first["key-groups"]["first"], first["key-groups"]["last"]) == (0, 63)
    assert (second["key-groups"]["first"], second["key-groups"]["last"]) == (64, 127)
    assert told["quantiles"]["max"] == told["subtasks"][0]["records"] > 0
    other = client.get(f"{job}/vertices/{source}/skew")
    assert (other["keyed"], other["subtasks"][0]["key-groups"]) == (False, None)
    assert set(other["why"]) == {"key-groups"}


def test_the_slots_of_a_job(client, job):
    told = until(
        client, f"/slots?jobid={job.rpartition('/')[2]}", lambda told: told["free"] < told["total"]
    )
    assert (told["folded"], told["wanted"], told["spark-ui"]) == (False, [], None)
    boxes = told["taskmanagers"]
    assert {one["job-id"] for one in boxes} == {job.rpartition("/")[2]}
    assert all(one["spark"] is None and one["heard"] >= one["since"] for one in boxes)
    tenants = [tenant for box in boxes for slot in box["slots"] for tenant in slot["subtasks"]]
    found = {(one["vertex-id"], one["subtask"]) for one in tenants}
    assert len(found) == len(tenants) == 4
    assert sum(one["slots-total"] for one in boxes) == told["total"] == told["shown"]
    assert client.ask(f"/slots?jobid={'0' * 32}")[0] == 404


def test_the_graph_of_a_job(client, job):
    told = until(
        client,
        f"{job}/graph",
        lambda told: told["edges"][0]["records"] and told["nodes"][1]["state-bytes"],
    )
    assert [one["source"] for one in told["nodes"]] == [True, False]
    assert [one["sink"] for one in told["nodes"]] == [False, True]
    assert (told["job"]["name"], told["job"]["state"]) == ("shown job", "RUNNING")
    assert told["job"]["restarts"] == 1
    assert 0 <= told["job"]["uptime"] <= told["now"] - told["job"]["start-time"]
    for node in told["nodes"]:
        assert node["states"] == {"RUNNING": 2}
        assert 0 <= node["busy"]["min"] <= node["busy"]["median"] <= node["busy"]["max"] <= 1
    (edge,) = told["edges"]
    assert (edge["partitioner"], edge["measured-at"]) == ("HASH", "target")
    assert edge["bytes"] > 0
    assert edge["pool-usage"] is not None


def test_a_batch_job_that_has_ended(client):
    env = minicluster_environment(MiniCluster(4), SETTINGS).set_parallelism(2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    numbers = env.from_collection(list(range(100)), Types.LONG())
    numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).name("sum").print()
    job = f"/jobs/{env.execute('batch').get_job_id()}"
    graph = client.get(f"{job}/graph")
    assert (graph["job"]["state"], graph["job"]["job-type"]) == ("FINISHED", "BATCH")
    assert {reason for one in graph["nodes"] for reason in one["why"].values()} >= {
        "all its subtasks have ended"
    }
    spans = client.get(f"{job}/timeline")["job"]["spans"]
    assert spans[-1]["state"] == "FINISHED"
    assert client.get(f"/slots?jobid={job.rpartition('/')[2]}")["taskmanagers"] == []
    assert client.get(f"{job}/checkpoints/strip")["checkpoints"] == []
    assert client.get(f"{job}/exceptions/groups")["groups"] == []
    assert client.get(f"{job}/options")["set"] > 0
    for one in graph["nodes"]:
        vertex = f"{job}/vertices/{one['id']}"
        assert client.get(f"{vertex}/table?state=finished")["total"] == one["parallelism"]
        assert client.get(f"{vertex}/skew")["reported"] == one["parallelism"]
        assert client.get(f"{vertex}/lanes")["total"] == one["parallelism"]
        lanes = client.get(f"{job}/timeline?vertexid={one['id']}")["attempts"]
        assert {lane["state"] for lane in lanes} == {"FINISHED"}
