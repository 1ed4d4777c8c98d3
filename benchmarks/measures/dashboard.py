"""How soon a page of the dashboard shows something useful, and how much memory its tab takes, in headless Chromium, without Spark."""

from typing import Any

from benchmarks.figures import Figure
from tests.tools.dashboard.browser import Looking, chromium
from tests.tools.dashboard.told_driver import ToldDriver
from tests.tools.dashboard.wide_job import reports, runs, wide_facts

VERTICES, SUBTASKS = 300, 10_000
SMALL_VERTICES, SMALL_SUBTASKS = 6, 24
MB = 1e6
AT_REST_MS = 3000
FIRST_NODE = """
addEventListener('DOMContentLoaded', () => new MutationObserver((_, watching) => {
    if (document.querySelector('.graph-node')) {
        watching.disconnect();
        requestAnimationFrame(() => setTimeout(() => {
            window.firstNode = performance.now();
            console.log("first node");
        }));
    }
}).observe(document, {subtree: true, childList: true}));
"""

ABOUT = """\
The first screen of a job whose events are told by hand, so that no job takes the processor, in a
browser with an empty cache that has done nothing for 3 s. *first paint*: of anything. *first
graph*: vertices are painted, with their figures; of a large graph those that one sees. *memory*:
of JavaScript, after a collection. Floor: the first paint of a file of the same server that is one
line of text. Driver and browser share the machine's cores."""


def measure(_events: int | None, runs_wanted: int) -> list[Figure]:
    small = [_looked(SMALL_VERTICES, SMALL_SUBTASKS) for _ in range(runs_wanted)]
    large = [_looked(VERTICES, SUBTASKS) for _ in range(runs_wanted)]

    def figure(name: str, ones: list[dict[str, Any]], key: str, unit: str, *floor: str) -> Figure:
        floors = [one[floor[0]] for one in ones] if floor else ()
        settings = {"vertices": ones[0]["vertices"], "subtasks": ones[0]["subtasks"]}
        return Figure(name, [one[key] for one in ones], unit, floors, settings)

    return [
        figure("first paint, a small job", small, "paint", "ms", "floor"),
        figure("first graph, a small job", small, "graph", "ms", "floor"),
        figure("first paint, a large job", large, "paint", "ms", "floor"),
        figure("first graph, a large job", large, "graph", "ms", "floor"),
        figure("memory of the tab, a large job", large, "heap", "MB"),
    ]


def _looked(vertices: int, subtasks: int) -> dict[str, Any]:
    with ToldDriver.running() as driver, chromium() as browser:
        job = runs(driver.job(wide_facts(vertices, subtasks)))
        reports(reports(job, 1), 2).is_seen()
        plain = Looking(browser)
        plain.page.goto(f"{driver.address}/dashboard/vendor/preact.LICENSE.txt")
        floor = _first_paint(plain)
        plain.page.wait_for_timeout(AT_REST_MS)  # Its own pages take the processor at first.
        tab = Looking(browser)
        tab.page.add_init_script(FIRST_NODE)
        # No test looks at the page meanwhile: that would take the time of its thread.
        with tab.page.expect_console_message(lambda said: said.text == "first node"):
            tab.at(driver, job.path)
        tab.shows(f"vertex {vertices - 1}", ".graph-node")
        tools = tab.context.new_cdp_session(tab.page)
        tools.send("Performance.enable")
        tools.send("HeapProfiler.collectGarbage")
        told = {
            one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]
        }
        return {
            "vertices": vertices,
            "subtasks": subtasks,
            "floor": floor,
            "paint": _first_paint(tab),
            "graph": tab.page.evaluate("window.firstNode"),
            "heap": told["JSHeapUsedSize"] / MB,
        }


def _first_paint(tab: Looking) -> float:
    paint = "performance.getEntriesByName('first-contentful-paint')"
    tab.page.wait_for_function(f"{paint}.length > 0")
    return tab.page.evaluate(f"{paint}[0].startTime")
