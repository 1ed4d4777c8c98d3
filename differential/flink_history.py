"""`python -m differential.flink_history [--root DIR]`: Flink's own history server reads our archives, and ours reads Flink's.

Jobs of a MiniCluster and a job of true PyFlink are archived into one folder. Both history servers serve it, and every answer that an
archive has must come from both as it is archived. Makes PyFlink's environment on first use. Ends with 1 if something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import python_of, variables
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.config import Settings
from penstock.ops.history.library import is_id, read_archive
from penstock.ops.history.server import HistoryServer
from penstock.ops.operations import ARCHIVIST

LIMIT_S = 300
POLL_S = 0.2
TRIES = 5
SUMMARY = "application-summary"
THEIR_JOB = Path(__file__).with_name("flink_job.py")
FIND_FLINK = "import pathlib, pyflink; print(pathlib.Path(pyflink.__file__).parent)"
STATES = {"finishes": "FINISHED", "fails": "FAILED", "in stages": "FINISHED"}
"""Our jobs, and how they end."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m differential.flink_history")
    parser.add_argument(
        "--root", type=Path, default=Path("build") / "peers", help="of PyFlink's environment"
    )
    python = python_of("flink", parser.parse_args().root.resolve())
    with tempfile.TemporaryDirectory() as place:
        archives = Path(place) / "archives"
        archives.mkdir()
        run_ours(archives, Path(place) / "checkpoints")
        run_theirs(python, archives)
        expected = archived(archives)
        with flinks_server(python, archives, Path(place)) as theirs, our_server(archives) as ours:
            found = {"Flink's": problems(theirs, expected), "our": problems(ours, expected)}
    for server, texts in found.items():
        for text in texts:
            print(f"{server} history server: {text}")
        print(f"{server} history server: {len(expected)} answers, {len(texts)} wrong")
    return 1 if any(found.values()) else 0


# ------------------------------------------------------------------ jobs


def run_ours(archives: Path, checkpoints: Path) -> None:
    """A job with checkpoints that fails once and goes on, one that fails for good, and one in runtime mode BATCH."""
    has_failed = checkpoints.with_name("has-failed")  # Functions are copied, files are not.

    def fails_once(number: int) -> int:
        if number == 1000 and not has_failed.exists():
            has_failed.touch()
            raise ValueError("planned failure")
        return number

    def fails(number: int) -> int:
        raise ValueError(f"planned failure at {number} of 'ä€𝄞'")

    for name, function in (("finishes", fails_once), ("fails", fails), ("in stages", abs)):
        settings = Configuration()
        settings.set_string("jobmanager.archive.fs.dir", str(archives))
        if name == "finishes":
            settings.set_string("restart-strategy.type", "fixed-delay")
            settings.set_string("restart-strategy.fixed-delay.delay", "0 ms")
            settings.set_string("execution.checkpointing.interval", "20 ms")
            settings.set_string("execution.checkpointing.dir", str(checkpoints))
        env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
        env.use_executor(MiniCluster(4).executor())
        if name == "in stages":
            env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        source = NumberSequenceSource(0, 100_000)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
        changed = numbers.map(function, output_type=Types.LONG())
        sums = changed.key_by(lambda number: number % 7).reduce(lambda left, right: left + right)
        sums.filter(lambda _: False).print()
        with contextlib.suppress(Exception):
            env.execute(name)
    if not ARCHIVIST.finish(LIMIT_S):
        raise SystemExit("our jobs are not archived")


def run_theirs(python: str, archives: Path) -> None:
    """A job of PyFlink. Its local cluster may end before it has archived the job; then it runs again."""
    for _ in range(TRIES):
        run_once(python, archives)
        if any(archives.glob(f"*/applications/*/{SUMMARY}")):
            return
    raise SystemExit(f"Flink has not archived its job in {TRIES} tries")


def run_once(python: str, archives: Path) -> None:
    command = [python, str(THEIR_JOB), str(archives)]
    environment = variables(python)
    environment["PATH"] = f"{Path(python).parent}:{environment['PATH']}"
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"PyFlink's job failed: {done.stderr[-2000:]}")


# ------------------------------------------------------------------ servers


@contextlib.contextmanager
def flinks_server(python: str, archives: Path, place: Path) -> Generator[str]:
    """Flink's history server as its distribution starts it. Yields: its address."""
    command = [python, "-c", FIND_FLINK]
    home = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    port = free_port()
    conf = place / "conf"
    shutil.copytree(home / "conf", conf)
    with (conf / "config.yaml").open("a", encoding="utf-8") as file:
        file.write(
            f"\nhistoryserver.archive.fs.dir: file://{archives}\n"
            "historyserver.archive.fs.refresh-interval: 500\n"
            f"historyserver.web.address: localhost\nhistoryserver.web.port: {port}\n"
            f"historyserver.web.tmpdir: {place / 'web'}\n"
        )
    environment = variables(python) | {
        "FLINK_CONF_DIR": str(conf),
        "FLINK_LOG_DIR": str(place),
        "FLINK_HOME": str(home),
    }
    log = place / "history.out"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", str(home / "bin" / "historyserver.sh"), "start-foreground"],
            env=environment, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield ready(f"http://localhost:{port}", process.poll, lambda: log.read_text("utf-8"))
    finally:
        process.terminate()
        process.wait(LIMIT_S)


@contextlib.contextmanager
def our_server(archives: Path) -> Generator[str]:
    server = HistoryServer([str(archives)], Settings({"historyserver.web.port": "0"}))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield ready(server.address, lambda: None, lambda: "")
    finally:
        server.stop()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def ready(address: str, ended: Callable[[], int | None], log: Callable[[], str]) -> str:
    """Wait until a server lists all jobs, ours and Flink's."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and ended() is None:
        told = asked(address, "/jobs/overview")
        if isinstance(told, dict) and len(told["jobs"]) == len(STATES) + 1:
            return address
        time.sleep(POLL_S)
    raise SystemExit(f"the server at {address} does not list all jobs:\n{log()[-3000:]}")


def asked(address: str, path: str) -> Any:
    """JSON; None: there is none."""
    try:
        with urllib.request.urlopen(address + path, timeout=30) as answer:
            return json.loads(answer.read())
    except (OSError, ValueError, urllib.error.HTTPError):
        return None


# ------------------------------------------------------------------ answers


def archived(archives: Path) -> dict[str, Any]:
    """What each path of a single job or application must answer."""
    found: dict[str, Any] = {}
    for path, _, names in os.walk(archives):
        for name in names:
            if is_id(name) or name == SUMMARY:
                entries = read_archive((Path(path) / name).read_bytes())
                found |= {one: json.loads(text) for one, text in entries.items()}
    return {path: answer for path, answer in found.items() if not path.endswith("s/overview")}


def problems(address: str, expected: dict[str, Any]) -> list[str]:
    """What a server tells otherwise than the archives."""
    told = asked(address, "/jobs/overview")
    states = {job["name"]: job["state"] for job in told["jobs"]}
    theirs = {"archived by Flink": "FINISHED"}
    found = [] if states == STATES | theirs else [f"/jobs/overview has {states}"]
    if not asked(address, "/config")["features"]["web-history"]:
        found.append("/config does not say that it is a history server")
    return found + [path for path, answer in expected.items() if asked(address, path) != answer]


if __name__ == "__main__":
    sys.exit(main())
