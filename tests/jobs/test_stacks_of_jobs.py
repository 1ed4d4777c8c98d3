"""A running job tells where its threads are, and its driver which tasks do nothing although they could."""

import asyncio
import threading

import pytest

from penstock.common import Time, Types
from penstock.datastream import AsyncDataStream, AsyncFunction
from penstock.engine.hosting.jobmanager.flame_graphs import GraphType
from penstock.engine.hosting.jobmanager.questions import NoAnswer
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.reporting.logs.folder import NoSuchLog
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import ReadLog
from penstock.engine.model.states import JobStatus
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.waiting import wait_until

GATES = {}
ME = ResourceId("tm-1")
FAST = {
    "rest.flamegraph.num-samples": "3",
    "rest.flamegraph.delay-between-samples": "1 ms",
    "cluster.thread-dump.stacktrace-max-depth": "12",
}


class Gate:
    """Where functions stand still, in Python, so that they can be interrupted."""

    def __init__(self, name):
        self.entered, self.open = threading.Event(), threading.Event()
        GATES[name] = self


def stands_still(name):
    GATES[name].entered.set()
    while not GATES[name].open.wait(0.01):
        pass


@pytest.fixture
def gate(request):
    gate = Gate(request.node.name)
    gate.name = request.node.name
    yield gate
    gate.open.set()


@pytest.fixture
def running(gate):
    """A job whose map stands still in its only subtask."""
    name = gate.name

    def holds(value):
        stands_still(name)
        return value

    env = minicluster_environment(MiniCluster(parallelism=1, observer=JobObserver()), FAST)
    env.set_parallelism(1)
    env.from_collection([1], Types.LONG()).rebalance().map(holds).name("Holds").print()
    control = env.plumbing.submit("held")
    assert gate.entered.wait(30)
    yield control
    gate.open.set()
    assert control.wait(30).status is JobStatus.FINISHED


def vertex_named(control, name):
    vertices = control.manager.job_graph.vertices.items()
    (found,) = [vertex_id for vertex_id, vertex in vertices if vertex.name.startswith(name)]
    return found


def names_below(tree):
    found = {tree["name"]}
    for child in tree["children"]:
        found |= names_below(child)
    return found


def test_a_thread_dump_has_the_tasks_by_name_and_where_they_are(running):
    dump = {one.name: one.text for one in running.thread_dump(ME).result(30).threads}
    (name,) = [name for name in dump if name.startswith("Holds")]
    assert name.endswith(" (1/1)#0")
    assert f"\tat {__name__}.stands_still(test_stacks_of_jobs.py:" in dump[name]
    assert len(dump[name].strip().splitlines()) == 1 + 12 + 1


def test_a_flame_graph_is_sampled_when_somebody_asks(running):
    vertex_id = vertex_named(running, "Holds")
    graphs = running.flame_graphs
    assert graphs.graph(vertex_id) is None
    found = wait_until(lambda: graphs.graph(vertex_id), "no samples came")
    assert found.tree["value"] == 3
    assert any(name.startswith(f"{__name__}.stands_still:") for name in names_below(found.tree))
    parts = [graphs.graph(vertex_id, kind) for kind in (GraphType.ON_CPU, GraphType.OFF_CPU)]
    assert sum(part.tree["value"] for part in parts) == 3


def test_a_task_that_waits_for_input_is_off_the_processor(gate):
    """The sink's, whose input is held by the map before it."""
    name = gate.name

    def holds(value):
        stands_still(name)
        return value

    env = minicluster_environment(MiniCluster(parallelism=1, observer=JobObserver()), FAST)
    env.set_parallelism(1)
    held = env.from_collection([1], Types.LONG()).map(holds)
    held.rebalance().map(lambda value: value).name("Waits").print()
    control = env.plumbing.submit("waits")
    assert gate.entered.wait(30)
    vertex_id = vertex_named(control, "Waits")
    graphs = control.flame_graphs
    wait_until(lambda: graphs.graph(vertex_id), "no samples came")

    def values():
        return {kind: graphs.graph(vertex_id, kind).tree["value"] for kind in GraphType}

    # The first samples may be of the moment in which it begins to wait.
    expected = {GraphType.FULL: 3, GraphType.ON_CPU: 0, GraphType.OFF_CPU: 3}
    wait_until(lambda: values() == expected, "its samples are not of a task that waits")
    gate.open.set()
    control.wait(30)


def test_threads_of_this_process_have_no_log_files(running):
    assert running.log_files(ME).result(30).files == ()
    with pytest.raises(NoSuchLog, match="no log files"):
        running.read_log(ME, ReadLog()).result(30)


def test_a_taskmanager_that_there_is_not_cannot_be_asked(running):
    with pytest.raises(NoAnswer, match="no TaskManager tm-9"):
        running.thread_dump(ResourceId("tm-9")).result(30)


def test_after_the_job_nobody_is_left_to_ask(running, gate):
    gate.open.set()
    running.wait(30)
    with pytest.raises(NoAnswer):
        running.thread_dump(ME).result(30)


# ---------------------------------------------------------------------- progress


class Logged(JobObserver):
    """The warnings that the driver is told of."""

    def __init__(self):
        self.events = []

    def on_log_events(self, told):
        self.events += told.events


PROGRESS = {"penstock.task.progress-timeout": "100 ms"}


def job_of(function, observer, **settings):
    cluster = MiniCluster(parallelism=1, observer=observer)
    env = minicluster_environment(cluster, {**PROGRESS, **settings})
    env.set_parallelism(1)
    return env.from_collection([1, 2], Types.LONG()).map(function).name("Holds")


def submitted(stream):
    stream.print()
    return stream.get_execution_environment().plumbing.submit("progress")


def test_a_call_that_does_not_come_back_is_told_once_with_its_stack(gate):
    name, logged = gate.name, Logged()

    def holds(value):
        stands_still(name)
        return value

    control = submitted(job_of(holds, logged))
    (event,) = wait_until(lambda: list(logged.events), "nothing is told")
    assert (event.level_name, event.attempt_id.subtask) == ("WARNING", 0)
    assert event.operator == "Holds"
    assert "one call of Holds has taken" in event.text
    assert "in stands_still" in event.text
    gate.open.set()
    control.wait(30)
    assert len(logged.events) == 1


def test_by_option_the_task_fails_with_its_stack_as_the_reason(gate):
    name = gate.name

    def holds(value):
        stands_still(name)
        return value

    held = job_of(holds, Logged(), **{"penstock.task.fail-without-progress": "true"})
    with pytest.raises(JobExecutionError, match=r"(?s)NoProgress.*Holds.*in stands_still"):
        collected(held)


class NeverAnswers(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.Event().wait()
        return [value]


def test_input_that_waits_behind_calls_without_answers_is_told_and_fails_by_option():
    """Capacity 1: the second record waits for ever. The thread itself waits, so that no call is slow."""
    env = minicluster_environment(
        MiniCluster(parallelism=1, observer=JobObserver()),
        {**PROGRESS, "penstock.task.fail-without-progress": "true"},
    )
    numbers = env.set_parallelism(1).from_collection(list(range(10)), Types.LONG()).rebalance()
    answers = AsyncDataStream.ordered_wait(numbers, NeverAnswers(), Time.hours(1), 1, Types.LONG())
    with pytest.raises(JobExecutionError, match=r"NoProgress.*input waits"):
        collected(answers)
