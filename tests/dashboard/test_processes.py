"""The driver's page, and threads of processes."""

import threading

import pytest

from penstock.engine.model.ids import ResourceId, taskmanager_name
from penstock.engine.model.messages import RegisterTaskManager
from tests.tools.dashboard.told_processes import ToldProcesses
from tests.tools.observation.job_records import JOB, facts

pytestmark = pytest.mark.browser


def test_the_driver_with_its_figures_environment_and_options(driver, look):
    driver.job(
        facts(configuration={"parallelism.default": "4", "taskmanager.numberOfTaskSlots": "2"})
    )
    tab = look().at(driver, "#/driver").shows("Resident memory").shows("parallelism.default")
    shown = tab.text("main")
    assert "Python 3." in shown
    assert "n/a" not in tab.text("section[aria-label=Process]")
    tab.page.get_by_label("Show those with").fill("slots")
    tab.shows("1 of 4")
    assert (
        tab.page.locator("section", has_text="Options that are set").locator("tbody tr").count()
        == 1
    )
    assert tab.violations() == []


def test_the_threads_of_the_driver_and_a_filter_in_the_address(driver, look):
    is_over = threading.Event()
    named = threading.Thread(target=is_over.wait, name="the one that waits")
    named.start()
    try:
        tab = look().at(driver, "#/driver/threads?q=one%20that%20waits")
        tab.shows("the one that waits", "summary")
        assert tab.page.locator("details.thread").count() == 1
        tab.page.get_by_label("Show threads with").fill("")
        tab.shows("MainThread")
    finally:
        is_over.set()
        named.join()
    assert tab.page.locator("details.thread").count() > 1
    assert "q=" not in tab.page.url
    assert tab.violations() == []


def test_the_threads_of_a_taskmanager_are_looked_at_again_when_one_wants_it(driver, look):
    resource_id = ResourceId("tm-1")
    driver.job().tell(RegisterTaskManager(resource_id, "host-a", 5001, 2, 77, 2, "3.11"))
    processes = ToldProcesses(JOB, threads=[("Map (1/2)#0", '"Map (1/2)#0"\n\tat app.parse:1\n')])
    driver.job_registry.started(processes)
    tab = look().at(driver, f"#/taskmanagers/{taskmanager_name(JOB, resource_id)}/threads")
    tab.shows("Map (1/2)#0").shows("at app.parse:1", "summary")
    processes.threads = [("Map (1/2)#0", '"Map (1/2)#0"\n\tat app.store:9\n')]
    tab.page.get_by_role("button", name="Look again").click()
    tab.shows("at app.store:9", "summary")
    processes.silent = "the TaskManager has ended"
    tab.allowed = ["500"]
    tab.page.get_by_role("button", name="Look again").click()
    tab.shows("the TaskManager has ended", "[role=alert]").shows("at app.store:9", "summary")
