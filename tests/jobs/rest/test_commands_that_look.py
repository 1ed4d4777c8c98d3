"""`penstock metrics`, `stacks`, `story`, `logs` and `rescale`, against a job of this process."""

import json
import re
import threading

import pytest

from penstock.common import RestartStrategies, Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.ops.cli.cli import main
from penstock.ops.cli.remote.texts import moment
from tests.tools.hosting.commands import as_json, run
from tests.tools.hosting.rest import SETTINGS
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

FAILED = []


def first_fails(value):
    """Functions are copied for each attempt, but not the list of their module."""
    if not FAILED:
        FAILED.append(value)
        raise ValueError("no such price")
    return value


OUT = "Source__Numbers.numRecordsOut"


@pytest.fixture
def measured(capsys, job):
    """The job, whose tasks have reported their metrics."""

    def is_told():
        told = as_json(capsys, "metrics", "--vertex", "Numbers")
        return any(one["id"] == OUT and one["min"] > 0 for one in told)

    wait_until(is_told, "the tasks report no metrics")
    return job


# ------------------------------------------------------------------ metrics


def test_metrics_of_a_vertex_are_aggregated_over_its_subtasks(capsys, measured):
    (told,) = as_json(capsys, "metrics", "--vertex", "Numbers", "--get", OUT)
    assert set(told) == {"id", "min", "max", "avg", "sum", "skew"}
    assert told["sum"] == told["min"] + told["max"] > 0
    (told,) = as_json(capsys, "metrics", "--vertex", "numb", "--get", OUT, "--agg", "max,min")
    assert set(told) == {"id", "min", "max"}


def test_metrics_of_one_subtask_of_a_job_and_of_the_driver_are_values(capsys, measured):
    asked = ("metrics", measured[:6], "--vertex", "Numbers", "--subtask", "1")
    (told,) = as_json(capsys, *asked, "--get", OUT)
    assert float(told["value"]) > 0
    (told,) = as_json(capsys, "metrics", "--get", "numRestarts")
    assert told == {"id": "numRestarts", "value": "0"}
    (told,) = as_json(capsys, "metrics", "--driver", "--get", "numRunningJobs")
    assert told["value"] == "1"


def test_metrics_of_some_subtasks_are_aggregated(capsys, measured):
    asked = ("metrics", "--vertex", "Numbers", "--get", OUT, "--agg", "min,max")
    (one,) = as_json(capsys, *asked, "--subtask", "1-1")
    assert one["min"] == one["max"]


def test_names_may_have_a_star_and_are_shown_as_text(capsys, measured):
    code, told = run(capsys, "metrics", "--vertex", "Numbers", "--get", "numRecords*PerSecond")
    lines = told.splitlines()
    assert code == 0
    assert lines[0].split() == ["min", "max", "avg", "sum", "skew"]
    assert {line.split()[0] for line in lines[1:]} >= {"numRecordsOutPerSecond"}


def test_columns_have_a_gap_and_the_last_watermark_is_javas_long_max(capsys, client):
    env = minicluster_environment(MiniCluster(4), SETTINGS).set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "Numbers"
    )
    numbers.filter(lambda n: False).print()
    env.execute("short")
    asked = ("metrics", "short", "--vertex", "Numbers", "--get", "Filter.currentInputWatermark")
    code, told = run(capsys, *asked)
    titles, row = told.splitlines()
    last = "9,223,372,036,854,775,807"
    assert (code, titles.split()) == (0, ["min", "max", "avg", "sum", "skew"])
    assert row.split() == ["Filter.currentInputWatermark", last, last, last, last, "0"]


def test_what_no_watermark_has_come_to_is_a_dash(capsys, measured):
    name = "Source__Numbers.currentOutputWatermark"
    asked = ("metrics", "--vertex", "Numbers", "--get", name)
    assert run(capsys, *asked)[1].splitlines()[1].split() == [name, *"----", "0"]
    assert run(capsys, *asked, "--subtask", "0")[1].split() == [name, "-"]


def test_a_metric_that_is_not_there_is_named(capsys, measured):
    code, told = run(capsys, "metrics", "--get", "numRestarts,numWishes")
    assert code == 1
    assert "numRestarts  0" in told
    assert f"penstock: job {measured} has no metric 'numWishes'" in told


def test_a_vertex_that_is_not_there_is_told_with_those_that_are(capsys, job):
    code, told = run(capsys, "metrics", "--vertex", "Nothing")
    assert code == 1
    assert "the job has no vertex 'Nothing'. Vertices: " in told
    assert "Numbers" in told


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--subtask", "1"], "--subtask needs --vertex"),
        (["--driver", "--vertex", "Numbers"], "--vertex, --taskmanager and --driver exclude"),
        (["--driver", "--agg", "max"], "--agg is for a job"),
    ],
)
def test_options_of_metrics_that_do_not_fit_are_refused(capsys, job, options, why):
    code, told = run(capsys, "metrics", *options)
    assert (code, why in told) == (1, True)


# ------------------------------------------------------------------ info


def test_a_status_is_shown_since_it_holds_and_an_ended_job_with_its_totals(capsys, client):
    env = minicluster_environment(MiniCluster(4), SETTINGS).set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(1, 10), WatermarkStrategy.no_watermarks(), "Numbers"
    )
    numbers.filter(lambda n: n > 7).print()
    env.execute("short")
    times = as_json(capsys, "info", "short")["timestamps"]
    since, began = (moment(times[status]) for status in ("FINISHED", "INITIALIZING"))
    code, told = run(capsys, "info", "short")
    _, status, totals, *_ = told.splitlines()
    assert code == 0
    assert status.startswith(f"status FINISHED, since {since}; started {began}, ran ")
    assert totals == "in total: 10 records from its sources, 3 into its sinks"


def test_a_running_job_has_no_totals_yet(capsys, job):
    told = run(capsys, "info")[1]
    since = moment(as_json(capsys, "info")["timestamps"]["RUNNING"])
    assert f"status RUNNING, since {since}, for " in told
    assert "in total" not in told


# ------------------------------------------------------------------ stacks


def test_stacks_of_a_job_are_those_of_the_threads_of_its_taskmanagers(capsys, job):
    code, told = run(capsys, "stacks")
    assert code == 0
    assert f"TaskManager tm-1-{job[:6]}\n" in told
    assert '"Source: Numbers -> ' in told
    assert "\tat " in told
    dumps = as_json(capsys, "stacks", job)
    assert {name.rpartition("-")[2] for name in dumps} == {job[:6]}


def test_stacks_of_a_vertex_are_a_tree_with_shares(capsys, job):
    code, told = run(capsys, "stacks", job, "Numbers")
    head, *frames = told.splitlines()
    assert code == 0
    assert re.search(r"': 10 samples, the last one \d+\.\d s ago$", head)
    shares = [re.fullmatch(r" *(\d+)%  \S.*", frame) for frame in frames]
    outermost = [int(share[1]) for share in shares if share]
    assert sum(outermost[:1]) > 0
    assert all(re.match(r" *\d+%  ", frame) for frame in frames)
    assert any("stream_task." in frame for frame in frames)


def test_stacks_of_a_subtask_by_state_add_up(capsys, job):
    counts = {}
    for state in ("full", "on-cpu", "off-cpu"):
        asked = ("stacks", job, "Numbers", "--subtask", "1", "--state", state)
        counts[state] = as_json(capsys, *asked)["data"]["value"]
    assert counts["full"] == 5 == counts["on-cpu"] + counts["off-cpu"]


def test_a_job_that_has_ended_has_no_stacks(capsys, job):
    assert as_json(capsys, "cancel")["status"] == "CANCELED"
    code, told = run(capsys, "stacks", job, "Numbers")
    assert (code, "no task of 'Source: Numbers" in told) == (1, True)
    code, told = run(capsys, "stacks", job)
    assert (code, f"no TaskManager of job {job} reports its threads" in told) == (1, True)


# ------------------------------------------------------------------ story


def texts_of(told):
    return [event["text"] for event in told["events"]]


def test_a_story_tells_the_statuses_taskmanagers_and_checkpoints_in_order(capsys, job, tmp_path):
    for _ in range(2):
        as_json(capsys, "checkpoint")
    as_json(capsys, "savepoint", job, str(tmp_path / "mine"))
    as_json(capsys, "cancel")
    told = as_json(capsys, "story", job)
    texts = texts_of(told)
    (savepoint,) = [text for text in texts if text.startswith("savepoint 3 is complete at ")]
    order = [
        "the job is RUNNING",
        "checkpoints 1 to 2 are complete",
        savepoint,
        "the job is CANCELLING",
        "the job is CANCELED",
    ]
    assert [text for text in texts if text in order] == order
    assert any(text.startswith("TaskManager tm-1 on ") for text in texts)
    assert any(text.startswith("'Source: Numbers") and "runs: 2" in text for text in texts)
    times = [event["timestamp"] for event in told["events"]]
    assert times == sorted(times)


def test_a_story_of_a_subtask_has_the_states_of_its_attempts(capsys, job):
    told = as_json(capsys, "story", job, "Numbers/1")
    states = [event["state"] for event in told["events"] if event["kind"] == "subtask"]
    assert states == ["CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"]
    assert {event["subtask"] for event in told["events"] if "subtask" in event} == {1}
    both = as_json(capsys, "story", job, "Numbers")
    assert {event["subtask"] for event in both["events"] if "subtask" in event} == {0, 1}


def test_a_story_of_the_machine_has_each_change_with_its_cause(capsys, job):
    told = as_json(capsys, "story", "--machine")
    assert any("INITIALIZING->RUNNING" in line for line in told["machine"])
    code, text = run(capsys, "story", "--machine")
    assert (code, "what the machine of the job did:" in text) == (0, True)
    assert as_json(capsys, "story")["machine"] == []


def test_a_story_tells_failures_and_restarts(capsys, client):
    FAILED.clear()
    env = minicluster_environment(MiniCluster(4), SETTINGS)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    prices = numbers.map(first_fails, Types.LONG()).set_parallelism(1).name("Prices")
    prices.filter(lambda _: False).print()
    running = env.execute_async("failing")

    def has_restarted():
        story = "\n".join(texts_of(as_json(capsys, "story")))
        return all(part in story for part in (" failed: ", "restart from the beginning"))

    try:
        wait_until(has_restarted, "the job does not restart")
        texts = texts_of(as_json(capsys, "story"))
    finally:
        running.cancel().result()
    failed = next(place for place, text in enumerate(texts) if " failed: " in text)
    assert "Prices" in texts[failed]
    assert texts[failed].endswith("ValueError: no such price")
    restarts = [place for place, text in enumerate(texts) if "restart from the beginning" in text]
    assert restarts
    assert restarts[0] > failed


@pytest.mark.parametrize(
    ("part", "why"), [("Nothing", "no vertex"), ("Numbers/7", "subtask index")]
)
def test_a_story_of_what_is_not_there_is_refused(capsys, job, part, why):
    code, told = run(capsys, "story", job, part)
    assert (code, why in told) == (1, True)


# ------------------------------------------------------------------ logs


def test_the_drivers_log_is_shown(capsys, job):
    (log,) = as_json(capsys, "logs", "--driver", "-n", "5")
    assert len(log["lines"]) == 5
    code, told = run(capsys, "logs", "--driver", "-n", "5")
    assert (code, told.splitlines()[-1][:2]) == (0, "20")
    (log,) = as_json(capsys, "logs", job, "--driver", "-n", "100000")
    assert log["log"] == "driver"
    assert any(f"job={job}" in line and "RUNNING" in line for line in log["lines"])


def test_a_log_is_followed_until_the_job_ends(capsys, job):
    """The lines of the end of the job are there, each once."""
    codes = []
    arguments = ["logs", job, "--driver", "-f", "-n", "100000", "--interval", "0.05", "--json"]
    follows = threading.Thread(target=lambda: codes.append(main(arguments)))
    capsys.readouterr()
    follows.start()
    told = ""

    def has_begun():
        nonlocal told
        told += capsys.readouterr().out
        return "RUNNING" in told

    wait_until(has_begun, "nothing is shown")
    main(["cancel", job, "--no-wait", "--json"])
    follows.join(60)
    told += capsys.readouterr().out
    assert codes == [0]
    # Both commands print in this process: the end of a line may come behind the beginning of the other's.
    objects = told.replace("}{", "}\n{").splitlines()
    lines = [json.loads(one)["line"] for one in objects if one.startswith('{"log"')]
    (log,) = as_json(capsys, "logs", job, "--driver", "-n", "100000")
    ends = [line for line in log["lines"] if job in line and "CANCELED" in line]
    assert ends
    assert [line for line in lines if line in ends] == ends


def test_what_no_process_writes_is_told(capsys, job):
    """A TaskManager of a MiniCluster is a thread of this process, and has no log of its own."""
    code, told = run(capsys, "logs", f"tm-1-{job[:6]}")
    assert (code, f"tm-1-{job[:6]} has no log that can be read now" in told) == (1, True)


# ------------------------------------------------------------------ rescale


def test_more_than_the_max_parallelism_is_refused_with_the_number(capsys, job):
    code, told = run(capsys, "rescale", job, "Numbers=3000")
    assert code == 1
    assert "max parallelism" in told


@pytest.mark.parametrize("wish", ["0", "many", "Numbers=", "=3"])
def test_what_is_no_parallelism_is_refused(capsys, job, wish):
    code, told = run(capsys, "rescale", job, wish)
    assert (code, f"got {wish!r}" in told) == (1, True)


def test_a_metric_that_nobody_has_is_the_only_thing_that_is_said(capsys, measured):
    code, told = run(capsys, "metrics", "--get", "numWishes")
    assert (code, "has no metrics yet" in told) == (1, False)
    assert f"penstock: job {measured} has no metric 'numWishes'" in told


def test_flame_graphs_that_are_switched_off_are_told(capsys, client):
    off = {**SETTINGS, "rest.flamegraph.enabled": "false"}
    env = minicluster_environment(MiniCluster(4), off)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.filter(lambda n: False).print()
    running = env.execute_async("unsampled")
    path = f"/jobs/{running.get_job_id()}"
    try:
        (vertex,) = client.get(path)["vertices"]
        asked = f"{path}/vertices/{vertex['id']}/flamegraph"
        wait_until(lambda: client.get(asked) == {"endTimestamp": -2}, "the job does not run")
        code, told = run(capsys, "stacks", "unsampled", "Numbers")
    finally:
        running.cancel().result()
    assert (code, "rest.flamegraph.enabled: false" in told) == (1, True)
