"""A user function that does not come back: the job goes on without it, and says where it was
(docs/spec/tasks.md#cancel).

Two subtasks share a TaskManager. One gets stuck, then the other fails, so that both are restarted. A Python loop can
be interrupted; the others cost the TaskManager and whatever else runs in it, which is then restarted elsewhere.
"""

import os

import pytest

from penstock.common import Configuration, RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from tests.spark.processes import taskmanagers_left
from tests.spark.test_failures import Recorder

pytestmark = pytest.mark.spark


def python_loop():
    while True:
        pass


def sleep():
    import time

    time.sleep(1e6)


def call_that_holds_the_gil():
    import re

    re.match(r"(a+)+$", "a" * 64 + "b")


def socket_read():
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


class Losses(Recorder):
    """Why TaskManagers were given up."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: list[str] = []

    def on_task_manager_lost(self, event) -> None:
        self.causes.append(event.cause)


def run(get_stuck, folder, cancel="1500 ms", frozen="3 s") -> tuple[list[str], Losses]:
    """Results of a job whose first attempt gets stuck in one subtask and fails in the other."""
    fifo, once = str(folder / "entered"), str(folder / "once")
    os.mkfifo(fifo)

    def first_time_only(value):
        try:
            os.close(os.open(f"{once}-{value}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value
        if value == "stuck":
            with open(fifo, "w") as entered:
                entered.write("yes")
                if get_stuck.__name__ == "call_that_holds_the_gil":
                    get_stuck()  # the other waits for the end of the file, lest it fails before the call has begun
            get_stuck()
        with open(fifo) as entered:
            assert entered.read() == "yes"
        raise ValueError("the other subtask failed")

    settings = Configuration()
    settings.set_string("taskmanager.numberOfTaskSlots", "2")
    settings.set_string("task.cancellation.timeout", cancel)
    settings.set_string("penstock.taskmanager.frozen-timeout", frozen)
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 0))
    losses = Losses()
    env.use_executor(ClusterExecutor(SparkHost(), losses))
    values = env.from_collection(["stuck", "fails"]).rebalance().map(first_time_only)
    with values.execute_and_collect() as found:
        return sorted(found), losses


def test_a_python_loop_is_interrupted_and_costs_no_taskmanager(spark, tmp_path):
    # As long as a busy machine may need: nothing waits for it.
    results, losses = run(python_loop, tmp_path, cancel="60 s", frozen="60 s")
    assert results == ["fails", "stuck"]
    assert losses.causes == []
    assert losses.requested == 1
    assert losses.restarts == 1


@pytest.mark.parametrize(
    ("get_stuck", "why"),
    [
        pytest.param(
            sleep,
            "did not end within 1.5 s of its cancel (task.cancellation.timeout)",
            marks=pytest.mark.long,
        ),
        pytest.param(
            socket_read,
            "did not end within 1.5 s of its cancel (task.cancellation.timeout)",
            marks=pytest.mark.long,
        ),
        # nobody else in the process moves either, so that the other subtask cannot fail
        (call_that_holds_the_gil, "no progress for 3 s: frozen"),
    ],
)
def test_a_call_that_cannot_be_interrupted_costs_its_taskmanager_and_its_stack_is_told(
    spark, tmp_path, get_stuck, why
):
    results, losses = run(get_stuck, tmp_path)
    assert results == ["fails", "stuck"]
    (cause,) = losses.causes
    assert why in cause
    assert f"in {get_stuck.__name__}" in cause
    assert "test_stuck_tasks.py" in cause
    assert "penstock/engine/runtime" not in cause
    assert losses.requested == 2
    assert not taskmanagers_left()
