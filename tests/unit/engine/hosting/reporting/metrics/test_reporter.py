"""When a TaskManager reports, and what becomes of a task that cannot be read."""

import pytest

from penstock.engine.hosting.reporting.metrics.taskmanager import MetricReporter
from penstock.engine.metrics.registry import Registry
from penstock.engine.metrics.report_format import Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.metrics import Measured, MetricType, gauge
from penstock.ops.metrics.entities import TaskManagerScope, VertexScope
from penstock.ops.metrics.store import MetricStore

TASK = {"job_id": "j", "job_name": "n", "task_id": "v", "task_name": "t"}


class FakeTask:
    def __init__(self, subtask: int = 0) -> None:
        self.subtask = subtask
        self.updates = 0

    def update(self) -> None:
        self.updates += 1

    def sections(self):
        told = Measured("updates", MetricType.COUNTER, self.updates)
        yield Section(Component.TASK, TASK, [told], self.subtask, 0)


class BrokenTask(FakeTask):
    def update(self) -> None:
        raise RuntimeError("the chain is gone")

    sections = update


class Driver:
    def __init__(self) -> None:
        self.store = MetricStore()
        self.times: list[float] = []
        self.now_s = 0.0

    def take(self, payload: bytes) -> None:
        self.times.append(self.now_s)
        self.store.report(payload)


@pytest.fixture
def driver():
    return Driver()


def reporter_of(driver: Driver, interval_ms: int) -> MetricReporter:
    process = Registry()
    process.add(gauge("answer", lambda: 42))
    return MetricReporter(process, {"host": "h", "tm_id": "tm"}, interval_ms, driver.take)


def run(reporter: MetricReporter, driver: Driver, until_s: float, *tasks: FakeTask) -> None:
    """A heartbeat each half second."""
    for step in range(int(until_s * 2) + 1):
        driver.now_s = step / 2
        reporter.tick(driver.now_s, lambda: list(tasks))


def test_it_reports_in_intervals_and_updates_rates_every_5_s(driver):
    task = FakeTask()
    run(reporter_of(driver, 10_000), driver, 30, task)
    assert driver.times == [0, 10, 20, 30]
    assert task.updates == 6
    assert driver.store.values(VertexScope("j", "v")) == {"0.updates": "6"}
    assert driver.store.values(TaskManagerScope("tm")) == {"answer": "42"}


def test_a_new_task_has_metrics_at_the_next_heartbeat(driver):
    """A rescaled job has no subtasks whose metrics are not there for an interval."""
    reporter, first, new = reporter_of(driver, 10_000), FakeTask(0), FakeTask(1)
    for driver.now_s, tasks in ((0, [first]), (6, [first, new]), (7, [first, new])):
        reporter.tick(driver.now_s, lambda tasks=tasks: tasks)
    assert driver.times == [0, 6]
    assert driver.store.values(VertexScope("j", "v")) == {"0.updates": "0", "1.updates": "1"}


def test_an_interval_of_0_reports_nothing(driver):
    task = FakeTask()
    reporter = reporter_of(driver, 0)
    run(reporter, driver, 30, task)
    reporter.ended(task)
    assert (driver.times, task.updates) == ([], 0)


def test_a_task_that_ends_is_reported_at_once_and_alone(driver):
    reporter_of(driver, 10_000).ended(FakeTask(3))
    assert driver.store.values(VertexScope("j", "v")) == {"3.updates": "0"}
    assert driver.store.values(TaskManagerScope("tm")) == {}


def test_a_task_that_cannot_be_read_holds_nobody_up(driver, caplog):
    good = FakeTask(1)
    reporter = reporter_of(driver, 5000)
    run(reporter, driver, 30, BrokenTask(0), good)
    reporter.ended(BrokenTask(0))
    assert driver.store.values(VertexScope("j", "v")) == {"1.updates": "6"}
    complaints = [one for one in caplog.messages if "the chain is gone" in one]
    assert len(complaints) == 1, "once for each kind of trouble"
