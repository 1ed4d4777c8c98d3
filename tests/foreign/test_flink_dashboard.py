"""Flink's own dashboard, unchanged, in a headless Chromium: every page of a job on Spark, without a failed request or an error."""

import http.server
import json
import mimetypes
import threading
import urllib.error
import urllib.request
import zipfile

import pytest
from playwright.sync_api import Error as BrowserError

from tests.tools.dashboard.browser import Looking, chromium
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.foreign, pytest.mark.spark]


@pytest.fixture(scope="session")
def web(flink, tmp_path_factory):
    """The dashboard's files."""
    folder = tmp_path_factory.mktemp("web")
    (jar,) = (flink / "lib").glob("flink-dist-*.jar")
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("web/")])
    return folder / "web"


@pytest.fixture
def dashboard(web, program):
    """Serves the files and passes everything else to the REST server, as Flink's server does. `failed`: requests that were refused."""
    failed = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path = self.path.partition("?")[0]
            file = web / ("index.html" if path == "/" else path.lstrip("/"))
            if file.is_file():
                kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
                self.answer(200, kind, file.read_bytes())
                return
            try:
                with urllib.request.urlopen(program.address + self.path, timeout=60) as told:
                    self.answer(told.status, told.headers["Content-Type"], told.read())
            except urllib.error.HTTPError as error:
                with error:
                    failed.append((error.code, self.path))
                    self.answer(error.code, error.headers["Content-Type"], error.read())

        def answer(self, status, kind, body):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", failed
    server.shutdown()
    server.server_close()
    thread.join()


PAGES = {
    "overview": "RUNNING",
    "job/running": "endless",
    "application/running": "endless",
    "job/running/{job}/overview": "HASH",
    "job/running/{job}/exceptions": "Root Exception",
    "job/running/{job}/timeline": "Vertex TimeLine",  # its bars are drawn, not text
    "job/running/{job}/checkpoints": "Checkpoint Counts",
    "job/running/{job}/configuration": "Execution Configuration",
    "job/running/{job}/overview/{vertex}/detail": "Numbers",
    "job/running/{job}/overview/{vertex}/subtasks": "RUNNING",
    "job/running/{job}/overview/{vertex}/taskmanagers": "RUNNING",
    "job/running/{job}/overview/{vertex}/watermarks": "SubTask",
    "job/running/{job}/overview/{vertex}/accumulators": "Accumulators",
    "job/running/{job}/overview/{vertex}/backpressure": "Backpressure Status",
    "job/running/{job}/overview/{vertex}/metrics": "Metrics",
    "job/running/{job}/overview/{vertex}/flamegraph": "On-CPU",
    "task-manager": "{tm}",
    "task-manager/{tm}/metrics": "Memory",
    "task-manager/{tm}/logs": "Logs",
    "task-manager/{tm}/stdout": "Stdout",
    "task-manager/{tm}/log-list": "Log List",
    "task-manager/{tm}/thread-dump": "Thread Dump",
    "job-manager/metrics": "Metrics",
    "job-manager/config": "rest.port",
    "job-manager/logs": "Logs",
    "job-manager/log": "Log List",
    "job-manager/thread-dump": "Thread Dump",
}
"""Each page, and a text that it shows when it has its data."""


def test_every_page_shows_its_data(dashboard, program):
    address, failed = dashboard
    details = program.get(f"/jobs/{program.job}")
    known = {
        "job": program.job,
        "vertex": details["vertices"][0]["id"],
        "tm": program.get("/taskmanagers")["taskmanagers"][0]["id"],
    }
    with chromium() as browser:
        tab = Looking(browser, viewport={"width": 1600, "height": 1200})
        for page, text in PAGES.items():
            shows(tab, f"{address}/#/{page.format(**known)}", text.format(**known))
        tab.close()
    assert failed == []


RESCALES = {"Overview": "Rescale Counts", "History": "COMPLETED", "Summary": "Rescale Duration"}
"""The tabs of the page of rescales, and a text of each."""


def test_the_rescales_of_a_job_are_shown(dashboard, program):
    address, failed = dashboard
    path = f"{program.address}/jobs/{program.job}/resource-requirements"
    wanted = program.get(f"/jobs/{program.job}/resource-requirements")
    for bounds in wanted.values():
        bounds["parallelism"]["upperBound"] = 1
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(path, json.dumps(wanted).encode(), headers, method="PUT")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.status == 200

    def is_rescaled():
        kept = program.get(f"/jobs/{program.job}/rescales/history")
        return any(one["terminalState"] == "COMPLETED" for one in kept)

    wait_until(is_rescaled, "the job is not rescaled")
    with chromium() as browser:
        tab = Looking(browser, viewport={"width": 1600, "height": 1200})
        page = f"{address}/#/job/running/{program.job}/rescales"
        shows(tab, page, RESCALES["Overview"])
        for name, text in RESCALES.items():
            tab.page.get_by_role("tab", name=name).last.click()
            tab.page.wait_for_function("it => document.body.textContent.includes(it)", arg=text)
        tab.close()
    assert failed == []


def shows(tab, address, text):
    """Open a page anew, and wait until it shows its data."""
    tab.page.goto("about:blank")
    tab.page.goto(address)
    has = "text => document.documentElement.textContent.includes(text)"
    try:
        tab.page.wait_for_function(has, arg=text)
    except BrowserError as error:
        raise AssertionError(f"{address} lacks {text!r}:\n{tab.text()}") from error
