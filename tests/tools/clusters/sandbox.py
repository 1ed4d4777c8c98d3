"""Processes in namespaces of their own: network, mounts and process ids.

Nothing of them is seen outside, all ports are free, and all end with the first one. Needs root, or a
kernel that lets users make namespaces; and util-linux and iproute2.
"""

import contextlib
import os
import subprocess
from collections.abc import Generator, Sequence
from typing import Any

import psutil

from tests.tools.small_servers import ServerMissing

FIRST = "ip link set lo up && echo ready && cat"
"""The first process ends with its input."""


class Sandbox:
    """`inside`: the command that starts a process there."""

    def __init__(self, first: int, users: Sequence[str]) -> None:
        self.inside = ("nsenter", "-t", str(first), "-n", "-m", "-p", *users)

    def run(self, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Wait for its end. `more`: of `subprocess.run`."""
        command = (*self.inside, *command)
        return subprocess.run(command, capture_output=True, text=True, check=False, **more)

    def start(self, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        """`more`: of `subprocess.Popen`."""
        return subprocess.Popen((*self.inside, *command), **more)


@contextlib.contextmanager
def sandbox() -> Generator[Sandbox]:
    is_root = os.geteuid() == 0
    users = () if is_root else ("-U", "-r")
    own = ("unshare", *users, "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child")
    with subprocess.Popen(
        (*own, "sh", "-c", FIRST),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            if process.stdout.readline() != "ready\n":
                raise ServerMissing(
                    f"`{' '.join(own)}` failed: {process.stderr.read()}. These tests make "
                    "namespaces: run them as root (in a container: with --cap-add NET_ADMIN "
                    "--cap-add SYS_ADMIN), with util-linux and iproute2 installed."
                )
            (first,) = psutil.Process(process.pid).children()
            yield Sandbox(first.pid, () if is_root else ("-U", "--preserve-credentials"))
        finally:
            process.kill()
