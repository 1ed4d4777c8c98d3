"""Which processes of ours run below this one."""

import contextlib

import psutil


def taskmanagers() -> list[psutil.Process]:
    """TaskManager processes of this test process's Spark."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie counts as gone
            if "taskmanager_process" in " ".join(child.cmdline()):
                found.append(child)
    return found


def executor_jvms() -> list[psutil.Process]:
    """Executor JVMs of a `local-cluster` master."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found
