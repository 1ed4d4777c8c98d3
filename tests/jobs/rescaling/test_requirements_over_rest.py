"""A job of a MiniCluster whose parallelism is changed over REST and by the command line, and what both tell of it."""

import pytest

from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.ops.cli.cli import main
from tests.tools.hosting.rest import SETTINGS, rest_server
from tests.tools.programs.checkpoint_programs import (
    expected_sums,
    lines_of,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import same
from tests.tools.waiting import wait_until

AT_ONCE = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "execution.checkpointing.interval": "1 h",
    "web.adaptive-scheduler.rescale-history.size": "5",
}


@pytest.fixture
def rest():
    with rest_server() as client:
        yield client


@pytest.fixture
def job(rest, tmp_path, stage):
    """(client, watcher) of a job that stands still, and has ended after the test with the right result."""
    watcher = Generations()
    cluster = MiniCluster(parallelism=2, observer=watcher)
    seldom = {"metrics.fetcher.update-interval": "1 h"}
    env = minicluster_environment(cluster, RESTARTS | AT_ONCE | SETTINGS | seldom)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    yield client, watcher
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def bounds(lower, upper):
    return {"parallelism": {"lowerBound": lower, "upperBound": upper}}


def test_requirements_are_read_changed_and_followed(rest, job):
    client, watcher = job
    path = f"/jobs/{client.get_job_id()}"
    status, known = rest.ask(f"{path}/resource-requirements")
    assert status == 200
    assert set(map(str, known.values())) == {str(bounds(1, 2))}
    assert rest.ask(f"{path}/rescales/overview")[0] == 404
    asked = dict.fromkeys(known, bounds(1, 3))
    assert rest.ask(f"{path}/resource-requirements", "PUT", asked) == (200, {})
    watcher.wait_for_generation(1)
    wait_until_running(client)
    assert rest.ask(f"{path}/resource-requirements") == (200, asked)

    def told():
        return {one["parallelism"] for one in rest.ask(path)[1]["vertices"]} == {3}

    wait_until(told, "the job's page tells another parallelism")
    (vertex, *_) = known
    wait_until(
        lambda: len(rest.ask(f"{path}/vertices/{vertex}")[1]["subtasks"]) == 3,
        "the vertex has other subtasks",
    )
    wait_until(
        lambda: rest.ask(f"{path}/vertices/{vertex}/subtasks/metrics?get=numRecordsIn")[1],
        "the new subtasks have no metrics until the next report of all",
    )
    status, overview = rest.ask(f"{path}/rescales/overview")
    assert (status, overview["rescalesCounts"]["completed"]) == (200, 1)
    (one,) = rest.ask(f"{path}/rescales/history")[1]
    assert (one["triggerCause"], one["terminatedReason"]) == ("UPDATE_REQUIREMENT", "SUCCEEDED")
    told = one["vertices"][vertex]
    assert (told["preRescaleParallelism"], told["postRescaleParallelism"]) == (2, 3)
    assert rest.ask(f"{path}/rescales/details/{one['rescaleUuid']}") == (200, one)
    assert rest.ask(f"{path}/rescales/details/none")[0] == 404
    assert rest.ask(f"{path}/rescales/config")[1]["rescaleHistoryMax"] == 5
    durations = rest.ask(f"{path}/rescales/summary")[1]["completedRescalesDurationStatsInMillis"]
    assert durations["min"] == durations["max"] >= 0


@pytest.mark.parametrize("case", ["empty", "unknown", "missing", "zero", "reversed", "too many"])
def test_what_cannot_be_is_refused_with_the_reason(rest, job, case):
    client, watcher = job
    path = f"/jobs/{client.get_job_id()}/resource-requirements"
    known = rest.ask(path)[1]
    first = next(iter(known))
    asked, text = {
        "empty": ({}, "no requirements"),
        "unknown": ({**known, "f" * 32: bounds(1, 1)}, "there is no vertex"),
        "missing": ({first: bounds(1, 1)}, "has no bounds"),
        "zero": ({**known, first: bounds(0, 2)}, "at least 1"),
        "reversed": ({**known, first: bounds(3, 2)}, "above its upper bound"),
        "too many": ({**known, first: bounds(1, 30_000)}, "max parallelism"),
    }[case]
    status, answer = rest.ask(path, "PUT", asked)
    assert status == 400
    assert text in str(answer)
    assert rest.ask(path)[1] == known
    assert watcher.replaced == []


def test_a_job_that_is_not_known_has_no_requirements(rest):
    assert rest.ask(f"/jobs/{'a' * 32}/resource-requirements")[0] == 404


def test_the_command_line_asks_for_a_range(rest, job, capsys):
    client, watcher = job
    job_id = str(client.get_job_id())
    assert main(["rescale", job_id, "3..4", "-m", rest.address]) == 0
    watcher.wait_for_generation(1)
    assert watcher.parallelisms == [{4}]
    assert "to 3..4" in capsys.readouterr().out
    wait_until_running(client)
