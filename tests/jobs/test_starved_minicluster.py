"""A TaskManager of a MiniCluster is a thread of this process, which sees whether it lives: who is only not heard is not lost."""

import threading

import pytest

from penstock.engine.hosting.jobmanager import taskmanager_watch
from penstock.engine.hosting.jobmanager.taskmanager_watch import TaskManagerWatch
from penstock.engine.hosting.local.minicluster import MiniCluster, ThreadProvider
from penstock.engine.hosting.observer import JobObserver
from tests.tools.programs.environments import collected, minicluster_environment

TIMEOUT_MS = 400
MANY_TIMEOUTS_MS = 3 * TIMEOUT_MS
HANG_S = 60.0
OUTLASTED = threading.Event()
SETTINGS = {"heartbeat.interval": "200 ms", "heartbeat.timeout": f"{TIMEOUT_MS} ms"}


class Losses(JobObserver):
    """And those whose machine answers, which have longer."""

    def __init__(self) -> None:
        self.told = []

    def on_task_manager_lost(self, event) -> None:
        self.told.append(event.cause)
        OUTLASTED.set()

    def on_task_manager_starved(self, event) -> None:
        self.on_task_manager_lost(event)


@pytest.fixture
def unheard(monkeypatch):
    """No heartbeat of a TaskManager is read. `OUTLASTED` is set when one has been silent for many timeouts, or is lost."""
    since = {}
    registered, tick = TaskManagerWatch.registered, TaskManagerWatch.tick

    def noted(watch, resource_id):
        since[resource_id] = taskmanager_watch.now_ms()
        registered(watch, resource_id)

    def ticked(watch):
        tick(watch)
        now = taskmanager_watch.now_ms()
        if any(now - began > MANY_TIMEOUTS_MS for began in since.values()):
            OUTLASTED.set()

    OUTLASTED.clear()
    monkeypatch.setattr(TaskManagerWatch, "registered", noted)
    monkeypatch.setattr(TaskManagerWatch, "tick", ticked)
    monkeypatch.setattr(TaskManagerWatch, "heard", lambda _watch, _resource_id: None)


def waited(value):
    assert OUTLASTED.wait(HANG_S)
    return value


def run(observer):
    env = minicluster_environment(MiniCluster(parallelism=1, observer=observer), SETTINGS)
    return collected(env.from_collection([1]).map(waited))


def test_one_that_lives_and_is_not_heard_is_kept(unheard):
    observer = Losses()
    assert run(observer) == [1]
    assert observer.told == []


def test_without_that_sight_its_silence_is_noticed(unheard, monkeypatch):
    """So the test above shows what it says."""
    monkeypatch.setattr(ThreadProvider, "progress", lambda _provider, _resource_id: None)
    observer = Losses()
    run(observer)
    assert observer.told[0].startswith("no heartbeat for ")
