"""A cgroup of a test's own whose processes may have so much memory together. Needs root, and a hierarchy that is writable."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

from tests.tools.waiting import wait_until

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class NoMemoryGroup(AssertionError):
    """A failure, for a test that quietly does not run proves nothing."""


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Generator[list[str]]:
    """Yields: the beginning of a command that is to run in it."""
    is_v1 = V1.is_dir()
    try:
        folder = Path(tempfile.mkdtemp(prefix="penstock-", dir=V1 if is_v1 else V2))
    except OSError as error:
        raise NoMemoryGroup(f"{error}. This test makes a cgroup: run it as root.") from error
    try:
        try:
            if not is_v1:
                (V2 / "cgroup.subtree_control").write_text("+memory")
            limit = folder / ("memory.limit_in_bytes" if is_v1 else "memory.max")
            limit.write_text(str(limit_bytes))
        except OSError as error:
            raise NoMemoryGroup(f"{error}. This test limits the memory of a cgroup.") from error
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(folder / "cgroup.procs")]
    finally:
        wait_until(lambda: _is_emptied(folder), f"processes stay in {folder}")
        os.rmdir(folder)


def _is_emptied(folder: Path) -> bool:
    pids = (folder / "cgroup.procs").read_text().split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    return not pids
