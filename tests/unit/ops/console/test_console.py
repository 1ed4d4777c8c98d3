"""What the console says of checkpoints, of restarts, and of what functions log."""

import socket
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.observer import JobEnded, JobTick
from penstock.engine.model.checkpoints import CheckpointMetrics, CheckpointType
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId, ResourceId, VertexId
from penstock.engine.model.job_events import JobSubmitted
from penstock.engine.model.messages import (
    CheckpointEnded,
    CheckpointFailureReason,
    GraphReplaced,
    LogEvent,
    LogEvents,
    ResetSubtasks,
    StartTaskManager,
)
from penstock.engine.model.states import JobStatus
from penstock.ops.console import console as console_module
from penstock.ops.console.console import Console
from tests.tools.machines.job_graphs import word_count
from tests.tools.observation.job_records import ToldJob


@pytest.fixture
def said(capfd):
    """What a console says that `act` is given."""

    def run(act):
        console = Console(Settings({"penstock.console.progress": "false"}), ToldJob().now_it_is)
        act(console)
        console.observe(JobEnded(JobStatus.FINISHED, None))
        return capfd.readouterr().err

    return run


def ended(kind=CheckpointType.CHECKPOINT, location=None, reason=None, text=""):
    return CheckpointEnded(7, kind, 0, 0, CheckpointMetrics(), location, reason, text)


def test_a_checkpoint_that_failed_is_told_with_its_cause(said):
    failed = ended(reason=CheckpointFailureReason.CHECKPOINT_EXPIRED, text="not acknowledged")
    assert said(lambda console: console.observe(failed)) == (
        "penstock: checkpoint 7 failed (CHECKPOINT_EXPIRED): not acknowledged\n"
    )
    failed = ended(
        CheckpointType.SAVEPOINT, None, CheckpointFailureReason.IO_EXCEPTION, "disk full"
    )
    assert "savepoint 7 failed" in said(lambda console: console.observe(failed))


@pytest.mark.parametrize(
    "one",
    [ended(location="there"), ended(reason=CheckpointFailureReason.COORDINATOR_SUSPEND)],
    ids=["complete", "a restart made it pointless"],
)
def test_others_are_not(said, one):
    assert said(lambda console: console.observe(one)) == ""


@pytest.mark.parametrize(
    ("checkpoint_id", "what"),
    [(7, "restarted subtasks: 1, from checkpoint 7;"), (None, "from the start of their sources")],
)
def test_a_restart_says_what_it_begins_with(said, checkpoint_id, what):
    reset = ResetSubtasks((ExecutionVertexId(VertexId("v"), 0),), False, checkpoint_id)
    assert what in said(lambda console: console.observe(reset))


def test_a_start_that_lasts_is_said_once_and_frightens_nobody(said, monkeypatch):
    seconds = iter([0.0, 1.9, 2.0, 2.5])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(console_module, "time", clock)

    def starts(console):
        for name in ("tm-1", "tm-2"):
            console.observe(StartTaskManager(ResourceId(name), 1))
        for _ in range(3):
            console.observe(JobTick(None))

    assert said(starts) == "penstock: starting 2 TaskManagers\n"


@pytest.mark.parametrize(
    ("variables", "address", "end"),
    [
        ({}, "http://localhost:8082", "; see http://localhost:8082\n"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            "http://localhost:8082",
            "; see http://localhost:8082 after `kubectl port-forward counts-7 8082`\n",
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            "https://counts:8082",
            "; see https://counts:8082\n",
        ),
    ],
)
def test_in_a_pod_it_says_how_to_reach_its_loopback(capfd, monkeypatch, variables, address, end):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "counts-7")
    console = Console(Settings({}), ToldJob().now_it_is, address)
    console.observe(JobSubmitted(word_count(), ()))
    console.observe(JobEnded(JobStatus.FINISHED, None))
    assert end in capfd.readouterr().err


@pytest.mark.parametrize("is_first", [True, False])
def test_a_first_start_with_the_slots_that_there_are_is_no_restart(said, is_first):
    replaced = GraphReplaced(JobGraph(JobId("j"), "job"), (), 0, None, False, is_first=is_first)
    text = said(lambda console: console.observe(replaced))
    assert ("restarted" in text) is not is_first


@pytest.mark.parametrize(
    ("former", "words"),
    [((1, 2, 2), "moved 5 subtasks to other slots"), ((2, 1, 2), "rescaled from 5 to 5 subtasks")],
)
def test_a_job_that_moves_is_not_rescaled(said, former, words):
    graph = word_count()
    names = tuple(
        ExecutionVertexId(vertex, subtask)
        for vertex, count in zip(graph.vertices, former, strict=True)
        for subtask in range(count)
    )
    replaced = GraphReplaced(graph, names, 0, 7, is_planned=True)
    assert words in said(lambda console: console.observe(replaced))


def event(subtask, text):
    attempt_id = AttemptId(ExecutionVertexId(VertexId("v"), subtask), 0)
    return LogEvent(0, 30, "WARNING", "app", attempt_id, "Map", text, "no price for %s")


def test_warnings_of_functions_are_shown_once_and_their_repeats_in_one_line(said):
    """Those of all TaskManagers together."""

    def warn(console):
        for number in range(42):
            told = LogEvents(ResourceId(f"tm-{number % 2}"), (event(number % 3, f"no {number}"),))
            console.observe(told)

    first, rest = said(warn).splitlines()
    assert first.endswith(" WARNING app [Map 1]: no 0")
    assert rest.endswith(" WARNING app [Map 1, 2, 3]: no 41 ... 41 more times")


def test_what_a_taskmanager_has_left_out_is_told_with_where_it_is(said):
    told = LogEvents(ResourceId("tm-1"), (), 1234)
    assert said(lambda console: console.observe(told)) == (
        "penstock: 1,234 further warnings and errors are in the TaskManagers' logs\n"
    )


EVIL, ESCAPED = "\x1b[2J\x9b", r"\u001b[2J\u009b"


def test_names_and_errors_do_not_steer_the_terminal(said):
    failed = ended(reason=CheckpointFailureReason.IO_EXCEPTION, text=EVIL)
    event = LogEvent(0, 30, "WARNING", EVIL, None, "", EVIL, "")
    told = said(
        lambda console: [
            console.observe(failed),
            console.observe(LogEvents(ResourceId("tm-1"), (event,))),
        ]
    )
    assert EVIL not in told
    assert told.count(ESCAPED) == 3
