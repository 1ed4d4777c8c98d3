"""The overview: the cluster in one line, jobs that are ill with the reason, ended jobs apart, and the slot map."""

import pytest

from penstock.engine.model.ids import (
    AllocationId,
    ResourceId,
    TaskManagerLocation,
    taskmanager_name,
)
from penstock.engine.model.job_events import SlotsMissing, TaskDeployed
from penstock.engine.model.messages import FailureInfo, RegisterTaskManager
from tests.tools.observation.job_records import JOB, SINK, SOURCE, attempt, facts

pytestmark = pytest.mark.browser


def name_of(number):
    return taskmanager_name(JOB, ResourceId(f"tm-{number}"))


def registers(job, number, slots=2, host="host-a"):
    return job.tell(
        RegisterTaskManager(ResourceId(f"tm-{number}"), host, 5001, slots, 77, 2, "3.11")
    )


def fact(tab, name):
    return tab.page.locator(".facts > div").filter(has_text=name).first.locator("dd").inner_text()


def test_the_cluster_in_one_line(driver, look):
    job = driver.job(facts(late_after_ms=3_600_000)).status("RUNNING")
    registers(job, 1, slots=3).runs()
    tab = look().at(driver).shows("1 job running")
    found = {
        name: fact(tab, name)
        for name in ("TaskManagers", "Slots", "Slots free", "Slots wanted", "Late")
    }
    assert found == {
        "TaskManagers": "1",
        "Slots": "3",
        "Slots free": "1",
        "Slots wanted": "none",
        "Late": "none",
    }


def test_slots_that_are_wanted_and_late_heartbeats_are_seen_at_once(driver, look):
    job = driver.job(facts(late_after_ms=0)).status("RUNNING")
    registers(job, 1)
    job.moves(attempt(), "SCHEDULED").tell(SlotsMissing(4, 1, "Spark gives no more tasks"))
    tab = look().at(driver).shows("3 slots missing. Spark gives no more tasks")
    assert fact(tab, "Slots wanted") == "\u26a0 3"
    assert fact(tab, "Late heartbeats") == "\u26a0 1"
    assert tab.violations() == []


def test_a_job_that_is_ill_says_why_and_one_that_is_well_says_nothing(driver, look):
    job = driver.job().status("RUNNING").runs()
    for subtask in (0, 1):
        job.has(attempt(SOURCE, subtask), backpressured_ms_per_s=990, busy_ms_per_s=10)
        job.has(attempt(SINK, subtask), busy_ms_per_s=995)
    tab = look().at(driver).shows("limits the job", ".illness")
    for subtask in (0, 1):
        job.has(attempt(SOURCE, subtask), busy_ms_per_s=300, idle_ms_per_s=700)
        job.has(attempt(SINK, subtask), busy_ms_per_s=300, idle_ms_per_s=700)
    tab.page.locator(".illness").wait_for(state="detached")


def test_jobs_that_have_ended_stand_apart(driver, look):
    failure = FailureInfo("ValueError", "text")
    driver.job().status("RUNNING").runs().status("FAILING").status("FAILED", failure=failure)
    tab = look().at(driver).shows("1 job ended").shows("No job is running")
    tab.shows("All jobs of this driver have ended.")
    tab.shows("FAILED", "section[aria-label='1 job ended']")
    assert fact(tab, "failed") == "1"
    assert tab.page.locator(".illness").count() == 0


def test_a_job_that_restarts_is_ill(driver, look):
    job = driver.job().status("RUNNING").runs()
    job.status("RESTARTING")
    look().at(driver).shows("The job is RESTARTING", ".illness").shows("RESTARTING", ".badge")


def test_a_slot_tells_who_shares_it_to_the_pointer_and_to_the_keyboard(driver, look):
    job = driver.job().status("RUNNING")
    registers(job, 1, slots=3).runs().has(attempt(SINK, 1), busy_ms_per_s=870)
    tab = look().at(driver).shows(name_of(1), ".slot-box")
    cells = tab.page.locator(".cell")
    assert [one.inner_text().strip() for one in cells.all()] == ["n/a", "87 %", ""]
    cells.nth(1).hover()
    told = tab.page.locator(".slot-told")
    told.get_by_text("87 %").wait_for()
    assert "Source: Numbers \u2192 Map 1" in told.inner_text()
    assert "Reduce \u2192 Sink: <out> 1" in told.inner_text()
    tab.page.mouse.move(0, 0)
    told.get_by_text("Point at a slot").wait_for()
    cells.nth(0).focus()
    tab.page.keyboard.press("ArrowRight")
    told.get_by_text("87 %").wait_for()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(f"**slot={name_of(1)}%2F2")
    tab.page.reload()
    told.get_by_text("87 %").wait_for()
    told.get_by_role("link").last.click()
    tab.shows("Subtask 1", "#subtask")


def test_colours_by_slot_sharing_group_have_letters_too(driver, look):
    job = driver.job().status("RUNNING")
    registers(job, 1).runs()
    tab = look().at(driver).shows(name_of(1), ".slot-box")
    tab.page.locator("#slots select").select_option("group")
    tab.page.wait_for_url("**colour=group")
    assert [one.inner_text().strip() for one in tab.page.locator(".cell").all()] == ["A", "A"]
    tab.shows("A default", ".card")
    assert tab.violations() == []


def test_beyond_2000_slots_they_are_added_up_by_host(driver, look):
    job = driver.job().status("RUNNING")
    for number in range(21):
        registers(job, number, slots=100, host=f"host-{number % 2}")
    place = TaskManagerLocation(ResourceId("tm-0"), "host-0", 5001)
    one = attempt(SINK, 1)
    job.moves(one, "SCHEDULED", "DEPLOYING").tell(TaskDeployed(one, place, AllocationId("slot-9")))
    job.moves(one, "INITIALIZING", "RUNNING").has(one, busy_ms_per_s=420)
    tab = look().at(driver).shows("There are 2\u202f100 slots, so they are added up for each host.")
    rows = tab.page.locator("table", has_text="Subtasks").last.locator("tbody tr")
    assert rows.count() == 2
    assert "1 of 1\u202f100" in rows.first.inner_text()
    assert "42 %" in rows.first.inner_text()
    assert tab.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_with_everything_on_a_phone(driver, look, scheme):
    job = driver.job(facts(late_after_ms=0)).status("RUNNING")
    registers(job, 1).runs()
    for subtask, busy in ((0, 1000), (1, 500)):
        job.has(attempt(SINK, subtask), busy_ms_per_s=busy)
    tab = look(color_scheme=scheme, viewport={"width": 320, "height": 700})
    tab.at(driver).shows(name_of(1), ".slot-box").shows("100", ".cell")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()
