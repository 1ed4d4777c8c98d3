"""A page that is open for an hour, at speed: the driver's clock and the page's run as fast as both can follow."""

import datetime as dt

import pytest

from penstock.ops.registry import job_registry
from penstock.ops.rest import live
from tests.tools.dashboard import told_driver, wide_job
from tests.tools.dashboard.wide_job import reports, runs, wide_facts

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.long]
MB = 1_000_000
BEGAN_MS = 1_800_000_000_000
MINUTE_MS = 60_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = BEGAN_MS

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock(monkeypatch):
    """Set before the driver begins."""
    clock = Clock()
    for module in (job_registry, live, told_driver, wide_job):
        monkeypatch.setattr(module, "wall_ms", clock)
    return clock


def used(tab):
    """(bytes of JavaScript, nodes of the document) after a collection."""
    tools = tab.context.new_cdp_session(tab.page)
    tools.send("Performance.enable")
    tools.send("HeapProfiler.collectGarbage")
    told = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
    return told["JSHeapUsedSize"], told["Nodes"]


@pytest.mark.parametrize("page", ["", pytest.param("/metrics", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("vertices", "subtasks", "step_ms"),
    [(30, 300, 10_000), pytest.param(300, 10_000, 10_000, marks=pytest.mark.long)],
)
def test_an_hour_leaves_a_page_small(clock, driver, look, page, vertices, subtasks, step_ms):
    job = runs(driver.job(wide_facts(vertices, subtasks)))
    tab = look()
    tab.page.clock.install(time=dt.datetime.fromtimestamp(BEGAN_MS / 1000, dt.UTC))
    tab.at(driver, job.path + page).shows("up ", "main")
    turns, sizes = 60 * MINUTE_MS // step_ms, []
    for turn in range(1, turns + 1):
        clock.now_ms += step_ms
        job.now = clock.now_ms
        reports(job, turn).is_seen()
        driver.wake()
        tab.page.clock.run_for(step_ms)
        if turn * step_ms in {20 * MINUTE_MS, 60 * MINUTE_MS}:
            minutes = turn * step_ms // MINUTE_MS
            tab.shows(f"up {minutes} m" if minutes < 60 else "up 1 h", "main")
            sizes.append(used(tab))
    (_, nodes_before), (heap, nodes) = sizes
    assert heap < 150 * MB
    assert nodes < nodes_before * 1.5 + 2000
