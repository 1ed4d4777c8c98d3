"""What user functions count is told by `get_task_metrics`, while the job runs and afterwards."""

import threading

import pytest

from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.programs.environments import minicluster_environment

ROWS = 300


class Counting(MapFunction):
    def open(self, runtime_context):
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.sizes = group.add_group("rows").distribution("size")
        self.marks = group.meter("marks")
        self.latest = None
        group.gauge("latest", lambda: self.latest)

    def map(self, value):
        self.seen.inc()
        self.sizes.update(value)
        self.marks.mark_event(2)
        self.latest = value
        return value


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(2)


def numbers(client, vertex):
    """(subtask, operator, name) -> value, of the vertices whose name begins so."""
    return {
        (subtask, metric.operator, metric.name): metric.value
        for name, subtask, io in client.get_task_metrics().result()
        if name.startswith(vertex)
        for metric in io.user_metrics
    }


def sum_of(client, vertex, name):
    found = numbers(client, vertex).items()
    return sum(value for (_, _, metric), value in found if metric == name)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_what_a_function_counted_is_told_when_the_job_has_ended(env, mode):
    env.set_runtime_mode(mode)
    rows = env.from_collection(list(range(ROWS)))
    rows.key_by(lambda n: n % 7).map(Counting()).name("Counting").print()
    client = env.execute_async("counts")
    client.get_job_execution_result().result()
    assert sum_of(client, "Counting", "seen") == ROWS
    assert sum_of(client, "Counting", "marks.count") == 2 * ROWS
    assert sum_of(client, "Counting", "rows.size.count") == ROWS
    assert sum_of(client, "Counting", "rows.size.sum") == sum(range(ROWS))
    found = numbers(client, "Counting").items()
    assert max(value for (*_, name), value in found if name == "rows.size.max") == ROWS - 1
    assert max(value for (*_, name), value in found if name == "latest") <= ROWS - 1
    assert {operator for (_, operator, _), _ in found} == {"Counting"}


def test_two_functions_of_one_task_count_apart(env):
    rows = env.from_collection(list(range(ROWS))).rebalance()
    rows.map(Counting()).name("First").filter(lambda n: n % 3 == 0).map(Counting()).name(
        "Second"
    ).print()
    client = env.execute_async("apart")
    client.get_job_execution_result().result()
    found = numbers(client, "First").items()
    by_operator = {
        wanted: sum(
            value for (_, name, metric), value in found if (name, metric) == (wanted, "seen")
        )
        for wanted in ("First", "Second")
    }
    assert by_operator == {"First": ROWS, "Second": ROWS // 3}


SEEN, GO = threading.Event(), threading.Event()


class Held(KeyedProcessFunction):
    """Counts a row, and waits in the second one until the test has looked."""

    def open(self, runtime_context):
        self.group = runtime_context.get_metrics_group()
        self.group.gauge("constant", lambda: 42)
        self.rows = 0

    def process_element(self, value, ctx):
        self.rows += 1
        if self.rows == ROWS:
            SEEN.set()
            GO.wait()
        self.group.counter("seen").inc()
        yield value


def test_what_a_function_has_counted_is_told_while_the_job_runs(env):
    SEEN.clear()
    GO.clear()
    env.set_parallelism(1)
    env.from_collection(list(range(ROWS))).key_by(lambda _n: 0).process(Held()).name("Held").print()
    client = env.execute_async("running")
    try:
        assert SEEN.wait(30)
        polled = threading.Event()
        for _ in range(600):
            if sum_of(client, "Held", "seen") == ROWS - 1:
                break
            polled.wait(0.05)  # the next heartbeat tells
        assert sum_of(client, "Held", "seen") == ROWS - 1
    finally:
        GO.set()
        client.get_job_execution_result().result()
    assert sum_of(client, "Held", "seen") == ROWS
    assert sum_of(client, "Held", "constant") == 42


class Wild(MapFunction):
    def open(self, runtime_context):
        self.group = runtime_context.get_metrics_group()

        def broken():
            raise ValueError("this gauge is broken")

        self.group.gauge("broken", broken)

    def map(self, value):
        self.group.counter(f"of {value}").inc()
        return value


def test_a_function_that_makes_a_metric_for_each_row_and_a_broken_gauge_harms_nobody(env, caplog):
    env.set_parallelism(1)
    env.from_collection(list(range(ROWS))).key_by(lambda _n: 0).map(Wild()).name("Wild").print()
    client = env.execute_async("wild")
    client.get_job_execution_result().result()
    (io,) = [io for name, _, io in client.get_task_metrics().result() if name.startswith("Wild")]
    assert (len(io.user_metrics), io.user_metrics_left_out) == (200, ROWS - 200)
    complaints = [line for line in caplog.messages if "this gauge is broken" in line]
    assert len(complaints) == 1
