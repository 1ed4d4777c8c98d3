"""What the pages of a job have in common: every state of a job, every width, light and dark, and a driver that is lost."""

import dataclasses

import pytest

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from tests.tools.dashboard.past import remember
from tests.tools.observation.job_records import SINK, SOURCE, attempt, facts

pytestmark = pytest.mark.browser
VERTEX = f"/vertices/{SINK}/metrics"
PAGES = {
    "/timeline": "States over time",
    "/checkpoints": "Last checkpoints",
    "/exceptions": "Nothing has failed.",
    "/metrics": "Records per second",
    "/watermarks": "Watermarks of the vertices",
    "/options": "options are set",
    VERTEX: "Records per second",
}
"""Each page, and what it says of a job that runs well."""
LOST = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE"]


def a_minute_ago(**more):
    return dataclasses.replace(facts(**more), submitted_ms=wall_ms() - 60_000)


def busy(vertex_id, subtask, second):
    rates = {"records_out_per_s": 100.0, "records_in_per_s": 100.0}
    return {"records_out": 100 * second, "records_in": 100 * second, "busy_ms_per_s": 900, **rates}


def running(driver, **more):
    """A job that has run for a minute."""
    job = driver.job(a_minute_ago(**more)).status("RUNNING").runs()
    remember(driver, job, busy, seconds=60)
    return job


@pytest.mark.parametrize("page", PAGES)
def test_a_job_that_is_not_known(driver, look, page):
    tab = look().at(driver, f"#/jobs/{'f' * 32}{page}")
    tab.shows(f"Job {'f' * 32} not found").shows("All jobs of this driver")


@pytest.mark.parametrize("page", PAGES)
def test_a_job_from_its_begin_to_its_end(driver, look, page):
    """It waits for slots, runs, restarts and ends. What was known of it stays, also for who comes later."""
    job = driver.job(a_minute_ago()).status("CREATED")
    tab = look().at(driver, job.path + page).shows("CREATED", ".badge")
    tab.shows("No checkpoint has begun yet." if page == "/checkpoints" else PAGES[page])
    if "metrics" in page:
        tab.shows("No figures in this range", ".plot")
    assert "NaN" not in tab.text("main")
    job.status("RUNNING").runs()
    remember(driver, job, busy, seconds=60)
    tab.shows("RUNNING", ".badge").shows(PAGES[page])
    if "metrics" in page:
        tab.shows("/s", ".legend")
    job.moves(attempt(SOURCE, 1), "FAILED").status("RESTARTING")
    tab.shows("RESTARTING", ".badge").shows(PAGES[page])
    job.status("CANCELLING").status("CANCELED")
    tab.shows("ended at").shows("CANCELED", ".badge").shows(PAGES[page])
    tab.page.reload()
    tab.shows("CANCELED", ".badge").shows(PAGES[page])
    if "metrics" in page:
        tab.shows("/s", ".legend")


@pytest.mark.parametrize("page", PAGES)
def test_a_job_of_batch(driver, look, page):
    job = driver.job(a_minute_ago(job_type=JobType.BATCH, checkpoints=None))
    job.status("RUNNING").runs()
    told = PAGES | {
        "/metrics": "report when they end",
        VERTEX: "report when they end",
        "/checkpoints": "Checkpointing is not enabled for this job",
    }
    look().at(driver, job.path + page).shows(told[page])


@pytest.mark.parametrize("page", PAGES)
def test_a_lost_driver_leaves_what_was_known(driver, look, page):
    tab = look().at(driver, running(driver).path + page).shows(PAGES[page])
    tab.allowed = LOST
    driver.stop()
    tab.shows("The driver has not answered since", "[role=alert]").shows(PAGES[page])
    driver.start()
    tab.page.locator("[role=alert]").wait_for(state="detached")


@pytest.mark.parametrize("size", [(320, 700), (1400, 1000), (3840, 2160)], ids=str)
@pytest.mark.parametrize("page", PAGES)
def test_no_violation_at_any_width(driver, look, page, size):
    job = running(driver).triggers(1)
    tab = look(
        color_scheme="dark" if size[0] == 1400 else "light",
        viewport={"width": size[0], "height": size[1]},
    )
    tab.at(driver, job.path + page).shows(PAGES[page])
    if page == "/checkpoints":
        tab.shows("Checkpoint 1, the newest one").shows("missing for", "table")
    assert tab.violations() == []
    assert not tab.is_wider_than_its_window()


def test_ten_thousand_subtasks(driver, look):
    job = driver.job(a_minute_ago(parallelism=5000)).status("RUNNING").runs(parallelism=5000)
    job.triggers(1)
    driver.job_registry.snapshot()
    tab = look()
    for page, told in PAGES.items():
        tab.at(driver, job.path + page).shows(told)
        assert tab.page.locator("main *").count() < 6000
    tab.at(driver, f"{job.path}/checkpoints")
    tab.shows("Shown: 200 of 10000 subtasks, those that are missing")
    tab.at(driver, f"{job.path}/timeline?vertex={SINK}").shows("Attempts 1 to 200 of 5\u202f000")
    tab.page.get_by_role("button", name="Next ones").click()
    tab.shows("Attempts 201 to 400 of 5\u202f000")


HOSTILE = "<img src=x onerror=\"document.title='run'\"> ${7*7} &amp; 'quoted'"
ONE_WORD = "parse_" + "x" * 194


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("page", ["", *PAGES])
def test_names_are_text_and_one_word_of_200_letters_is_broken(driver, look, page, width):
    known = a_minute_ago()
    named = tuple(
        dataclasses.replace(one, name=name)
        for one, name in zip(known.vertices, (ONE_WORD, HOSTILE), strict=True)
    )
    job = driver.job(dataclasses.replace(known, vertices=named, name=HOSTILE))
    job.status("RUNNING").registers().runs().triggers(1)
    for subtask in range(2):
        job.has(attempt(SINK, subtask), busy_ms_per_s=990, idle_ms_per_s=10)
        job.has(attempt(SOURCE, subtask), busy_ms_per_s=10, backpressured_ms_per_s=990)
    failure = FailureInfo(
        "ValueError", f"Traceback (most recent call last):\nValueError: {HOSTILE}"
    )
    seen = FailureSeen(failure, job.now, f"{ONE_WORD} (1/2)", attempt(), number=1, restart=1)
    job.tell(FailuresSeen(((seen, ()),))).is_seen()
    tab = look(viewport={"width": width, "height": 700}).at(driver, job.path + page)
    tab.shows(HOSTILE, "h1").shows("limits the job", ".verdict")
    told = PAGES | {"": "All 1 failure", "/exceptions": f"ValueError: {HOSTILE}"}
    tab.shows(told[page], "main")
    assert tab.page.title().endswith("\u00b7 Penstock")
    assert not tab.is_wider_than_its_window()


@pytest.mark.parametrize("page", ["", *PAGES])
def test_long_names_and_paths_do_not_make_a_page_wide(driver, look, page):
    long = " -> ".join(["Timestamps/Watermarks"] * 8)
    known = a_minute_ago()
    named = tuple(dataclasses.replace(one, name=long) for one in known.vertices)
    job = driver.job(dataclasses.replace(known, vertices=named)).status("RUNNING").runs()
    job.triggers(1).ends(1, location="/checkpoints/" + "a" * 200)
    remember(driver, job, busy, seconds=60)
    tab = look(viewport={"width": 320, "height": 700}).at(driver, job.path + page)
    tab.shows("RUNNING", ".badge").shows(PAGES.get(page, "Timestamps/Watermarks"))
    if page == "/checkpoints":
        tab.shows("a" * 200, ".facts")
    if page == "/metrics":
        tab.page.get_by_role("combobox", name="Of").wait_for()
    assert not tab.is_wider_than_its_window()
