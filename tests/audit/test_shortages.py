"""What a machine lacks for a while: a disk's space, descriptors, the right time. Tried on real processes and disks."""

import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from audit import clocks, disks, processes
from audit.children import environment
from audit.disks import Disks

linux = pytest.mark.skipif(sys.platform != "linux", reason="reaches into other processes")


def may_mount():
    """Whether this user, in this container, may mount a disk."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        made = Disks(Path(folder), ["probe"])
        names = list(made.names)
        made.close()
    return bool(names)


# ------------------------------------------------------------------ disks


@pytest.mark.skipif(not may_mount(), reason="only a user that may mount has disks to fill")
def test_a_disk_is_full_for_a_while_and_keeps_what_it_has(tmp_path):
    made = Disks(tmp_path, ["checkpoints"])
    try:
        file = tmp_path / "checkpoints" / "before"
        file.write_bytes(b"kept")
        made.fill("checkpoints")
        with pytest.raises(OSError, match="No space left") as full:
            (tmp_path / "checkpoints" / "more").write_bytes(bytes(8192))
        assert full.value.errno == errno.ENOSPC
        assert file.read_bytes() == b"kept"
        made.empty("checkpoints")
        (tmp_path / "checkpoints" / "more").write_bytes(bytes(8192))
    finally:
        made.close()
    assert not os.path.ismount(tmp_path / "checkpoints")
    assert file.read_bytes() == b"kept"
    assert (tmp_path / "checkpoints" / "more").stat().st_size == 8192


@pytest.mark.skipif(not may_mount(), reason="only a user that may mount has disks to fill")
@pytest.mark.parametrize("pages", [0, 7])
def test_a_disk_is_full_also_if_what_was_on_it_has_gone(tmp_path, pages):
    """The directory for temporary files holds nothing between two tasks."""
    made = Disks(tmp_path, ["tmp"])
    folder = tmp_path / "tmp"
    try:
        (folder / "before").write_bytes(bytes(pages * 4096))
        (folder / "before").unlink()
        made.fill("tmp")
        assert disks.is_full(folder)
        made.empty("tmp")
        assert not disks.is_full(folder)
        assert list(folder.iterdir()) == []
    finally:
        made.close()


def test_where_nothing_can_be_mounted_there_is_a_folder_and_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(disks, "can_mount", lambda: False)
    made = Disks(tmp_path, ["out"])
    assert made.names == []
    (tmp_path / "out" / "file").write_bytes(b"x")
    made.close()
    assert (tmp_path / "out" / "file").read_bytes() == b"x"


# ------------------------------------------------------------------ descriptors

OPENS = """
import errno, sys
for line in sys.stdin:
    try:
        open("/dev/null").close()
        print("opened", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


def ask(child):
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


@linux
def test_a_process_without_descriptors_opens_nothing_and_then_as_before():
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=pipe, stdout=pipe, text=True
    ) as child:
        assert ask(child) == "opened"
        timer = processes.starve_of_descriptors(psutil.Process(child.pid), 600)
        assert ask(child) == "EMFILE"
        timer.cancel()
        timer.function()
        assert ask(child) == "opened"
        gone = psutil.Process(child.pid)
        child.stdin.close()
    assert processes.starve_of_descriptors(gone, 600) is None


# ------------------------------------------------------------------ clocks

TELLS = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""


@linux
def test_a_clock_jumps_in_one_process_and_only_the_wall_clock(tmp_path):
    folder = tmp_path / clocks.FOLDER
    folder.mkdir()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", TELLS],
        stdin=pipe,
        stdout=pipe,
        text=True,
        env={**os.environ, **environment("mark", tmp_path)},
    ) as child:
        ask(child)
        assert clocks.has_clock(folder, child.pid)
        assert not clocks.has_clock(folder, os.getpid())
        assert clocks.jump(folder, child.pid, 86_400.0) == 86_400.0
        wall, wall_ns, monotonic = map(float, ask(child).split())
        assert abs(wall - time.time() - 86_400) < 600
        assert abs(wall_ns - time.time() - 86_400) < 600
        assert abs(monotonic - time.monotonic()) < 600
        assert clocks.jump(folder, child.pid, -90_000.0) == -3600.0
        wall, *_ = map(float, ask(child).split())
        assert abs(wall - time.time() + 3600) < 600
        child.stdin.close()
