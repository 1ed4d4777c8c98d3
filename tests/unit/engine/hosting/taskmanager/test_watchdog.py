"""TaskWatchdog: who is interrupted and when, and which tasks are told of because they do nothing."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.taskmanager.watchdog import LEAVES_BY_ITSELF_MS, TaskWatchdog
from penstock.engine.hosting.taskmanager_order import WatchSettings
from penstock.engine.model.errors import NoProgress
from penstock.engine.model.states import ExecutionState


class Task(SimpleNamespace):
    """As much of a TaskThread as a watchdog looks at."""

    def __init__(self) -> None:
        super().__init__(
            attempt_id="a", progress=0, is_waiting=False, is_alive=True, operator="Map"
        )
        self.state = ExecutionState.RUNNING
        self.deployment = SimpleNamespace(title="Map (1/2)#0")
        self.waiting_input = None
        self.thread_id = None
        self.interrupts = 0
        self.failure = None

    def interrupt(self) -> None:
        self.interrupts += 1

    def fail(self, error) -> bool:
        is_first = self.failure is None
        self.failure, self.state = error, ExecutionState.FAILED
        return is_first


class Watch:
    """A watchdog, what it has said, and why it has ended the TaskManager."""

    def __init__(self, **settings):
        self.said, self.ends = [], []
        self.dog = TaskWatchdog(
            WatchSettings(500, **settings),
            lambda _task, text: self.said.append(text),
            self.ends.append,
        )

    def look(self, *tasks, from_ms=0, until_ms=60_000, each=lambda: None):
        """Returns: when something was said."""
        spoken = []
        for now in range(from_ms, until_ms + 1, 500):
            each()
            self.dog.tick(now, list(tasks))
            spoken += [now] * (len(self.said) - len(spoken))
        return spoken


@pytest.fixture
def task():
    return Task()


def test_a_cancelled_task_has_a_moment_and_is_then_interrupted_at_the_interval(task):
    watch, task.state = Watch(), ExecutionState.CANCELING
    watch.dog.cancelled(task, 0)
    seen = []
    for now in (0, LEAVES_BY_ITSELF_MS, 549, 550, 1050):
        watch.dog.tick(now, [])
        seen.append(task.interrupts)
    assert seen == [0, 1, 1, 2, 3]


def test_a_task_that_has_ended_is_left_alone(task):
    watch = Watch()
    watch.dog.cancelled(task, 0)
    task.state, task.is_alive = ExecutionState.CANCELED, False
    watch.dog.tick(1000, [])
    assert task.interrupts == 0


def test_a_call_that_does_not_come_back_is_told_of_once(task):
    watch = Watch()
    assert watch.look(task) == [10_000]
    assert "one call of Map has taken 10 s so far" in watch.said[0]


def test_each_call_that_does_not_come_back_is_told_of(task):
    watch = Watch()
    watch.look(task)
    task.progress += 1
    watch.look(task, from_ms=60_500, until_ms=120_000)
    assert len(watch.said) == 2


def test_input_that_nobody_takes_is_told_of_once(task):
    """The task waits, as it may with as many asynchronous calls open as it is allowed, and wakes now and then."""
    watch = Watch()
    task.is_waiting, task.waiting_input = True, 7

    def wake():
        task.progress += 1

    assert watch.look(task, each=wake) == [10_000]
    assert "input waits, but this subtask has taken none of it for 10 s" in watch.said[0]


def test_a_task_that_turns_or_reads_or_has_nothing_to_do_is_not_told_of():
    turning, reading, idle = Task(), Task(), Task()
    reading.attempt_id, reading.is_waiting, reading.waiting_input = "b", True, 0
    idle.attempt_id, idle.is_waiting = "c", True

    def work():
        turning.progress += 1
        reading.waiting_input += 1

    assert Watch().look(turning, reading, idle, each=work) == []


def test_zero_says_nothing(task):
    assert Watch(progress_timeout_ms=0).look(task) == []


def test_by_option_it_fails_with_the_reason_and_is_interrupted(task):
    watch = Watch(fails_without_progress=True, progress_timeout_ms=2000, cancellation_timeout_ms=0)
    assert watch.look(task, until_ms=5000) == []
    assert isinstance(task.failure, NoProgress)
    assert str(task.failure).startswith("Map (1/2)#0: one call of Map has taken 2 s so far")
    assert task.interrupts > 1
    assert watch.ends == []


def test_a_failed_task_that_does_not_end_costs_its_taskmanager(task):
    watch = Watch(
        fails_without_progress=True, progress_timeout_ms=2000, cancellation_timeout_ms=1000
    )
    watch.look(task, until_ms=3000)
    assert watch.ends == []
    watch.dog.tick(3000 + LEAVES_BY_ITSELF_MS, [task])
    (cause,) = watch.ends
    assert cause.startswith("Map (1/2)#0 did not end within 1 s")


def test_a_task_that_restores_its_state_is_told_of_but_does_not_fail(task):
    watch = Watch(fails_without_progress=True)
    task.state = ExecutionState.INITIALIZING
    assert watch.look(task) == [10_000]
    assert task.failure is None
