"""The checkpoints page: the strip, one checkpoint subtask by subtask, pinned or followed, counts, and how they are taken."""

import pytest

from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import CheckpointFailureReason
from tests.dashboard.test_job_pages import a_minute_ago
from tests.tools.observation.job_records import SINK, SOURCE, attempt

pytestmark = pytest.mark.browser
WHY = "Checkpoint expired before completing."
EXPIRED = {"location": None, "reason": CheckpointFailureReason.CHECKPOINT_EXPIRED, "text": WHY}


COUNT_QUESTIONS = """
() => {
    window.asked = 0;
    const count = () => { window.asked += document.querySelectorAll("main [aria-busy]").length; };
    new MutationObserver(count).observe(document.body, {childList: true, subtree: true});
}
"""


def acknowledged(job, checkpoint_id, but=()):
    for vertex_id in (SOURCE, SINK):
        for subtask in range(2):
            if (vertex_id, subtask) not in but:
                figures = {"start_delay_ms": 15, "alignment_ms": 5, "sync_ms": 3, "async_ms": 12}
                one = attempt(vertex_id, subtask)
                job.acknowledges(checkpoint_id, one, 10, written_bytes=2_000_000, **figures)
    return job


@pytest.fixture
def job(driver):
    """Checkpoint 1 is complete, savepoint 2 too, 3 has failed for want of a subtask."""
    told = driver.job(a_minute_ago()).status("RUNNING").runs()
    acknowledged(told.triggers(1), 1).ends(1)
    acknowledged(told.triggers(2, "SAVEPOINT"), 2).ends(2, "SAVEPOINT")
    late = acknowledged(told.triggers(3), 3, but=[(SINK, 1)])
    return late.ends(3, after_ms=960, **EXPIRED)


@pytest.fixture
def tab(driver, look, job):
    tab = look().at(driver, f"{job.path}/checkpoints").shows("Checkpoint 3, the newest one")
    tab.page.get_by_role("link", name="Checkpoint 3 failed").wait_for()
    return tab


def links(tab):
    return tab.page.get_by_role("list", name="Last checkpoints").get_by_role("link")


def test_the_strip_tells_each_state_in_words(tab):
    said = [one.get_attribute("aria-label") for one in links(tab).all()]
    assert [one.split(",")[:2] for one in said] == [
        ["Checkpoint 3 failed", " after 990 ms"],
        ["Savepoint 2 completed", " after 40 ms"],
        ["Checkpoint 1 completed", " after 40 ms"],
    ]
    assert WHY in said[0]
    assert "3 of 4 subtasks" in said[0]


def test_the_width_is_the_duration(tab):
    wide = [one.bounding_box()["width"] for one in links(tab).all()]
    assert wide[0] > wide[2]


def test_counts_and_figures(tab):
    facts = dict(
        zip(
            tab.page.locator("main > .facts dt").all_inner_texts(),
            tab.page.locator("main > .facts dd").all_inner_texts(),
            strict=True,
        )
    )
    assert (facts["Completed"], facts["Failed"], facts["Restored"]) == ("2", "1", "0")
    assert facts["Restored from"] == "nothing: the job began anew"
    table = tab.page.get_by_role("region", name="Figures of completed checkpoints")
    duration = table.locator("tbody tr").first.inner_text().split("\t")
    assert duration == ["Duration", *["40 ms"] * 8]


def test_a_missing_subtask_stands_first_and_the_reason_above(tab):
    tab.shows(WHY, "[role=alert]")
    first = tab.page.locator("tbody tr").first.inner_text()
    assert first.startswith("Reduce -> Sink: <out> 1")
    assert "missing for 990 ms" in first
    assert "n/a" in first


def test_a_checkpoint_is_pinned_by_its_address_while_others_come(driver, tab, job):
    links(tab).nth(2).click()
    tab.shows("Checkpoint 1, pinned")
    assert "pin=1" in tab.page.url
    bars = tab.page.locator(".gantt").first.get_attribute("aria-label")
    assert bars == "start delay 15 ms, alignment 5 ms, sync 3 ms, async 12 ms"
    tab.page.reload()
    tab.shows("Checkpoint 1, pinned")
    acknowledged(job.triggers(4), 4).ends(4)
    tab.page.get_by_role("link", name="Checkpoint 4 completed").wait_for()
    tab.shows("Checkpoint 1, pinned")
    tab.page.get_by_role("link", name="Follow the newest one").click()
    tab.shows("Checkpoint 4, the newest one")


def test_a_restored_checkpoint_says_so(driver, look, job):
    job.tell(CheckpointRestored(1, "/chk-1/_metadata"))
    tab = look().at(driver, f"{job.path}/checkpoints?pin=1").shows("the job began with it last")
    tab.shows("checkpoint 1, ", ".facts")
    assert "the job was restored from it" in links(tab).nth(2).get_attribute("aria-label")


def test_a_checkpoint_that_is_forgotten_says_so(driver, look, job):
    tab = look().at(driver, f"{job.path}/checkpoints?pin=99").shows("Last completed")
    tab.shows("Nothing more is known of it", "section")
    tab.page.get_by_role("link", name="Follow the newest one").click()
    tab.shows("Checkpoint 3, the newest one")


def test_only_the_last_sixty_are_shown_and_failed_ones_stay(driver, look, job):
    for number in range(4, 80):
        acknowledged(job.triggers(number), number).ends(number)
    tab = look().at(driver, f"{job.path}/checkpoints").shows("Shown: 61 of 79 checkpoints")
    assert links(tab).count() == 61
    assert "Checkpoint 3 failed" in links(tab).last.get_attribute("aria-label")


def test_how_checkpoints_are_taken(tab):
    card = tab.page.get_by_role("region", name="How checkpoints are taken")
    card.get_by_text("exactly once").wait_for()
    assert "Interval\n1.0 s" in card.inner_text()
    card.get_by_role("link", name="All options").click()
    tab.shows("Filter options")


def test_the_former_checkpoint_stays_until_the_newest_one_is_there(driver, tab, job):
    """Its figures would else give way to a question each time that one is followed."""
    tab.page.get_by_role("region", name="Subtasks of the checkpoint").wait_for()
    tab.page.evaluate(COUNT_QUESTIONS)
    acknowledged(job.triggers(4), 4).ends(4)
    tab.shows("Checkpoint 4, the newest one").shows("4 of 4 subtasks")
    assert tab.page.evaluate("window.asked") == 0


def test_bars_of_overlapping_phases_stay_in_their_column(driver, look, job):
    late = {"start_delay_ms": 20, "alignment_ms": 200, "sync_ms": 3, "async_ms": 200}
    job.triggers(4).acknowledges(4, attempt(SINK, 1), 230, **late)
    tab = look().at(driver, f"{job.path}/checkpoints?pin=4").shows("Checkpoint 4, pinned")
    gantt = tab.page.get_by_role("img", name="start delay 20 ms, alignment 200 ms")
    right = gantt.bounding_box()["x"] + gantt.bounding_box()["width"]
    for bar in gantt.locator(".phase").all():
        assert bar.bounding_box()["x"] + bar.bounding_box()["width"] <= right + 4
