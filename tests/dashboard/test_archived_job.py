"""The pages of a job that only an archive knows."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from penstock.engine.model.config import Settings
from penstock.ops.history.server import HistoryServer
from penstock.ops.jobs.views.archive import archive_of
from penstock.ops.metrics.history_rings import FINE
from penstock.ops.rest.pieces import pieces_of_archive
from tests.dashboard.test_job_pages import VERTEX, busy, running
from tests.tools.dashboard.past import remember
from tests.tools.observation.job_records import SOURCE, attempt

pytestmark = pytest.mark.browser
PAGES = {
    "": "Totals",
    "/rescales": "The job has not been rescaled.",
    "/timeline": "States over time",
    "/checkpoints": "Checkpoint 1, the newest one",
    "/exceptions": "Nothing has failed.",
    "/metrics": "Records per second",
    "/watermarks": "An archive has no watermarks",
    "/options": "options are set",
    VERTEX: "Records per second",
}
"""Each page, and what it says. One that asks for what the archive has not fails its test: see `Looking`."""


def archived(driver, folder):
    """The path of a job, whose archive lies in a folder."""
    job = running(driver).triggers(1).acknowledges(1, attempt(), 5).ends(1)
    remember(driver, job, busy, seconds=60)
    job.status("CANCELLING").status("CANCELED")
    found = driver.job_registry.job(job.facts.job_id)

    def figures(job, vertex, resolution):
        with driver.job_registry.histories() as histories:
            rows = histories.of(job.job_id).vertices[vertex.facts.vertex_id].of(FINE)
            return list(rows.rows(job.ended_ms))

    archive = pieces_of_archive(archive_of(found, {}, figures))
    (folder / job.facts.job_id).write_bytes(b"".join(archive))
    return job.path


@pytest.fixture
def server(tmp_path):
    begun = HistoryServer([str(tmp_path)], Settings({"historyserver.web.port": "0"}))
    thread = threading.Thread(target=begun.run)
    thread.start()
    with contextlib.ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(begun.stop)
        yield SimpleNamespace(address=begun.address)


@pytest.fixture
def path(driver, tmp_path):
    return archived(driver, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_what_the_archive_has_and_what_it_has_not(path, server, look, page):
    tab = look().at(server, path + page).shows("CANCELED", ".badge").shows(PAGES[page])
    if "metrics" in page:
        tab.shows("/s", ".legend")
        assert tab.page.get_by_text("6 hours, each 10 s").count() == 0
    assert tab.violations() == []


def test_attempts_over_time_are_not_in_an_archive(path, server, look):
    tab = look().at(server, f"{path}/timeline?vertex={SOURCE}")
    tab.shows("An archive has no states of attempts over time.")
