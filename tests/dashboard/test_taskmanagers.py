"""The pages of TaskManagers: all of them, and one."""

import pytest

from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import ResourceId, taskmanager_name
from penstock.engine.model.job_events import TaskManagerLost
from penstock.engine.model.messages import RegisterTaskManager
from tests.tools.dashboard.told_processes import ToldProcesses, reports
from tests.tools.observation.job_records import JOB, SINK, attempt, facts

pytestmark = pytest.mark.browser
PAGE = "#/taskmanagers"


def name_of(number):
    return taskmanager_name(JOB, ResourceId(f"tm-{number}"))


def registers(job, number, slots=2, host="host-a", **more):
    resource_id = ResourceId(f"tm-{number}")
    return job.tell(RegisterTaskManager(resource_id, host, 5001, slots, 77, 2, "3.11", **more))


def cell(tab, row, column):
    """What a cell of the table `TaskManagers` shows."""
    titles = tab.page.locator("table").first.locator("thead th").all_inner_texts()
    place = [one.rstrip(" \u2191\u2193") for one in titles].index(column)
    found = tab.page.locator("tbody tr").filter(has_text=row).locator("th, td")
    return found.nth(place).inner_text().replace("\n", " ").strip()


def test_a_driver_without_taskmanagers_says_who_brings_them(driver, look):
    look().at(driver, PAGE).shows("There is no TaskManager. A streaming job asks Spark")


def test_each_has_its_slots_memory_and_load(driver, look):
    job = driver.job().status("RUNNING")
    registers(job, 1).runs()
    reports(
        driver, name_of(1), load=0.25, used=2.5e8, most=1e9, arrow=1.2e7, buffers_free=9, buffers=64
    )
    tab = look().at(driver, PAGE).shows(name_of(1)).shows("25 %")
    assert cell(tab, name_of(1), "Host") == "host-a"
    assert cell(tab, name_of(1), "Free slots") == "0 of 2"
    assert cell(tab, name_of(1), "Subtasks") == "4"
    assert cell(tab, name_of(1), "CPU") == "25 %"
    assert cell(tab, name_of(1), "Memory") == "250 MB of 1 GB"
    assert cell(tab, name_of(1), "Arrow") == "12 MB"
    assert cell(tab, name_of(1), "Buffers free") == "9 of 64"
    assert tab.violations() == []


def test_what_was_not_reported_is_not_known_and_says_why(driver, look):
    registers(driver.job(), 1)
    tab = look().at(driver, PAGE).shows(name_of(1))
    assert cell(tab, name_of(1), "Memory") == "n/a"
    assert tab.page.locator("td [title*='has not reported it yet']").count() >= 3


def test_the_server_sorts_and_the_address_keeps_it(driver, look):
    job = driver.job()
    for number, load in ((1, 0.5), (2, 0.1), (3, 0.9)):
        registers(job, number)
        reports(driver, name_of(number), load=load)
    tab = look().at(driver, PAGE).shows(name_of(3))
    tab.page.get_by_role("button", name="CPU").click()
    tab.page.wait_for_url("**sort=cpu&order=desc")
    tab.shows(name_of(3), "tbody tr:first-child th")
    assert tab.page.locator("tbody th").all_inner_texts() == [name_of(3), name_of(1), name_of(2)]
    tab.page.reload()
    tab.shows(name_of(3), "tbody tr:first-child th")
    assert tab.page.locator("th[aria-sort=descending]").inner_text().startswith("CPU")


def test_a_hundred_stand_on_a_page(driver, look):
    job = driver.job()
    for number in range(101):
        registers(job, f"{number:03}")
    tab = look().at(driver, PAGE).shows("1\u2013100 of 101 TaskManagers")
    tab.page.get_by_role("button", name="Next page").click()
    tab.shows("101\u2013101 of 101 TaskManagers")
    tab.page.get_by_text(name_of("100")).wait_for()
    assert tab.page.locator("tbody tr").count() == 1
    tab.page.go_back()
    tab.shows("1\u2013100 of 101 TaskManagers")


def test_late_and_lost_ones_are_told_with_the_reason(driver, look):
    job = driver.job(facts(late_after_ms=0))
    registers(job, 1)
    registers(job, 2).tell(TaskManagerLost(ResourceId("tm-2"), "no heartbeat for 50 s"))
    driver.job_registry.started(ToldProcesses(JOB))
    tab = look().at(driver, PAGE).shows(name_of(1))
    assert "\u26a0" in cell(tab, name_of(1), "Last heard")
    tab.shows("no heartbeat for 50 s", "#lost tr")
    tab.page.locator("#lost").get_by_role("link", name=name_of(2)).click()
    tab.shows("This TaskManager is gone since").shows("no heartbeat for 50 s", ".banner")


def test_one_with_its_figures_its_subtasks_and_its_files(driver, look, tmp_path):
    (tmp_path / "tm.log").write_text("first\n")
    job = driver.job().status("RUNNING")
    registers(job, 1).runs().has(attempt(SINK, 1), busy_ms_per_s=900)
    driver.job_registry.started(ToldProcesses(JOB, tmp_path / "tm.log"))
    reports(driver, name_of(1), load=0.5, used=1e8, garbage=20.0, threads=12)
    tab = look().at(driver, f"{PAGE}/{name_of(1)}").shows("50 %").shows("tm.log")
    shown = tab.text("main")
    assert "host-a, process 77" in shown
    assert "2 %" in shown, "of the time garbage is collected"
    rows = tab.page.locator("table").first.locator("tbody tr")
    assert rows.count() == 4
    assert "Reduce" in rows.first.inner_text()
    assert "90 %" in rows.first.inner_text()
    assert tab.violations() == []
    tab.page.get_by_role("link", name="tm.log").click()
    tab.shows("first", ".log")


def test_sparks_executor_has_a_link_to_its_page(driver, look):
    driver.job_registry.spark_ui = "http://localhost:4040"
    task = SparkTask(executor="7", stage=3, partition=1, attempt=0)
    registers(driver.job().status("RUNNING"), 1, spark_task=task).runs()
    driver.job_registry.started(ToldProcesses(JOB))
    tab = look().at(driver, f"{PAGE}/{name_of(1)}").shows("Spark executor 7")
    link = tab.page.get_by_role("link", name="Spark executor 7").get_attribute("href")
    assert link == "http://localhost:4040/executors/threadDump/?executorId=7"


def test_one_that_does_not_answer_says_why(driver, look):
    registers(driver.job(), 1)
    processes = ToldProcesses(JOB)
    processes.silent = "TaskManager tm-1 has not answered within 10 s"
    driver.job_registry.started(processes)
    tab = look().at(driver, f"{PAGE}/{name_of(1)}")
    tab.allowed = ["500"]
    tab.shows("has not answered within 10 s", "[role=alert]")


def test_one_that_nobody_knows(driver, look):
    look().at(driver, f"{PAGE}/tm-9").shows("This driver knows no TaskManager tm-9", "[role=alert]")


def test_when_the_job_has_ended_it_is_gone(driver, look):
    job = registers(driver.job().status("RUNNING"), 1)
    driver.job_registry.started(ToldProcesses(JOB))
    tab = look().at(driver, f"{PAGE}/{name_of(1)}").shows("Last heard")
    job.status("CANCELLING").status("CANCELED")
    tab.shows("its job has ended: CANCELED", ".banner")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_and_no_wide_page_on_a_phone(driver, look, scheme):
    job = driver.job(facts(late_after_ms=0))
    registers(job, 1)
    why = "\n".join(["no heartbeat for 50 s"] * 20)
    registers(job, 2).tell(TaskManagerLost(ResourceId("tm-2"), why))
    tab = look(color_scheme=scheme, viewport={"width": 320, "height": 700})
    tab.at(driver, PAGE).shows("no heartbeat")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()
