"""Which executors leave, and how many task slots have come, as Spark's scheduler and status store tell it."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.provider import HostChanges, HostLoss
from penstock.engine.hosting.spark.provider import Executors, ExecutorWatch, look_at, why_gone


class Java:
    """What is asked of Spark's JVM, with these executors: id -> (cores, whether it leaves)."""

    def __init__(self, executors, running=0, reasons=None):
        self.executors = executors
        self.running = running
        self.reasons = reasons or {}

    def sc(self):
        return self

    taskScheduler = statusStore = rootPool = sc

    def runningTasks(self):  # ruff: ignore[invalid-function-name] - Spark's
        return self.running

    def executorList(self, _only_active):  # ruff: ignore[invalid-function-name] - Spark's
        return Listed([Summary(name, cores) for name, (cores, _) in self.executors.items()])

    def executorSummary(self, name):  # ruff: ignore[invalid-function-name] - Spark's
        reason = self.reasons[name]
        return SimpleNamespace(removeReason=lambda: Option(reason is not None, reason))

    def getExecutorDecommissionState(self, name):  # ruff: ignore[invalid-function-name] - Spark's
        return Option(self.executors[name][1])


class Listed(list):
    def size(self):
        return len(self)

    def apply(self, index):
        return self[index]


class Summary:
    def __init__(self, name, cores):
        self.id = lambda: name
        self.totalCores = lambda: cores


class Option:
    def __init__(self, is_defined, value=None):
        self.isDefined = lambda: is_defined
        self.get = lambda: value


class Context:
    def __init__(self, executors, running=0, master="spark://somewhere:7077", **conf):
        self._jsc = Java(executors, running)
        self.master = master
        self._conf = conf

    def getConf(self):  # ruff: ignore[invalid-function-name] - PySpark's
        conf = {key.replace("_", "."): value for key, value in self._conf.items()}
        return SimpleNamespace(getAll=conf.items)


EXECUTORS = {"driver": (8, False), "0": (3, False), "1": (5, True)}


def test_the_driver_is_no_executor_and_one_that_leaves_gives_no_slots():
    assert look_at(Context(EXECUTORS)) == Executors(frozenset("1"), 3, 3)


def test_a_task_may_take_several_cores():
    assert look_at(Context(EXECUTORS, spark_task_cpus="2")) == Executors(frozenset("1"), 1, 1)


@pytest.mark.parametrize(("running", "free"), [(0, 3), (2, 1), (3, 0), (5, 0)])
def test_slots_that_tasks_hold_are_not_free(running, free):
    """Those of an executor that leaves may be among them: nobody tells where they run."""
    assert look_at(Context(EXECUTORS, running)).free == free


def test_on_one_machine_the_driver_is_the_executor():
    found = look_at(Context({"driver": (4, False)}, 1, "local[4]"))
    assert found == Executors(frozenset(), 4, 3)


def test_executors_that_come_as_they_are_asked_for_are_no_growth():
    found = look_at(Context(EXECUTORS, spark_dynamicAllocation_enabled="true"))
    assert found == Executors(frozenset("1"), 0)


def test_a_stopped_session_tells_nothing():
    context = Context(EXECUTORS)
    context._jsc = None
    assert look_at(context) is None


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([({}, 6), ({}, 9)], HostChanges(frozenset(), 3, None, 2)),
        ([({}, 6), ({}, 3), ({}, 6)], HostChanges(frozenset(), 0, None, 3)),
        ([({}, 6), ({"1"}, 3), ({}, 6)], HostChanges(frozenset("1"), 0, None, 3)),
        ([({}, 3), ({}, 9), ({}, 6)], HostChanges(frozenset(), 6, None, 3)),
    ],
    ids=["one more", "one replaced", "one has left", "one more, then lost"],
)
def test_what_has_changed_since_the_job_began(looks, expected):
    watch = ExecutorWatch(Context({}))
    for leaving, slots in looks:
        watch.note(Executors(frozenset(leaving), slots))
    assert watch.changes == expected


YARN = "Container killed by YARN for exceeding physical memory limits. 2.2 GB of 1.5 GB used."
KUBERNETES = "It exited with exit code 137.\n\nstate: terminated\n termination reason: OOMKilled"


def test_why_an_executor_has_ended_is_what_spark_says_in_one_line_and_whether_it_was_for_memory():
    context = Context({})
    context._jsc = Java(
        {}, reasons={"1": None, "2": "Worker shutting down", "3": YARN, "4": KUBERNETES}
    )
    assert why_gone(context, "0") is None, "Spark does not know it"
    assert why_gone(context, "1") is None, "it is there"
    assert why_gone(context, "2") == HostLoss("executor 2 has ended: Worker shutting down")
    cause = f"executor 3 has ended: {YARN} Raise spark.executor.memoryOverhead."
    assert why_gone(context, "3") == HostLoss(cause, for_memory=True)
    kubernetes = why_gone(context, "4")
    assert kubernetes.for_memory
    assert "137. state: terminated termination reason: OOMKilled" in kubernetes.cause
