"""Take the pictures of the dashboard for the documentation: `python -m scripts.screenshots`. It needs Chromium.

The demonstration runs in this process, and each picture shows one of its illnesses.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from examples import demo
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.dashboard.browser import Looking, chromium
from tests.tools.hosting.rest import SETTINGS, rest_server

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
ILL: Final = {"slow-operator": "'price' limits the job", "failing-function": "has failed"}
"""Switches, and what the verdict says then."""
WIDTH, HEIGHT = 1360, 900
SETTLED_MS: Final = 20_000


def main() -> int:
    """Returns an exit code."""
    with chromium() as browser:
        for name, verdict in ILL.items():
            with tempfile.TemporaryDirectory() as folder:
                _take(browser, Path(folder), name, verdict)
    return 0


def _take(browser: object, folder: Path, name: str, verdict: str) -> None:
    demo.offer(folder)
    env = demo.environment(folder, SETTINGS)
    env.use_executor(MiniCluster(2).executor())
    demo.totals(env, folder)
    with rest_server(**{"penstock.web.switches": str(folder)}) as server:
        job = env.execute_async("orders to totals")
        try:
            tab = Looking(browser, viewport={"width": WIDTH, "height": HEIGHT})
            tab.at(server, f"#/jobs/{job.get_job_id()}").shows("RUNNING", ".badge")
            tab.page.wait_for_timeout(SETTLED_MS)
            tab.page.get_by_role("switch", name=name).check()
            tab.shows(verdict, ".verdict")
            tab.page.wait_for_timeout(SETTLED_MS)
            tab.page.screenshot(path=IMAGES / f"dashboard-{name}.png", full_page=True)
            tab.close()
        finally:
            job.cancel().result()


if __name__ == "__main__":
    sys.exit(main())
