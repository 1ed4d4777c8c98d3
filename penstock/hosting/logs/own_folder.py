"""A folder of this process among the temporary files. It goes when the process ends, however that ends.

None of this handles signals, which belong to the program. Python removes the folder at an orderly end and after Ctrl-C.
The next process that makes such a folder removes what killed ones have left.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

_CLAIM: Final = "in-use"


class OwnFolder:
    """Not thread-safe. `folder`: None before the first use."""

    def __init__(self, prefix: str) -> None:
        """`prefix`: of its name; folders of one prefix are swept together."""
        self.folder: Path | None = None
        self._prefix = prefix
        self._claim: IO[bytes] | None = None
        self._pid = 0

    def made(self) -> Path:
        """Return the folder; it is made on first use, and anew in a forked process."""
        known = self.folder
        if known is None or self._pid != os.getpid() or not known.is_dir():
            self._sweep_leftovers()
            known = Path(tempfile.mkdtemp(prefix=self._prefix))
            self._claim = (known / _CLAIM).open("wb")
            _lock(self._claim)
            if self.folder is None:
                atexit.register(self._remove)
            self.folder, self._pid = known, os.getpid()
        return known

    def _remove(self) -> None:
        """Remove the folder, unless it is that of a process from which this one was forked."""
        if self._claim is not None:
            self._claim.close()
        if self.folder is not None and self._pid == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _sweep_leftovers(self) -> None:
        """Remove this user's folders that no process claims any more."""
        with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
            for entry in entries:
                if entry.name.startswith(self._prefix) and _is_leftover(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_leftover(entry: os.DirEntry[str]) -> bool:
    """A folder without a claim may have been made just now, so it is none."""
    with contextlib.suppress(OSError):
        if not entry.is_dir(follow_symlinks=False):
            return False
        if sys.platform != "win32" and entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        with (Path(entry.path) / _CLAIM).open("rb+") as claim:
            return _lock(claim)
    return False


def _lock(claim: IO[bytes]) -> bool:
    """Lock the file while it is open here. Returns: whether nobody else has it. The lock is seen in other containers too."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
