"""python -m benchmarks.illnesses [--root DIR] [--only ILLNESS ...] [--tools TOOL ...]

Runs jobs that are ill in Penstock, in Flink (PyFlink's local cluster with Flink's own web interface) and in Dask, and takes pictures of
what their dashboards show in Chromium: first the page that one opens, then the pages that are needed to find the culprit. They lie in
DIR/pictures. Makes the environments of Flink and Dask on first use, under DIR.
"""

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from benchmarks.illnesses import streaming
from benchmarks.peers.environments import python_of, variables
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource, NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.dashboard.browser import Looking, chromium
from tests.tools.hosting.rest import SETTINGS, rest_server

_ROOT = Path("build") / "illnesses"
_HERE = Path(__file__).parent
WINDOW = {"width": 1400, "height": 900}
ILL_S = 45
"""How long a job is ill before its first picture."""
SETTLED_MS = 5_000
PATIENCE_S = 180
TOOLS = ("penstock", "flink", "dask")
OF_DASK = {"tasks": "/status", "workers": "/workers"}


class Studio:
    """Takes pictures of one tool's pages. `folder`: where they lie."""

    def __init__(self, browser: Any, folder: Path, tool: str) -> None:
        self._browser, self._folder, self._tool = browser, folder, tool

    def take(self, illness: str, address: str, pages: dict[str, str]) -> None:
        """`pages`: what follows the address, by the names of the pictures."""
        for number, (name, path) in enumerate(pages.items()):
            tab = Looking(self._browser, viewport=WINDOW)
            tab.page.goto(f"{address}{path}")
            tab.page.wait_for_timeout(SETTLED_MS)
            file = self._folder / f"{illness}-{self._tool}-{number}-{name}.png"
            tab.page.screenshot(path=file, full_page=self._tool == "penstock")
            tab.context.close()
            print(file)


def ours(studio: Studio, illness: str) -> None:
    """In threads of this process."""
    with tempfile.TemporaryDirectory() as folder, rest_server() as server:
        configuration = Configuration()
        checkpoints = {"execution.checkpointing.dir": folder}
        for key, value in {**SETTINGS, **streaming.SETTINGS, **checkpoints}.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2).use_executor(MiniCluster(2).executor())
        streaming.Program("penstock", _numbers, _quick_numbers).build(env, illness)
        job = env.execute_async(illness)
        try:
            time.sleep(ILL_S)
            studio.take(illness, server.address, {"job": f"/#/jobs/{job.get_job_id()}"})
        finally:
            job.cancel().result()


def _numbers(env: StreamExecutionEnvironment) -> Any:
    source = DataGeneratorSource(lambda number: number, None, float(streaming.PER_SECOND))
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def _quick_numbers(env: StreamExecutionEnvironment) -> Any:
    source = NumberSequenceSource(0, streaming.ENDLESS)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def flink(studio: Studio, illness: str, root: Path) -> None:
    """Its pages: the job's, then those of each vertex and of the job that may name the culprit."""
    with _running("flink", "streaming.py", illness, root) as address:
        job = _first(f"{address}/jobs/overview", "jobs")["jid"]
        time.sleep(ILL_S)
        at = f"/#/job/running/{job}"
        pages = {"job": f"{at}/overview"}
        for number, one in enumerate(_asked(f"{address}/jobs/{job}")["vertices"]):
            for tab in ("subtasks", "backpressure", "watermarks"):
                pages[f"vertex{number}-{tab}"] = f"{at}/overview/{one['id']}/{tab}"
        pages |= {one: f"{at}/{one}" for one in ("checkpoints", "exceptions")}
        studio.take(illness, address, pages)


def dask(studio: Studio, illness: str, root: Path) -> None:
    with _running("dask", "dask_tasks.py", illness, root) as address:
        time.sleep(ILL_S)
        studio.take(illness, address, OF_DASK)


@contextlib.contextmanager
def _running(environment: str, program: str, illness: str, root: Path) -> Generator[str]:
    """A program of another tool; gives the address of its dashboard when somebody answers there."""
    python = python_of(environment, root / "environments")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, str(_HERE / program), illness, "--port", str(port)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=variables(python), stdout=said, stderr=said)
        try:
            address = f"http://127.0.0.1:{port}"
            _answers(address, process)
            yield address
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _answers(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody answers. Raises RuntimeError: the program has ended, or takes too long."""
    last = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < last:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=10).close()
            return
        time.sleep(1)
    raise RuntimeError(f"nobody answers at {address}; exit code {process.poll()}")


def _first(address: str, name: str) -> Any:
    """Return the first element of a list that an answer has, as soon as there is one. Raises RuntimeError."""
    last = time.monotonic() + PATIENCE_S
    while time.monotonic() < last:
        with contextlib.suppress(urllib.error.HTTPError):
            found = _asked(address)[name]
            if found:
                return found[0]
        time.sleep(1)
    raise RuntimeError(f"{address} has no {name} after {PATIENCE_S} s")


def _asked(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


def main() -> int:
    """Returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=_ROOT, help="of environments and pictures")
    parser.add_argument("--only", nargs="+", default=streaming.ILLNESSES, metavar="ILLNESS")
    parser.add_argument("--tools", nargs="+", default=TOOLS, choices=TOOLS)
    arguments = parser.parse_args()
    root = arguments.root.absolute()
    pictures = root / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for tool in arguments.tools:
            for illness in arguments.only:
                studio = Studio(browser, pictures, tool)
                if tool == "penstock":
                    ours(studio, illness)
                elif tool == "flink":
                    flink(studio, illness, root)
                elif illness != "checkpoint-straggler":  # Dask has no checkpoints.
                    dask(studio, illness, root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
