"""The pages of jobs that have ended, from their archives: `penstock history`."""

import json
import threading

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.messages import FailureInfo
from penstock.ops.history.library import write_archive
from penstock.ops.history.server import HistoryServer
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.views.archive import archive_of
from penstock.ops.jobs.views.cluster import environment
from tests.tools.observation.job_records import JOB, PLACE, SINK, SOURCE, ToldJob, attempt

pytestmark = pytest.mark.browser
VERTEX = f"#/jobs/{JOB}/vertices/{SINK}"


@pytest.fixture
def archives(tmp_path):
    """The address of a history server over a folder, and that folder."""
    server = HistoryServer([str(tmp_path)], Settings({"historyserver.web.port": "0"}))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join()


def archive(server, folder):
    """A job of two vertices that has failed: subtask 1 of the second one has run twice."""
    told = ToldJob().registers().status("RUNNING").runs()
    told.triggers(1, after_ms=5)
    for vertex_id in (SOURCE, SINK):
        for subtask in (0, 1):
            told.acknowledges(1, attempt(vertex_id, subtask), 5)
            told.has(attempt(vertex_id, subtask), records_in=1000 * (subtask + 1), records_out=7)
    told.ends(1, after_ms=5)
    failure = FailureSeen(
        FailureInfo("ValueError", "ValueError: no price"), told.now, "Reduce (2/2)",
        attempt(SINK, 1), PLACE,
    )  # fmt: skip
    told.moves(attempt(SINK, 1), "FAILED").tell(FailuresSeen(((failure, ()),)))
    told.moves(attempt(SINK, 1, 1), "SCHEDULED", "DEPLOYING").deployed(attempt(SINK, 1, 1))
    told.moves(attempt(SINK, 1, 1), "INITIALIZING", "RUNNING", "FAILED", after_ms=100)
    told.status("FAILING", 10).status("FAILED", 10, FailureInfo("ValueError", "ValueError"))
    write_archive(str(folder), JOB, archive_of(told.now_it_is(), environment()))
    server.library.refresh()


def test_an_empty_folder_says_how_archives_come(archives, look):
    tab = look().at(archives).shows("There is no archive yet.").shows("Jobs that have ended", "h1")
    tab.shows("archive of jobs that have ended", ".clock")
    assert tab.violations() == []


def test_all_jobs_and_the_first_screen_of_one(archives, look, tmp_path):
    archive(archives, tmp_path)
    tab = look().at(archives).shows("1 job ended").shows("FAILED", "td")
    assert tab.page.locator(".slots").count() == 0
    tab.page.get_by_role("link", name="job", exact=True).click()
    tab.shows("ended at", "main").shows("Reduce", "main")
    totals = tab.page.get_by_role("region", name="What the vertices have done").locator("td")
    totals.filter(has_text="3\u202f000").first.wait_for()  # 1,000 and 2,000 of two subtasks.
    assert tab.page.get_by_role("button", name="Cancel").count() == 0


def test_the_subtasks_of_a_vertex_with_all_attempts(archives, look, tmp_path):
    archive(archives, tmp_path)
    tab = look().at(archives, f"{VERTEX}?sort=attempts&order=desc").shows("Subtasks", "h2")
    rows = tab.page.locator("table:not(.spread) tbody tr")
    rows.first.wait_for()
    assert [one.locator("th").inner_text() for one in rows.all()] == ["1", "0"]
    assert tab.page.get_by_role("button", name="Busy").count() == 0
    rows.first.get_by_role("link", name="1", exact=True).click()
    attempts = tab.page.locator("#subtask tbody tr")
    attempts.nth(1).wait_for()
    assert [one.inner_text().split()[0] for one in attempts.all()] == ["1", "0"]
    assert tab.violations() == []


def test_skew_is_kept_and_what_was_of_a_moment_says_that_it_is_not(archives, look, tmp_path):
    archive(archives, tmp_path)
    tab = look().at(archives, f"{VERTEX}/skew").shows("Records by subtask")
    for page, text in (
        ("lanes", "An archive has no lanes"),
        ("backpressure", "An archive has no back pressure"),
        ("flamegraph", "An archive has no flame graph"),
    ):
        tab.at(archives, f"{VERTEX}/{page}").shows(text)
    for page in ("taskmanagers", "taskmanagers/tm-1", "driver", "driver/log", "driver/threads"):
        tab.at(archives, f"#/{page}").shows("Their processes have ended, too")


def test_an_archive_that_cannot_be_read_is_a_line_and_the_others_are_shown(
    archives, look, tmp_path
):
    damaged = "d" * 32
    deep = json.dumps({"archive": [{"path": "/jobs/overview", "json": "[" * 100_000}]})
    (tmp_path / damaged).write_text(deep)
    archive(archives, tmp_path)
    tab = look().at(archives).shows("1 job ended").shows("1 archive cannot be read", "section")
    tab.shows(f"{tmp_path}/{damaged}: its /jobs/overview does not name one of them", ".bad-text")
    assert tab.violations() == []


def test_a_job_that_no_archive_has(archives, look):
    tab = look()
    tab.allowed = ["404"]
    tab.at(archives, f"#/jobs/{'f' * 32}").shows(f"Job {'f' * 32} not found", "[role=alert]")
