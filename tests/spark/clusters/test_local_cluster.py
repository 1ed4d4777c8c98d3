"""`local-cluster[2,3,1024]`: executors are processes of their own. The figure: 2 TaskManagers of 3 slots."""

from collections import Counter, defaultdict
from pathlib import Path

import psutil
import pytest

from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.file_system import FileSink
from penstock.datastream import SlotSharingGroup
from penstock.datastream.connectors import DataGeneratorSource
from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.hosting.shipping.pickling import serialize
from penstock.engine.machines.job_state.job_settings import job_settings_of
from penstock.engine.machines.planning.planner import plan
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import NoResourceAvailable
from penstock.engine.model.ids import JobId
from penstock.engine.model.states import ExecutionState, JobStatus
from tests.spark.processes import executor_jvms, taskmanagers_left
from tests.spark.programs import LINES, environment, expected_counts, last_counts, word_count
from tests.tools.hosting.running_job import control_of, manager_of
from tests.tools.output_files import files_below, lines_in

pytestmark = pytest.mark.spark
THREE_SLOTS = {"taskmanager.numberOfTaskSlots": "3"}


class Ancestry(JobObserver):
    """Who started each TaskManager, looked up while it lives: (supervisor's pid, commands above it). And the task of Spark that it names."""

    def __init__(self) -> None:
        self.taskmanagers: dict[str, tuple[int, int, list[str]]] = {}
        self.spark_tasks = []

    def on_register_task_manager(self, message) -> None:
        process = psutil.Process(message.pid)
        above = [" ".join(parent.cmdline()) for parent in process.parents()]
        self.taskmanagers[message.resource_id] = (process.ppid(), message.supervisor_pid, above)
        self.spark_tasks.append(message.spark_task)


def plus(left, right):
    return left[0], left[1] + right[1]


def figure(env, folder):
    """Source and map with parallelism 4, each a vertex; reduce, formatted and written, with 3."""
    source = DataGeneratorSource(lambda i: LINES[i], len(LINES))
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "S").set_parallelism(4)
    words = lines.flat_map(lambda line: [(word, 1) for word in line.split()]).name("M")
    words.set_parallelism(4).disable_chaining()
    counts = words.key_by(lambda pair: pair[0]).reduce(plus).name("R").set_parallelism(3)
    text = counts.map(lambda pair: f"{pair[0]} {pair[1]}").set_parallelism(3)
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    text.sink_to(sink).set_parallelism(3)


def read_counts(folder):
    files = files_below(folder)
    pairs = [line.rsplit(" ", 1) for line in lines_in(files)]
    return [(word, int(count)) for word, count in pairs]


def test_the_figure_four_sources_and_maps_three_reduces_on_two_times_three_slots(
    spark_cluster, tmp_path
):
    ancestry = Ancestry()
    env = environment(4, **THREE_SLOTS).use_executor(ClusterExecutor(SparkHost(), ancestry))
    figure(env, tmp_path / "out")
    control = env.plumbing.submit("figure")
    outcome = control.wait(30)

    assert outcome.status is JobStatus.FINISHED, outcome.failure
    places = control.manager.job_master.where_tasks_ran()
    assert {place.state for place in places} == {ExecutionState.FINISHED}
    slots = defaultdict(set)
    for place in places:
        slots[place.location.resource_id, place.allocation_id].add(
            f"{place.vertex_name[:1]}{place.subtask}"
        )
    contents = sorted(sorted(tasks) for tasks in slots.values())
    assert contents == [["M0", "R0", "S0"], ["M1", "R1", "S1"], ["M2", "R2", "S2"], ["M3", "S3"]]
    assert len({resource_id for resource_id, _ in slots}) == 2
    assert max(Counter(resource_id for resource_id, _ in slots).values()) <= 3

    updates = read_counts(tmp_path / "out")
    assert last_counts(updates) == expected_counts()
    assert Counter(word for word, _ in updates) == expected_counts()

    assert len(ancestry.taskmanagers) == 2
    for parent, supervisor, above in ancestry.taskmanagers.values():
        assert parent == supervisor
        assert "pyspark.daemon" in above[0]
        assert any("CoarseGrainedExecutorBackend" in command for command in above)
    assert len({parent for parent, _, _ in ancestry.taskmanagers.values()}) == 2
    assert {one.executor for one in ancestry.spark_tasks} <= {"0", "1"}
    assert len({(one.stage, one.attempt) for one in ancestry.spark_tasks}) == 2
    store = spark_cluster.sparkContext._jsc.sc().statusStore()
    for one in ancestry.spark_tasks:
        tasks = store.taskList(one.stage, 0, 10)
        found = [tasks.apply(place) for place in range(tasks.length())]
        told = [(task.taskId(), task.index(), task.executorId()) for task in found]
        assert told == [(one.attempt, one.partition, one.executor)]
    assert not taskmanagers_left()


def test_the_log_of_a_taskmanager_lies_in_the_stderr_of_its_executor(spark_cluster, capfd):
    with word_count(environment(2, **THREE_SLOTS)).execute_and_collect() as updates:
        job_id = manager_of(updates).job_id
        folders = [Path(executor.cwd()) for executor in executor_jvms()]
        list(updates)
    lines = [line for folder in folders for line in (folder / "stderr").read_text().splitlines()]
    moves = [line for line in lines if f"job={job_id}" in line]
    assert any(line.endswith("INITIALIZING->RUNNING") for line in moves)
    assert all(" INFO penstock." in line for line in moves)
    assert "taskmanager=" not in "".join(capfd.readouterr())


def test_records_cross_sockets_between_both_taskmanagers(spark_cluster):
    with word_count(environment(6, **THREE_SLOTS)).execute_and_collect() as updates:
        graph = manager_of(updates).job_master.state.graph
        assert last_counts(updates) == expected_counts()
    received, sent = Counter(), Counter()
    counted = control_of(updates).task_metrics()
    for vertex, (_, subtask, io) in zip(graph.vertices, counted, strict=True):
        assert vertex.subtask == subtask
        where = vertex.execution.location.resource_id
        received[where] += io.remote_bytes_in
        sent[where] += io.remote_bytes_out
    assert len(received) == 2
    assert min(received.values()) > 0
    assert min(sent.values()) > 0
    assert sum(received.values()) >= sum(
        sent.values()
    )  # a producer may end before its last frame left


@pytest.mark.parametrize(
    "parallelism", [pytest.param(one, marks=pytest.mark.long) for one in (1, 2, 3, 5)]
)
def test_counts_equal_a_counter_at_any_parallelism(spark_cluster, parallelism):
    with word_count(environment(parallelism)).execute_and_collect() as updates:
        rows = list(updates)
    assert last_counts(rows) == expected_counts()
    assert Counter(word for word, _ in rows) == expected_counts()


def test_executors_run_the_shipped_penstock_and_have_a_directory_of_their_own(spark_cluster):
    def origin(_value):
        import os
        import sys

        files = [m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "penstock"]
        return os.getpid(), os.getcwd(), files

    env = environment(2)
    with env.from_collection(list(range(20))).rebalance().map(origin).execute_and_collect() as rows:
        origins = list(rows)
    assert len({pid for pid, _, _ in origins}) == 2
    for _, folder, files in origins:
        assert "/app-" in folder  # Spark's work directory of the executor
        assert files
        assert all("/penstock.zip/penstock/" in file for file in files)
    assert len({folder for _, folder, _ in origins}) <= 2


class Registrations(JobObserver):
    """What each TaskManager said of itself."""

    def __init__(self) -> None:
        self.messages = []

    def on_register_task_manager(self, message) -> None:
        self.messages.append(message)


def sized(env, cores):
    """The counting operators ask for slots of so many cores; the source takes the usual ones."""
    large = SlotSharingGroup.builder("large").set_cpu_cores(cores).build()
    lines = env.from_collection(LINES).rebalance()
    pairs = lines.flat_map(lambda line: [(word, 1) for word in line.split()])
    return pairs.key_by(lambda pair: pair[0]).reduce(plus).slot_sharing_group(large)


def test_a_group_that_asks_for_cores_gets_task_managers_of_that_size(spark_cluster):
    seen = Registrations()
    env = environment(2).use_executor(ClusterExecutor(SparkHost(), seen))
    with sized(env, 2).execute_and_collect("sized") as updates:
        assert last_counts(updates) == expected_counts()
    cores = Counter((dict(message.size).get("cpu"), message.cores) for message in seen.messages)
    assert cores == {(None, 1): 2, (2.0, 2): 2}


def test_cores_that_no_executor_has_are_refused_with_the_reason(spark_cluster):
    env = environment(2)
    sized(env, 4).print()
    with pytest.raises(NoResourceAvailable, match=r"asks for 4 cores.*has 3 cores"):
        env.execute("too large")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cluster.evenly-spread-out-slots": "true"},
        {"taskmanager.load-balance.mode": "TASKS"},
    ],
    ids=["default", "slots", "tasks"],
)
def test_the_allocation_that_was_planned_is_the_one_that_happened(
    spark_cluster, tmp_path, settings
):
    env = environment(4, **THREE_SLOTS, **settings)
    figure(env, tmp_path / "out")
    job_settings = job_settings_of(Settings(env.get_configuration().to_dict()))
    graph = env.plumbing.stream_graph()
    graph.default_parallelism = 4
    planned = plan(build_job_graph(graph, JobId("plan"), serialize), 2, 3, settings=job_settings)
    control = env.plumbing.submit("planned")
    assert control.wait(30).status is JobStatus.FINISHED
    happened = defaultdict(lambda: defaultdict(set))
    for place in control.manager.job_master.where_tasks_ran():
        taskmanager = happened[place.location.resource_id]
        taskmanager[place.allocation_id].add(f"{place.vertex_name}[{place.subtask}]")
    expected = defaultdict(list)
    for slot in planned.slots:
        expected[slot.resource_id].append(set(slot.tasks))
    assert _shape(slots.values() for slots in happened.values()) == _shape(expected.values())


def _shape(taskmanagers):
    """Slots of each TaskManager, and which tasks share one. Which of two equal TaskManagers offers a slot first, and
    so gets the next group, is the network's affair.
    """
    slots = [list(of_one) for of_one in taskmanagers]
    shared = sorted(sorted(tasks) for of_one in slots for tasks in of_one)
    return sorted(map(len, slots)), shared
