"""The pages of a vertex: its subtasks, lanes, back pressure, skew."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.messages import FailureInfo, TaskIoReported
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from tests.tools.dashboard.past import remember
from tests.tools.dashboard.wide_job import runs as all_run
from tests.tools.observation.job_records import JOB, PLACE, SINK, SOURCE, attempt, facts, io_of

pytestmark = pytest.mark.browser
PAGE = f"#/jobs/{JOB}/vertices/{SINK}"
PAGES = ("", "/lanes", "/backpressure", "/flamegraph", "/skew")


def busy_job(driver, parallelism=4, **more):
    """Subtask n is busy n tenths of its time."""
    job = all_run(driver.job(facts(parallelism, **more)))
    for vertex_id in (SOURCE, SINK) if parallelism < 10 else ():
        for subtask in range(parallelism):
            job.deployed(attempt(vertex_id, subtask), f"slot-{subtask}")
    ios = []
    for subtask in range(parallelism):
        busy = 100 * (subtask % 10)
        told = io_of(busy_ms_per_s=busy, idle_ms_per_s=1000 - busy, records_in=1000 * (subtask + 1))
        ios.append((attempt(SINK, subtask), told))
    return job.tell(TaskIoReported(tuple(ios), 0))


def first_cells(tab):
    """The names of the rows of the table of subtasks."""
    return tab.page.locator("table").last.locator("tbody th").all_inner_texts()


def test_the_frame_names_the_vertex_its_neighbours_and_its_pages(driver, look):
    busy_job(driver)
    tab = look().at(driver, PAGE).shows("4 subtasks, max. parallelism 128")
    assert tab.page.locator("h2 .operator").all_inner_texts() == ["Reduce", "Sink: <out>"]
    assert tab.page.title() == "Subtasks \u00b7 Penstock"
    tabs = tab.page.get_by_role("navigation", name="Pages of the vertex")
    assert tabs.get_by_role("link").all_inner_texts() == [
        "Subtasks", "Lanes", "Back pressure", "Flame graph", "Skew", "Metrics",
    ]  # fmt: skip
    assert tabs.locator("[aria-current=page]").inner_text() == "Subtasks"
    tabs.get_by_role("link", name="Skew").click()
    tab.shows("Records by subtask")
    tab.page.get_by_role("link", name="Source: Numbers \u2192 Map").click()
    tab.page.wait_for_url(f"**/vertices/{SOURCE}/skew")
    tab.shows("is read by")


def test_a_long_chain_is_folded_until_one_opens_it(driver, look):
    known = facts()
    names = " -> ".join(f"step {number}" for number in range(9))
    sink = replace(known.vertices[1], name=names)
    driver.job(replace(known, vertices=(known.vertices[0], sink))).status("RUNNING").runs()
    tab = look().at(driver, PAGE).shows("6 more operators")
    operators = tab.page.locator("h2 .operator")
    assert operators.all_inner_texts() == ["step 0", "step 1", "step 8"]
    tab.page.get_by_role("button", name="6 more operators").click()
    tab.shows("step 5", "h2")
    assert operators.count() == 9


def test_the_server_sorts_subtasks_and_the_address_says_how(driver, look):
    busy_job(driver)
    tab = look().at(driver, PAGE).shows("30 %", "td")
    assert first_cells(tab) == ["0", "1", "2", "3"]
    tab.page.get_by_role("button", name="Busy").click()
    tab.page.wait_for_url("**sort=busy&order=desc")
    tab.shows("3", "table:not(.spread) tbody tr:first-child th")
    assert first_cells(tab) == ["3", "2", "1", "0"]
    tab.page.reload()
    tab.shows("3", "table:not(.spread) tbody tr:first-child th")
    assert tab.page.locator("th[aria-sort=descending]").inner_text().startswith("Busy")
    assert tab.violations() == []


def test_the_spread_of_each_figure_stands_above(driver, look):
    busy_job(driver)
    tab = look().at(driver, PAGE).shows("Median", ".spread")
    rows = {row.split("\t")[0]: row.split("\t")[1:] for row in tab.text(".spread").splitlines()}
    place = rows[""].index("Busy")
    assert [rows[name][place].strip() for name in ("Most", "Median", "Least")] == [
        "30 %",
        "15 %",
        "0 %",
    ]


def test_fifty_subtasks_stand_on_a_page_of_ten_thousand(driver, look):
    busy_job(driver, 10_000)
    tab = (
        look()
        .at(driver, f"{PAGE}?sort=records-in-total&order=desc")
        .shows("1\u201350 of 10\u202f000 subtasks")
    )
    assert first_cells(tab)[:2] == ["9999", "9998"]
    assert len(first_cells(tab)) == 50
    tab.page.get_by_role("button", name="Last page").click()
    tab.shows("9\u202f951\u201310\u202f000 of 10\u202f000 subtasks")
    tab.shows("49", "table:not(.spread) tbody tr:first-child th")
    assert "page=200" in tab.page.url


def test_only_subtasks_in_a_state(driver, look):
    job = busy_job(driver)
    job.moves(attempt(SINK, 2), "FINISHED")
    tab = look().at(driver, PAGE).shows("FINISHED", "td")
    tab.page.get_by_label("In state").select_option("FINISHED")
    tab.page.wait_for_url("**state=FINISHED")
    tab.page.locator("tbody tr", has_text="RUNNING").first.wait_for(state="detached")
    assert first_cells(tab) == ["2"]


def test_a_subtask_has_its_attempts_and_its_story_at_an_address_of_its_own(driver, look):
    job = busy_job(driver)
    failure = FailureSeen(
        FailureInfo("ValueError", "ValueError: no price"), job.now, "Reduce (2/4)",
        attempt(SINK, 1), PLACE,
    )  # fmt: skip
    job.moves(attempt(SINK, 1), "FAILED").tell(FailuresSeen(((failure, ()),)))
    job.moves(attempt(SINK, 1, 1), "SCHEDULED", "DEPLOYING").deployed(attempt(SINK, 1, 1))
    job.moves(attempt(SINK, 1, 1), "INITIALIZING", "RUNNING")
    tab = look().at(driver, PAGE).shows("30 %", "td")
    tab.page.locator("tbody th").get_by_role("link", name="1", exact=True).click()
    tab.page.wait_for_url("**subtask=1")
    rows = tab.page.locator("#subtask tbody tr")
    tab.shows("ValueError: no price", "#subtask")
    assert [one.inner_text().split()[0] for one in rows.all()] == ["1", "0"]
    tab.page.locator("#subtask summary").click()
    tab.shows("attempt 1 is RUNNING", ".story")
    assert tab.violations() == []
    tab.page.get_by_role("button", name="Close").click()
    tab.page.locator("#subtask").wait_for(state="detached")
    tab.page.go_back()
    tab.shows("ValueError: no price", "#subtask")


def test_before_the_first_report_figures_are_not_known_and_say_why(driver, look):
    driver.job().status("RUNNING").runs()
    tab = look().at(driver, PAGE).shows("n/a", "td")
    assert tab.page.locator("td [title*='two reports']").count() > 0
    tab.at(driver, f"{PAGE}/backpressure").shows("its back pressure is not known")
    tab.at(driver, f"{PAGE}/lanes").shows("No subtask has reported yet.")
    tab.at(driver, f"{PAGE}/skew").shows("Not known: no subtask has reported yet.")


@pytest.mark.parametrize("page", PAGES)
def test_an_unknown_vertex_and_an_unknown_job_say_so(driver, look, page):
    busy_job(driver)
    tab = look().at(driver, f"#/jobs/{JOB}/vertices/{'f' * 32}{page}")
    tab.shows("This job has no vertex", "[role=alert]")
    tab.at(driver, f"#/jobs/{'f' * 32}/vertices/{SINK}{page}").shows(f"Job {'f' * 32} not found")


@pytest.mark.parametrize("page", PAGES)
def test_a_job_that_has_ended_keeps_its_pages(driver, look, page):
    job = busy_job(driver)
    for vertex_id in (SOURCE, SINK):
        for subtask in range(4):
            job.moves(attempt(vertex_id, subtask), "CANCELING", "CANCELED")
    job.status("CANCELLING").status("CANCELED")
    tab = look().at(driver, PAGE + page).shows("CANCELED", ".vertex-head .badge")
    tab.page.locator("[aria-busy=true]").first.wait_for(state="detached")
    assert tab.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["", "/lanes", "/backpressure", "/skew"])
def test_no_violation_and_no_wide_page_on_a_phone(driver, look, page, scheme):
    busy_job(driver)
    tab = look(color_scheme=scheme, viewport={"width": 320, "height": 700})
    tab.at(driver, PAGE + page).shows("30 %" if page != "/skew" else "4\u202f000", "td")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()


def test_back_pressure_has_flinks_levels_and_the_worst_first(driver, look):
    job = driver.job(facts(3)).status("RUNNING").runs(parallelism=3)
    for subtask, blocked in enumerate((100, 510, 300)):
        job.has(attempt(SINK, subtask), backpressured_ms_per_s=blocked, busy_ms_per_s=1)
    tab = look().at(driver, f"{PAGE}/backpressure").shows("51 %", "td")
    rows = [one.inner_text().split("\t")[:2] for one in tab.page.locator("tbody tr").all()]
    assert rows == [["1", "HIGH"], ["2", "LOW"], ["0", "OK"]]
    tab.shows("HIGH", ".facts")
    assert tab.violations() == []


@pytest.mark.parametrize(
    ("before", "now", "word"), [(100, 600, "rising"), (600, 100, "falling"), (300, 320, "steady")]
)
def test_where_the_back_pressure_goes(driver, look, before, now, word):
    """The mean of the last minute against that of the minute three minutes before."""

    def figures(vertex_id, subtask, second):
        return {"backpressured_ms_per_s": before if second < 200 else now}

    job = job_with_past(driver, figures, seconds=300)
    job.has(attempt(SINK, 0), backpressured_ms_per_s=now)
    tab = look().at(driver, f"{PAGE}/backpressure").shows(word, ".facts")
    tab.shows("10 %", ".spark-box").shows("50 %", ".spark-box")
    assert tab.violations() == []


def job_with_past(driver, figures, seconds):
    """The driver has looked at the job each second. See `remember`."""
    known = facts()
    remember(driver, SimpleNamespace(facts=known, now=wall_ms()), figures, seconds)
    return driver.job(known).status("RUNNING").runs()


def test_a_lane_tells_its_numbers_to_the_pointer_and_to_the_keyboard(driver, look):
    busy = {0: 250, 1: 900}

    def figures(vertex_id, subtask, second):
        share = busy[subtask]
        return {"busy_ms_per_s": share, "backpressured_ms_per_s": 100, "idle_ms_per_s": 900 - share}

    job = job_with_past(driver, figures, seconds=60)
    for subtask in busy:
        job.has(attempt(SINK, subtask), **figures(SINK, subtask, 60))
    tab = look().at(driver, f"{PAGE}/lanes").shows("90 %", "td")
    box = tab.page.locator(".share-lanes").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 5)
    tab.shows("back-pressured 10 %", ".lane-told")
    tab.page.mouse.move(0, 0)
    tab.shows("Point at a lane", ".lane-told")
    tab.page.locator(".share-lanes").focus()
    for _ in range(10):
        tab.page.keyboard.press("ArrowLeft")
    tab.shows("Subtask 1", ".lane-told")
    tab.shows("busy 90 %, back-pressured 10 %, idle 0 %", ".lane-told")
    tab.page.keyboard.press("ArrowDown")
    tab.shows("busy 25 %, back-pressured 10 %, idle 65 %", ".lane-told")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**subtask=0&at=*")
    tab.page.reload()
    tab.shows("busy 25 %, back-pressured 10 %, idle 65 %", ".lane-told")
    assert tab.violations() == []


def test_of_many_subtasks_the_busiest_two_hundred_have_lanes(driver, look):
    busy_job(driver, 300)
    tab = look().at(driver, f"{PAGE}/lanes")
    tab.shows("Shown: 200 of 300 subtasks, those that are most busy now.")
    assert first_cells(tab)[0] == "9"


def test_a_skewed_subtask_is_marked_with_its_key_groups(driver, look):
    job = driver.job(facts(4)).status("RUNNING").runs(parallelism=4)
    for subtask, records in enumerate((1000, 1100, 90_000, 1200)):
        job.has(attempt(SINK, subtask), records_in=records)
    tab = look().at(driver, f"{PAGE}/skew").shows("90\u202f000", "td")
    first = tab.page.locator("tbody tr").first.inner_text()
    assert "\u26a0 81.8 \u00d7" in first
    assert "64 to 95" in first
    assert tab.page.locator("tbody tr", has_text="\u26a0").count() == 1
    tab.at(driver, f"#/jobs/{JOB}/vertices/{SOURCE}/skew").shows("its input is not sent by key")


def test_a_vertex_of_batch_is_a_stage_of_spark(driver, look):
    driver.job_registry.spark_ui = "http://localhost:4040"
    job = driver.job(facts(job_type=JobType.BATCH)).status("RUNNING")
    for subtask in (0, 1):
        job.moves(attempt(SOURCE, subtask), "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
    job.moves(attempt(SOURCE, 0), "FINISHED")
    tab = look().at(driver, f"#/jobs/{JOB}/vertices/{SOURCE}").shows("Stage of Spark")
    tab.shows("1 of 2, 1 run", ".facts").shows("2 tasks")
    link = tab.page.get_by_role("link", name="Stages in Spark")
    assert link.get_attribute("href") == "http://localhost:4040/stages/"
    tabs = tab.page.get_by_role("navigation", name="Pages of the vertex")
    assert tabs.get_by_role("link").all_inner_texts() == ["Tasks", "Metrics"]
    assert tab.page.get_by_role("button", name="Busy").count() == 0
    tab.at(driver, f"#/jobs/{JOB}/vertices/{SOURCE}/lanes").shows("This is a job of BATCH")
    assert tab.violations() == []
