"""The watermarks page: all vertices at once, and who holds the watermark."""

import pytest

from penstock.engine.hosting.os.clock import wall_ms
from tests.dashboard.test_job_pages import a_minute_ago
from tests.tools.observation.job_records import SINK, SOURCE, attempt

pytestmark = pytest.mark.browser
NONE = -(2**63)


def told(driver, **watermarks):
    """`watermarks`: how far behind the clock the subtasks are, in ms; None: without one."""
    job = driver.job(a_minute_ago()).status("RUNNING").runs()
    now_ms = wall_ms()
    for vertex_id, name in ((SOURCE, "source"), (SINK, "sink")):
        for subtask, behind in enumerate(watermarks[name]):
            watermark_ms = NONE if behind is None else now_ms - behind
            job.has(attempt(vertex_id, subtask), watermark_ms=watermark_ms)
    return job


def cells(tab, vertex):
    row = tab.page.get_by_role("row").filter(has_text=vertex)
    row.locator("td").first.wait_for()
    titles = tab.page.locator("thead th").all_inner_texts()[1:]
    return dict(zip(titles, row.locator("td").all_inner_texts(), strict=True))


def test_lowest_highest_and_what_lies_between(driver, look):
    job = told(driver, source=(3_600_000, 1000), sink=(3_600_000, 3_600_000))
    tab = look().at(driver, f"{job.path}/watermarks")
    source = cells(tab, "Source: Numbers -> Map source")
    assert source["Lag"].startswith("1 h 00 m")
    assert source["Apart"] == "59 m 59 s"
    assert source["Lowest"].endswith("subtask 0")
    assert source["Highest"].endswith("subtask 1")
    assert source["Idle channels"] == "n/a"
    sink = cells(tab, "Reduce")
    assert sink["Held by"] == "subtask 0 of Source: Numbers -> Map"
    assert sink["Idle channels"] == "0 of 2"


def test_a_vertex_does_not_wait_for_idle_channels(driver, look):
    job = told(driver, source=(3_600_000, 1000), sink=(1000, 1000))
    sink = cells(look().at(driver, f"{job.path}/watermarks"), "Reduce")
    assert sink["Idle channels"] == "1 of 2"
    assert sink["Held by"] == "subtask 1 of Source: Numbers -> Map"


def test_a_subtask_without_a_watermark_holds_the_others(driver, look):
    job = told(driver, source=(1000, None), sink=(None, None))
    sink = cells(look().at(driver, f"{job.path}/watermarks"), "Reduce")
    assert sink["Lag"] == "n/a"
    assert sink["Held by"] == "subtask 1 of Source: Numbers -> Map"
    assert sink["Subtasks without"] == "2 of 2"


def test_a_job_without_event_time_says_so(driver, look):
    job = told(driver, source=(None, None), sink=(None, None))
    tab = look().at(driver, f"{job.path}/watermarks")
    tab.shows("No subtask of this job has a watermark: none of its subtasks has a watermark yet")


def test_the_holder_of_the_whole_job_is_named_above(driver, look):
    job = told(driver, source=(3_600_000, 1000), sink=(3_600_000, 3_600_000))
    tab = look().at(driver, f"{job.path}/watermarks")
    tab.shows("subtask 0 of Source: Numbers -> Map", "section.card").shows("behind the clock")
