"""`penstock list`, `cancel` and the others, against a job of this process."""

import re

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.ops.cli.cli import main
from tests.tools.hosting.commands import as_json, run
from tests.tools.hosting.rest import SETTINGS
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until


def test_drivers_of_this_user_are_found_by_themselves(capsys, job, client):
    code, told = run(capsys, "list")
    assert (code, job in told, client.address in told) == (0, True, True)
    (listed,) = as_json(capsys, "list")
    assert (listed["jid"], listed["address"]) == (job, client.address)


def test_a_driver_can_be_named(capsys, job, client):
    address = client.address.removeprefix("http://")
    assert as_json(capsys, "list", "-m", address)[0]["jid"] == job


def test_a_job_is_named_by_the_beginning_of_its_id_or_its_name_or_not_at_all(capsys, job):
    for names in ([job[:8]], ["endless"], []):
        assert as_json(capsys, "info", *names)["jid"] == job


def test_a_source_has_the_records_that_it_has_read(capsys, job):
    """As in the console. Flink's own path counts them as nothing."""

    def read():
        code, told = run(capsys, "info", job)
        found = re.search(r"Source: Numbers.*; records in ([\d,]+), out", told)
        return code == 0 and found is not None and found[1] != "0"

    wait_until(read, "nothing is read")


def test_the_verdict_is_told_in_sentences(capsys, job):
    code, told = run(capsys, "verdict")
    assert code == 0
    assert all(line.endswith(".") for line in told.splitlines() if not line.startswith("penstock:"))
    known = as_json(capsys, "verdict", job[:8])
    assert known["sentence"] == known["sentences"][0]


def endless(name):
    env = minicluster_environment(MiniCluster(4), SETTINGS)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.filter(lambda n: False).print()
    return env.execute_async(name)


def test_a_name_means_the_job_that_runs(capsys, job):
    ended = endless("endless")
    ended.cancel().result()
    assert as_json(capsys, "info", "endless")["jid"] == job
    assert as_json(capsys, "info", str(ended.get_job_id()))["state"] == "CANCELED"


def test_a_name_of_several_running_jobs_is_refused_with_their_ids(capsys, job):
    other = endless("endless")
    code, told = run(capsys, "cancel", "endless")
    running = {one["jid"] for one in as_json(capsys, "list")}
    other.cancel().result()
    assert code == 1
    assert all(f"{one} 'endless'" in told for one in (job, other.get_job_id()))
    assert running == {job, str(other.get_job_id())}


def test_a_name_that_begins_the_id_of_another_job_is_refused(capsys, job):
    other = endless(job[:2])
    code, told = run(capsys, "cancel", job[:2])
    other.cancel().result()
    assert (code, f"{job} 'endless'" in told, f"'{job[:2]}'" in told) == (1, True, True)


def test_operators_that_run_without_state_are_not_said_to_have_finished(capsys, job, tmp_path):
    place = as_json(capsys, "savepoint", job, str(tmp_path / "mine"))["location"]
    code, told = run(capsys, "savepoint", "inspect", place)
    assert (code, "Filter" in told, "finished" in told) == (0, True, False)


def test_a_savepoint_and_a_checkpoint_are_taken(capsys, job, tmp_path):
    taken = as_json(capsys, "savepoint", job[:8], str(tmp_path / "mine"))
    assert taken["location"].startswith(str(tmp_path / "mine"))
    assert as_json(capsys, "checkpoint")["checkpointId"] > 0
    assert as_json(capsys, "checkpoints")["counts"]["completed"] == 2


def test_a_job_is_stopped_with_a_savepoint(capsys, job, tmp_path):
    told = as_json(capsys, "stop", "-p", str(tmp_path / "last"))
    assert told["location"].startswith(str(tmp_path / "last"))
    (ended,) = as_json(capsys, "list", "-a")
    assert ended["state"] == "FINISHED"
    assert as_json(capsys, "list") == []


def test_a_job_is_cancelled(capsys, job):
    assert as_json(capsys, "cancel") == {"job": job, "status": "CANCELED"}


def test_a_job_that_has_ended_is_not_cancelled(capsys, job, tmp_path):
    run(capsys, "stop", "-p", str(tmp_path / "last"))
    code, told = run(capsys, "cancel", job)
    assert (code, "another terminal state (FINISHED)" in told) == (1, True)


def test_a_job_that_has_ended_is_not_rescaled(capsys, client, job):
    """409 is what the server answers to a cancel of such a job, too."""
    path = f"/jobs/{job}/resource-requirements"
    bounds = client.get(path)
    as_json(capsys, "cancel")
    code, told = run(capsys, "rescale", job, "3")
    assert (code, "the job has ended (CANCELED)" in told) == (1, True)
    status, answer = client.ask(path, "PUT", bounds)
    assert (status, "the job has ended (CANCELED)" in str(answer)) == (409, True)


@pytest.mark.parametrize(
    ("command", "what"),
    [("checkpoint", "checkpoint"), ("savepoint", "savepoint"), ("stop", "savepoint")],
)
def test_what_was_not_taken_is_named_without_a_module_of_the_engine(capsys, job, command, what):
    as_json(capsys, "cancel")
    told = run(capsys, command, job)
    assert told == (1, f"penstock: no {what} was taken: the job has ended\n")


def test_a_savepoint_without_a_place_says_what_is_missing(capsys, client):
    running = endless("nowhere")
    code, told = run(capsys, "savepoint", "nowhere")
    running.cancel().result()
    assert code == 1
    assert "execution.checkpointing.savepoint-dir" in told


@pytest.mark.parametrize("wanted", ["ffff", "none"])
def test_a_job_that_is_not_there_is_told_with_those_that_are(capsys, job, wanted):
    code, told = run(capsys, "info", wanted)
    assert code == 1
    assert f"there is no job '{wanted}'. Jobs: {job} 'endless'" in told


def test_without_a_driver_the_commands_say_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    code, told = run(capsys, "list")
    assert (code, "Name one with -m HOST:PORT" in told) == (1, True)


def test_an_address_where_nobody_answers_is_named(capsys):
    code, told = run(capsys, "list", "-m", "localhost:1")
    assert (code, "no driver answers at http://localhost:1" in told) == (1, True)


@pytest.mark.parametrize("command", [["list"], ["run", "job.py"]])
def test_an_address_without_a_port_is_a_wrong_command_line(capsys, command):
    with pytest.raises(SystemExit, match="2"):
        main([*command, "-m", "localhost"])
    told = capsys.readouterr().err
    assert "such as localhost:8081, got 'localhost'" in told


def test_failures_are_shown(capsys, job):
    assert as_json(capsys, "exceptions")["exceptionHistory"]["entries"] == []
    assert "no failures" in run(capsys, "exceptions")[1]


def test_the_verdict_is_one_sentence(capsys, job):
    sentence = as_json(capsys, "verdict")["sentence"]
    assert sentence
    assert "\n" not in sentence
