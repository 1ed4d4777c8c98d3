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
import threading
from pathlib import Path
from typing import IO, Final

from penstock.engine.hosting.os import private_files

_CLAIM: Final = "in-use"
_BEING_MADE: Final = "being-made"


class OwnFolder:
    """Any thread. `folder`: None before the first use."""

    def __init__(self, prefix: str) -> None:
        """`prefix`: of its name; folders of one prefix are swept together."""
        self.folder: Path | None = None
        self._prefix = prefix
        self._claim: IO[bytes] | None = None
        self._pid = 0
        self._lock = threading.Lock()

    def made(self) -> Path:
        """Return the folder; it is made on first use, and anew in a forked process."""
        with self._lock:
            known = self.folder
            if known is None or self._pid != os.getpid() or not known.is_dir():
                known = self._make()
            return known

    def _make(self) -> Path:
        self._sweep_leftovers()
        made = Path(tempfile.mkdtemp(prefix=self._prefix))
        self._claim = os.fdopen(private_files.new_file(made / _BEING_MADE), "wb")
        try_lock(self._claim)
        # Nobody sees a claim that is not locked yet, and takes the folder for a leftover.
        (made / _BEING_MADE).rename(made / _CLAIM)
        if self.folder is None:
            atexit.register(self._remove)
        self.folder, self._pid = made, os.getpid()
        return made

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
            return try_lock(claim)
    return False


def try_lock(file: IO[bytes] | int) -> bool:
    """Lock a file while it is open here. Returns: whether nobody else has it; False where files cannot be locked.

    The lock is seen in other containers too.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
