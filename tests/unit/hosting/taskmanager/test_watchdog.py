"""TaskWatchdog: who is interrupted and when, and which calls are spoken of."""

from types import SimpleNamespace

import pytest

from penstock.hosting.taskmanager.watchdog import LEAVES_BY_ITSELF_MS, TaskWatchdog
from penstock.model.states import ExecutionState


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
