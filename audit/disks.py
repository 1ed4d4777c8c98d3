"""Small disks of a run, of which each can be full for a while: whoever writes then gets ENOSPC from the kernel. Linux, as root.

A disk is a file system in memory. It is filled by making it as small as what it holds, so that hardly anything has to be written for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_SIZE: Final = "50%"
"""Of the machine's memory at most; only what is written is taken."""
_BALLAST: Final = ".penstock-audit-ballast"
_PAGE: Final = 4096
_MOST_PAGES: Final = 1024
_TRIES: Final = 50
_POLL_S: Final = 0.02


class Disks:
    """A folder of the run for each name; a disk where one can be mounted. `names`: none where that is not possible."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self.names: list[str] = []
        for name in names:
            (folder / name).mkdir(mode=0o700)
            if can_mount() and _mount(
                folder / name, "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "penstock-audit"
            ):
                self.names.append(name)

    def fill(self, name: str) -> None:
        """Raises: OSError: it could not be made small enough for nothing to fit."""
        path = self._folder / name
        for _ in range(_TRIES):  # Whoever writes meanwhile makes it larger than it may become.
            told = os.statvfs(path)
            used = max(1, (told.f_blocks - told.f_bfree) * told.f_frsize)
            if _mount(path, "-o", f"remount,size={used}") and _is_filled(path):
                return
            time.sleep(_POLL_S)
        self.empty(name)
        raise OSError(errno.EBUSY, f"{path} could not be filled")

    def empty(self, name: str) -> None:
        """There is room again."""
        (self._folder / name / _BALLAST).unlink(missing_ok=True)
        _mount(self._folder / name, "-o", f"remount,size={_SIZE}")

    def close(self) -> None:
        """The folders become ordinary ones, with all that is in them."""
        for name in self.names:
            path = self._folder / name
            kept = self._folder / f"{name}.kept"
            shutil.copytree(path, kept, symlinks=True, dirs_exist_ok=True)
            subprocess.run(["umount", "--lazy", str(path)], check=True)
            path.rmdir()
            kept.rename(path)
        self.names = []


def can_mount() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") is not None


def _is_filled(folder: Path) -> bool:
    """Fill what is left. A disk has at least one page, also if it holds nothing; and what was on it may have gone meanwhile."""
    with contextlib.suppress(OSError), (folder / _BALLAST).open("ab", buffering=0) as ballast:
        for _ in range(_MOST_PAGES):
            ballast.write(bytes(_PAGE))
    return is_full(folder)


def is_full(folder: Path) -> bool:
    """Whether the kernel refuses a byte."""
    probe = folder / f".full-{os.getpid()}"
    try:
        probe.write_bytes(b"x")
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        with contextlib.suppress(FileNotFoundError):
            probe.unlink()
    return False


def _mount(path: Path, *arguments: str) -> bool:
    done = subprocess.run(["mount", *arguments, str(path)], check=False, capture_output=True)
    return done.returncode == 0
