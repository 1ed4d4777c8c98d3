"""Which processes of ours run below this one."""

import contextlib
import sys
import time

import psutil

from penstock.engine.hosting.taskmanager.child import PROCESS_NAME

HANG_S = 30.0
_LOOK_AGAIN_S = 0.2


def taskmanagers() -> list[psutil.Process]:
    """TaskManager processes of this test process's Spark."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie counts as gone
            if PROCESS_NAME in " ".join(child.cmdline()):
                found.append(child)
    return found


def end_idle_workers() -> None:
    """Those that wait for another job of the session, as they are meant to."""
    from pyspark import SparkContext

    from penstock.engine.hosting.spark.session_workers import make_room

    if SparkContext._active_spark_context is not None:
        make_room(SparkContext._active_spark_context, 1000)


def taskmanagers_left() -> list[psutil.Process]:
    """Those that do not end: one whose job is over may be at it. Idle workers are asked to, also those that become idle meanwhile."""
    deadline = time.monotonic() + HANG_S
    while True:
        if "pyspark" in sys.modules:
            end_idle_workers()
        _, alive = psutil.wait_procs(taskmanagers(), timeout=_LOOK_AGAIN_S)
        if not alive or time.monotonic() >= deadline:
            return list(alive)


def executor_jvms() -> list[psutil.Process]:
    """Executor JVMs of a `local-cluster` master."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found


def command_of(process: psutil.Process) -> str:
    """Empty for one that is gone; a zombie is."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
