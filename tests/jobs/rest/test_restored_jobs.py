"""What REST and the program are told of a job that goes on from a savepoint or a retained checkpoint."""

import pytest

from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.hosting.rest import SETTINGS, rest_server
from tests.tools.programs.checkpoint_programs import HeldSource, Stage, sums_to_file
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.waiting import wait_until


@pytest.fixture(scope="module")
def client():
    with rest_server() as client:
        yield client


@pytest.fixture
def start(tmp_path):
    """Starts the same job, whose sources stand still until the end of the test."""
    stage = Stage("restored")
    started = []

    def begin(**more):
        settings = {
            **RESTARTS,
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        } | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
        env = minicluster_environment(MiniCluster(parallelism=2), settings)
        sums_to_file(env, tmp_path / "out", HeldSource(stage.name, 2, 10, 5), lambda value: value)
        started.append(env.execute_async("sums"))
        return started[-1]

    yield begin
    for job in started:
        job.cancel().result()


EVERY = "20 ms"


def told(client, job):
    return client.get(f"/jobs/{job.get_job_id()}/checkpoints")


def await_running(client, job):
    def tasks():
        jobs = client.get("/jobs/overview")["jobs"]
        return next(one["tasks"] for one in jobs if one["jid"] == str(job.get_job_id()))

    wait_until(lambda: tasks()["running"] == 4, "it does not run")


def test_a_job_that_goes_on_from_a_savepoint_says_so(client, start, tmp_path):
    first = start(**SETTINGS)
    await_running(client, first)
    folder = first.stop_with_savepoint(False, str(tmp_path / "mine")).result()
    second = start(**SETTINGS, execution__state_recovery__path=folder)
    restored = wait_until(lambda: told(client, second)["latest"]["restored"], "not restored")
    await_running(client, second)
    assert restored["is_savepoint"]
    assert restored["external_path"] == folder
    own = second.get_checkpoints().result().latest_restored
    assert (own.restored_at_ms, own.is_savepoint) == (restored["restore_timestamp"], True)


@pytest.mark.parametrize(("mode", "is_savepoint"), [("CLAIM", False), ("NO_CLAIM", True)])
def test_a_claimed_checkpoint_is_the_jobs_own(client, start, mode, is_savepoint):
    first = start(**SETTINGS, execution__checkpointing__interval=EVERY)
    kept = wait_until(lambda: told(client, first)["latest"]["completed"], "no checkpoint")
    first.cancel().result()
    kept = told(client, first)["latest"]["completed"]
    given = {
        "execution__state_recovery__path": kept["external_path"],
        "execution__state_recovery__claim_mode": mode,
    }
    second = start(**SETTINGS, **given)
    restored = wait_until(lambda: told(client, second)["latest"]["restored"], "not restored")
    await_running(client, second)
    assert (restored["id"], restored["is_savepoint"]) == (kept["id"], is_savepoint)


def test_a_program_and_rest_say_the_same_of_checkpoints(client, start):
    job = start(**SETTINGS, execution__checkpointing__interval=EVERY)
    wait_until(lambda: told(client, job)["counts"]["completed"] >= 3, "no checkpoints")
    job.cancel().result()
    wait_until(lambda: job.get_job_status().result().name == "CANCELED", "it is not cancelled")
    # The metadata of one may have been under way.
    wait_until(lambda: told(client, job)["counts"]["in_progress"] == 0, "one does not end")
    rest, own = told(client, job), job.get_checkpoints().result()
    assert own.completed == rest["counts"]["completed"]
    assert own.failed == rest["counts"]["failed"]
    assert [
        (one.checkpoint_id, one.triggered_at_ms, one.duration_ms, one.size_bytes)
        for one in reversed(own.history)
    ] == [
        (one["id"], one["trigger_timestamp"], one["end_to_end_duration"], one["state_size"])
        for one in rest["history"]
    ]


def test_a_program_knows_its_checkpoints_without_a_rest_server(client, start):
    job = start(
        **SETTINGS | {"penstock.rest.enabled": "false"}, execution__checkpointing__interval=EVERY
    )
    wait_until(lambda: job.get_checkpoints().result().completed >= 2, "no checkpoints")
    listed = [one["jid"] for one in client.get("/jobs/overview")["jobs"]]
    assert str(job.get_job_id()) not in listed
    job.cancel().result()
    assert job.get_checkpoints().result().latest_completed.checkpoint_id >= 2
