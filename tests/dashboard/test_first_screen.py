"""The first screen of a job in each of its states, what can be done from it, and how it is read."""

import re

import pytest

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.job_events import SlotsMissing
from penstock.engine.model.messages import CheckpointFailureReason as Reason
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from tests.dashboard.test_job_pages import LOST
from tests.tools.dashboard.wide_job import reports, runs, wide_facts
from tests.tools.observation.job_records import SINK, SOURCE, attempt

pytestmark = pytest.mark.browser
TRACEBACK = """Traceback (most recent call last):
  File "/home/me/job.py", line 7, in f
    return 1 / x
ZeroDivisionError: division by zero"""


def running(driver, **more):
    job = driver.job(**more).status("RUNNING").registers().runs()
    for vertex in (SOURCE, SINK):
        for subtask in range(2):
            busy = 990 if vertex == SINK else 100
            job.has(
                attempt(vertex, subtask),
                records_in=5,
                records_out=5,
                busy_ms_per_s=busy,
                idle_ms_per_s=1000 - busy,
                backpressured_ms_per_s=0 if vertex == SINK else 900,
            )
    return job


def test_a_job_that_waits_for_slots_says_so(driver, look):
    job = driver.job().status("RUNNING").moves(attempt(), "SCHEDULED")
    job.tell(SlotsMissing(4, 0, "the cluster is full"))
    tab = look().at(driver, job.path)
    tab.shows("The job waits for slots", ".verdict").shows("the cluster is full", ".verdict")
    tab.shows("n/a", ".graph-node")


def test_a_job_that_runs_shows_its_vertices_and_who_limits_it(driver, look):
    tab = look().at(driver, running(driver).path)
    tab.shows("RUNNING", ".badge").shows("up ")
    tab.shows("limits the job", ".graph-node.culprit").shows("Reduce -> Sink: <out>", ".culprit")
    tab.shows("99 %", ".culprit").shows("HASH", ".graph-edge")
    source = tab.page.locator(".graph-node", has_text="Source: Numbers -> Map")
    assert "blocked" in source.get_attribute("class")
    assert tab.violations() == []
    tab.page.locator(".verdict").get_by_role("link", name=", subtask ").click()
    tab.page.wait_for_url(re.compile(rf"/vertices/{SINK}\?subtask=\d$"))
    tab.shows("Subtask ", "#subtask")


def test_a_job_that_has_finished_has_totals_and_no_failed_checkpoint(driver, look):
    """The end of a task gives up the checkpoint that is under way: nothing is wrong."""
    job = running(driver).triggers(1)
    job.ends(1, location=None, reason=Reason.TASK_CLOSING, text="task Source[0] is FINISHED")
    for vertex in (SOURCE, SINK):
        for subtask in range(2):
            job.has(attempt(vertex, subtask), records_in=600_000, records_out=700_000)
            job.moves(attempt(vertex, subtask), "FINISHED")
    job.status("FINISHED")
    tab = look().at(driver, job.path).shows("FINISHED", ".badge")
    tab.shows("1.2 M \u2192 1.4 M", ".graph-node").shows("1\u202f400\u202f000", "td")
    assert tab.page.get_by_text("Worst subtasks").count() == 0
    assert tab.page.locator(".checkpoint.given_up").count() == 1
    assert tab.page.locator(".checkpoint.failed").count() == 0
    tab.at(driver, f"{job.path}/checkpoints?pin=1").shows("The job needed it no more")
    tab.shows("Given up", "dt").shows("GIVEN_UP", ".badge")
    assert tab.page.locator("[role=alert]").count() == 0
    assert tab.violations() == []


def test_a_driver_that_is_gone_is_not_said_to_be_healthy(driver, look):
    job = driver.job().status("RUNNING").registers().runs()
    for vertex in (SOURCE, SINK):
        for subtask in range(2):
            job.has(attempt(vertex, subtask), busy_ms_per_s=300, idle_ms_per_s=700)
    tab = look().at(driver, job.path).shows("The job is healthy", ".verdict")
    tab.allowed = LOST
    driver.stop()
    tab.shows("Nobody knows how the job does now.", ".verdict.unknown")
    tab.shows("when the driver last answered, at ", "main")
    assert tab.page.get_by_role("button", name="Cancel").count() == 0
    driver.start()
    tab.shows("\u2713", ".verdict").shows("Cancel", "button")


def test_a_job_that_has_failed_says_why_in_one_sentence(driver, look):
    job = running(driver)
    failure = FailureInfo("ZeroDivisionError", TRACEBACK)
    seen = FailureSeen(failure, job.now, "Map (1/2)", attempt())
    job.tell(FailuresSeen(((seen, ()),))).status("FAILING").status("FAILED")
    tab = look().at(driver, job.path).shows("FAILED", ".badge")
    tab.shows("The job has ended: FAILED after a failure of subtask 0 of", ".verdict")
    tab.shows("ZeroDivisionError: division by zero", ".verdict")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1400, 3840])
def test_the_first_screen_fits_any_window(driver, look, scheme, width):
    tab = look(color_scheme=scheme, viewport={"width": width, "height": 900})
    tab.at(driver, running(driver).path).shows("limits the job", ".graph-node")
    assert not tab.is_wider_than_its_window()
    assert tab.violations() == []


def test_a_vertex_is_reached_by_the_keyboard_and_has_an_address(driver, look):
    tab = look().at(driver, running(driver).path).shows("limits the job", ".graph-node")
    node = tab.page.locator(".graph-node.culprit")
    node.focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(re.compile(rf"/vertices/{SINK}$"))
    tab.page.go_back()
    tab.shows("limits the job", ".graph-node")


def test_a_failure_shows_its_line_and_what_follows(driver, look):
    job = running(driver)
    failure = FailureInfo("ZeroDivisionError", TRACEBACK)
    seen = FailureSeen(failure, job.now, "Map (1/2)", attempt(), number=1, restart=1, delay_ms=1000)
    job.tell(FailuresSeen(((seen, ()),))).status("RESTARTING")
    tab = look().at(driver, job.path).shows("RESTARTING", ".badge")
    tab.shows("ZeroDivisionError: division by zero", ".failure")


def test_a_job_that_has_ended_stays_and_can_no_longer_be_cancelled(driver, look):
    job = running(driver)
    tab = look().at(driver, job.path).shows("Cancel", "button")
    job.status("CANCELLING").status("CANCELED")
    tab.shows("ended at ").shows("CANCELED", ".badge")
    tab.page.get_by_role("button", name="Cancel").wait_for(state="detached")
    assert tab.page.locator(".graph-node").count() == 2


def test_a_job_that_is_forgotten_stays_on_the_page(driver, look):
    job = running(driver)
    tab = look().at(driver, job.path).shows("limits the job", ".graph-node")
    tab.allowed = ["status of 404"]
    driver.job_registry.forget(job.facts.job_id)
    tab.shows("The driver does not know this job any longer")
    tab.shows("Reduce -> Sink: <out>", ".graph-node")


def test_a_batch_job_shows_its_stages(driver, look):
    job = driver.job(job_type=JobType.BATCH).status("RUNNING").runs()
    tab = look().at(driver, job.path).shows("Stages of Spark", "section")
    tab.page.get_by_role("row").filter(has_text="Source: Numbers \u2192 Map").first.wait_for()
    assert tab.page.get_by_role("button", name="Cancel").count() == 1
    assert tab.page.get_by_role("button", name="savepoint").count() == 0


def test_a_job_without_checkpoints_and_without_failures_says_so(driver, look):
    job = running(driver, checkpoints=None)
    tab = look().at(driver, job.path).shows("Nothing has failed.")
    tab.shows("This job takes no checkpoints: execution.checkpointing.interval is not set.")


def test_a_graph_that_is_too_large_is_folded_and_opened_by_rank(driver, look):
    job = runs(driver.job(wide_facts(320, 640)))
    reports(reports(job, 1), 2)
    tab = look().at(driver, job.path)
    tab.shows("20 vertices, sources", ".graph-node").shows("20 vertices, 15 behind the sources")
    assert tab.page.locator(".graph-node").count() == 16
    tab.page.locator(".graph-node", has_text="20 vertices, 3 behind the sources").click()
    tab.shows("vertex 60", ".graph-node")
    assert "fold=3" in tab.page.url
    assert tab.page.locator(".graph-node").count() == 15 + 20
    tab.page.get_by_role("link", name="Fold all").click()
    tab.shows("20 vertices, 3 behind the sources")


def test_ten_thousand_subtasks_are_shown_on_one_screen(driver, look):
    job = runs(driver.job(wide_facts(300, 10_000)))
    reports(reports(job, 1), 2)
    tab = look().at(driver, job.path).shows("vertex 299", ".graph-node")
    tab.page.locator(".graph-node").nth(299).wait_for()
    assert tab.page.locator(".graph-node").count() == 300


class Control:
    """Takes what a page asks of a job."""

    def __init__(self, job) -> None:
        self.job_id = job.facts.job_id
        self.asked = []

    def cancel(self):
        self.asked.append("cancel")


def test_cancel_asks_first_says_what_it_costs_and_then_cancels(driver, look):
    job = running(driver)
    control = Control(job)
    driver.job_registry.started(control)
    tab = look().at(driver, job.path)
    tab.page.get_by_role("button", name="Cancel").click()
    tab.shows("without a savepoint", "dialog")
    assert tab.violations() == []
    tab.page.get_by_role("button", name="Leave it").click()
    tab.page.locator("dialog").wait_for(state="detached")
    assert control.asked == []
    tab.page.get_by_role("button", name="Cancel").click()
    tab.page.locator("dialog").get_by_role("button", name="Cancel").click()
    tab.shows("The job is being cancelled.", "dialog")
    assert control.asked == ["cancel"]


def test_what_the_driver_refuses_is_told_in_the_dialog(driver, look):
    job = running(driver)
    tab = look().at(driver, job.path)
    tab.allowed = ["status of 4", "status of 5"]
    tab.page.get_by_role("button", name="Savepoint", exact=True).click()
    tab.page.locator("dialog").get_by_role("button", name="Savepoint").click()
    tab.page.locator("dialog .bad-text").wait_for()


def test_a_driver_that_forbids_cancels_offers_none(start_driver, look):
    driver = start_driver(**{"web.cancel.enable": "false"})
    tab = look().at(driver, running(driver).path).shows("Stop with savepoint", "button")
    assert tab.page.get_by_role("button", name="Cancel").count() == 0


def test_the_switches_of_a_demonstration_are_turned_on_the_page(start_driver, look, tmp_path):
    (tmp_path / "slow.text").write_text("Makes it slow.", "utf-8")
    driver = start_driver(**{"penstock.web.switches": str(tmp_path)})
    tab = look().at(driver).shows("Makes it slow.")
    switch = tab.page.get_by_role("switch")
    with tab.page.expect_response("**/switches/slow"):
        switch.check()
    assert (tmp_path / "slow.on").exists()
    with tab.page.expect_response("**/switches/slow"):
        switch.uncheck()
    assert not (tmp_path / "slow.on").exists()
    assert tab.violations() == []
