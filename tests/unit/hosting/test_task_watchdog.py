"""TaskWatchdog: who is interrupted and when, and which calls are spoken of."""

import sys
from types import SimpleNamespace

import pytest

from penstock.common import Encoder
from penstock.datastream.connectors.file_system import FileSink
from penstock.hosting.task.thread import may_be_cut
from penstock.hosting.taskmanager.watchdog import LEAVES_BY_ITSELF_MS, TaskWatchdog
from penstock.model.states import ExecutionState
from penstock.runtime.checkpoint.two_phase_commit import CommitterState
from penstock.runtime.context import UserFunction
from penstock.runtime.operators import MapOperator, SinkOperator
from tests.unit.runtime.harness import OperatorHarness


class Task(SimpleNamespace):
    """As much of a TaskThread as a watchdog looks at."""

    def __init__(self) -> None:
        super().__init__(
            attempt_id="a", progress=0, is_waiting=False, is_alive=True, operator="Map"
        )
        self.state = ExecutionState.CANCELING
        self.thread_id = None
        self.interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1


@pytest.fixture
def said():
    return []


def watchdog(said, slow_ms=10_000):
    return TaskWatchdog(500, slow_ms, lambda _task, text: said.append(text))


def test_a_cancelled_task_has_a_moment_and_is_then_interrupted_at_the_interval(said):
    watch, task = watchdog(said), Task()
    watch.cancelled(task, 0)
    seen = []
    for now in (0, LEAVES_BY_ITSELF_MS, 549, 550, 1050):
        watch.tick(now, [])
        seen.append(task.interrupts)
    assert seen == [0, 1, 1, 2, 3]


def test_a_task_that_has_ended_is_left_alone(said):
    watch, task = watchdog(said), Task()
    watch.cancelled(task, 0)
    task.state, task.is_alive = ExecutionState.CANCELED, False
    watch.tick(1000, [])
    assert task.interrupts == 0


def test_a_call_that_does_not_come_back_is_named_less_and_less_often(said):
    watch, task = watchdog(said), Task()
    spoken = []
    for now in range(0, 60_001, 500):
        watch.tick(now, [task])
        spoken += [now] * (len(said) - len(spoken))
    assert spoken == [10_000, 20_000, 40_000]
    assert "one call of Map has taken 10 s so far" in said[0]


def test_a_task_that_turns_or_waits_is_not_spoken_of(said):
    watch, turning, waiting = watchdog(said), Task(), Task()
    waiting.attempt_id, waiting.is_waiting = "b", True
    for now in range(0, 60_001, 500):
        turning.progress += 1
        watch.tick(now, [turning, waiting])
    assert said == []


def test_zero_says_nothing(said):
    watch, task = watchdog(said, slow_ms=0), Task()
    for now in range(0, 60_001, 500):
        watch.tick(now, [task])
    assert said == []


class Library:
    """What a thread may be interrupted in: code outside of ours belongs to what of ours has called it."""

    def __init__(self) -> None:
        self.cuts: list[bool] = []

    def __call__(self, _value=None) -> None:
        self.cuts.append(may_be_cut(sys._getframe()))


@pytest.fixture
def library():
    return Library()


def test_a_function_of_the_user_may_be_interrupted(library):
    OperatorHarness(MapOperator(UserFunction(library))).feed([1])
    assert library.cuts == [True]


def test_a_commit_may_not_nor_what_it_calls(library):
    """A connection that is cut while it is being closed keeps its transaction open, and its locks taken."""

    def commit(_requests):
        library()
        return ()

    committer = CommitterState(commit)
    committer.add(1, ("prepared",))
    committer.complete(1)
    assert library.cuts == [False]


def test_a_writer_of_files_may_not(tmp_path, library):
    class Noting(Encoder):
        def encode(self, values, value_type):
            library()
            return b""

    sink = FileSink.for_row_format(str(tmp_path), Noting()).build()
    operator = SinkOperator(sink)
    OperatorHarness(operator, job_id="job", file_prefix="job").feed([1])
    operator.close()
    assert library.cuts == [False]
