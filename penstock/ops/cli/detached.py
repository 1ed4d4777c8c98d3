"""`penstock run -d`: the program runs in a process of its own session, and the command returns when its job runs.

In Spark's client mode the driver is a process of this machine, so it only has to leave the terminal. In cluster mode Spark starts
the driver elsewhere, which is spark-submit's business. Source: `flink run -d`; differs: there the client ends, here the driver
stays.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.engine.model.errors import ConfigurationError
from penstock.ops.cli.remote.texts import complain, show, shown
from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.rest.address_book import drivers

T = TypeVar("T")
_CODE: Final = "import sys; from penstock.ops.cli.cli import main; sys.exit(main())"
_POLL_S: Final = 0.1
_STILL_WAITING_S: Final = 30.0
_END_WAIT_S: Final = 20.0
_HEAD_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1 << 16
_TAIL_LINES: Final = 40
_MODE: Final = "spark.submit.deployMode"
_WITHOUT_REST: Final = re.compile(r"^penstock: job '.*': \d+ vertices, [^;\n]*$", re.MULTILINE)
"""The console's first line of a job, where it names no address."""


@dataclass(frozen=True, slots=True)
class Started:
    """A job that runs. `job_id`, `address` "": the driver has no REST server, so they are unknown."""

    job_id: str = ""
    name: str = ""
    address: str = ""


def run_detached(options: argparse.Namespace) -> int:
    """Start the program, wait until its job runs, and return the exit code.

    Raises ConfigurationError: there is no such program, or the log file cannot be written.
    """
    if not Path(options.script).is_file():
        raise ConfigurationError(f"the program file {options.script!r} does not exist")
    log = new_log(options.log_file, Path(options.script).stem)

    def look(pid: int) -> Started | None:
        return _running_job(pid) or (Started() if _runs_without_rest(log) else None)

    child, started = in_background(attached(options), log, look, "the job does not run yet")
    if started is None and child.returncode:
        return say_end("the program", child, log)
    return _show(started, child.pid, log, options)


def attached(options: argparse.Namespace) -> list[str]:
    """Return the command line of the same run without `-d`."""
    found = ["run"]
    for flag, value in (
        ("--master", options.master),
        ("--taskmanagers", options.taskmanagers),
        ("--slots", options.slots),
        ("--from-savepoint", options.from_savepoint),
    ):
        found += [] if value is None else [f"{flag}={value}"]
    found += ["--allow-non-restored-state"] * options.allow_non_restored_state
    found += ["--claim"] * options.claim
    found += [f"--conf={pair}" for pair in options.conf]
    found += [f"-D{pair}" for pair in options.define]
    return [*found, options.script, "--", *options.arguments]


def check_mode(options: argparse.Namespace, conf: Mapping[str, str]) -> None:
    """Raises ConfigurationError: Spark is to start the driver on its cluster, which only `spark-submit` can ask for."""
    if conf.get(_MODE, "client").lower() != "cluster":
        return
    master = f" --master {options.master}" if options.master else ""
    wait = " --conf spark.yarn.submit.waitAppCompletion=false" if options.detached else ""
    program = shlex.join([options.script, *options.arguments])
    raise ConfigurationError(
        f"{_MODE} is 'cluster', so Spark has to start the driver on the cluster, but `penstock "
        f"run` is the driver itself. Submit the program instead: spark-submit{master} "
        f"--deploy-mode cluster{wait} {program}"
    )


def in_background(
    arguments: Sequence[str], log: Path, look: Callable[[int], T | None], complaint: str
) -> tuple[subprocess.Popen[bytes], T | None]:
    """Start `penstock` with these arguments in a session of its own, which no terminal ends, and wait until `look` finds something.

    `look`: gets the id of the process. `complaint`: what is said when it takes long. Returns the process, and what was found; None: the
    process has ended. Raises ConfigurationError: the log cannot be written.
    """
    with _opened(log) as file:
        child = subprocess.Popen(
            [sys.executable, "-u", "-P", "-c", _CODE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        return child, _awaited(child, log, look, complaint)
    except BaseException:  # Nobody knows of the process, so it must not stay.
        end_process(child)
        raise


def _awaited(
    child: subprocess.Popen[bytes], log: Path, look: Callable[[int], T | None], complaint: str
) -> T | None:
    complain_at = time.monotonic() + _STILL_WAITING_S
    while True:
        is_over = child.poll() is not None
        found = look(child.pid)
        if found is not None and not (is_over and child.returncode):
            return found
        if is_over:
            return None
        if time.monotonic() > complain_at:
            complain_at += _STILL_WAITING_S
            complain(f"{complaint}; see {log}")
        time.sleep(_POLL_S)


def say_end(what: str, child: subprocess.Popen[bytes], log: Path) -> int:
    """Say how a process has ended that should run, and return the exit code."""
    complain(f"{what} ended with exit code {child.returncode}. The end of {log}:")
    show(tail(log), sys.stderr)
    return 1


def new_log(named: str | None, stem: str) -> Path:
    """Return where the output of a process in the background goes. `named` None: a file of this folder that begins with `stem`."""
    if named is not None:
        return Path(named).absolute()
    moment = time.strftime("%Y%m%d-%H%M%S")
    return Path(f"{stem}-{moment}-{os.getpid()}.log").absolute()


def _opened(path: Path) -> Any:
    """Open the log for more lines; only the user reads it. Raises ConfigurationError."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    except OSError as error:
        raise ConfigurationError(
            f"the log file {str(path)!r} cannot be written: {error.strerror}. Name another one "
            "with --log-file"
        ) from None


def _running_job(pid: int) -> Started | None:
    """Return a job of this driver whose subtasks run, or have finished; None: there is none yet."""
    driver = next((one for one in drivers() if one.pid == pid), None)
    if driver is None:
        return None
    try:
        jobs = RestClient(driver.address, driver.token).get("/jobs/overview")["jobs"]
    except RemoteError:  # It has not begun to answer, or has ended.
        return None
    runs = next((job for job in jobs if _runs(job)), None)
    return None if runs is None else Started(runs["jid"], runs["name"], driver.address)


def _runs(job: Mapping[str, Any]) -> bool:
    tasks = job["tasks"]
    done = tasks["running"] + tasks["finished"]
    # Stages of a BATCH job run one after the other.
    wanted = 1 if job["jobType"] == "BATCH" else tasks["total"]
    return job["state"] == "FINISHED" or bool(job["state"] == "RUNNING" and done >= wanted)


def _runs_without_rest(log: Path) -> bool:
    with log.open("rb") as file:
        begin = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    return _WITHOUT_REST.search(begin) is not None


def tail(log: Path) -> str:
    """Return its last lines."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


def _show(started: Started | None, pid: int, log: Path, options: argparse.Namespace) -> int:
    job = {"job": "", "name": "", "address": ""}
    if started is None:
        lines = ["the program has ended"]
    elif not started.job_id:
        lines = [f"process {pid} runs the program; its job has no REST server to ask"]
    else:
        job = {"job": started.job_id, "name": started.name, "address": started.address}
        lines = [
            f"job '{started.name}' ({started.job_id}) runs in process {pid}",
            f"REST: {started.address}",
        ]
    value = {**job, "pid": pid, "log": str(log)}
    return shown(value, options, "\n".join([*lines, f"log:  {log}"]))


def end_process(child: subprocess.Popen[bytes]) -> None:
    """End a process that nobody knows of. Its job is cancelled first."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(_END_WAIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def add_detached(runs: argparse.ArgumentParser) -> None:
    """Add the options to `penstock run`."""
    runs.add_argument(
        "-d", "--detached", action="store_true",
        help="run the program in the background, and return when its job runs; Spark's client "
        "mode only",
    )  # fmt: skip
    runs.add_argument(
        "--log-file", metavar="FILE",
        help="with -d: where the program's output goes, a new file of this folder without it",
    )  # fmt: skip
    runs.add_argument(
        "--json",
        action="store_true",
        help="with -d: answer with JSON; with -m, too, an object a line",
    )


def check_attached(options: argparse.Namespace) -> None:
    """Raises ConfigurationError: options of `-d` without it."""
    if options.log_file is not None or options.json:
        raise ConfigurationError("--log-file and --json need -d")
