"""Temporary folders of Spark's workers: locked while in use, and removed when their worker was
killed.

Imports nothing of Penstock: see `taskmanager_child`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from typing import Final

FOLDER: Final = re.compile(r"penstock-(\d+)-.+")
"""`engine/hosting/spark/executor_task.py` makes them."""


def sweep_leftovers() -> None:
    """Remove folders of this user whose worker was killed before it could remove them."""
    if sys.platform == "win32":
        # On Windows, os.kill would end the process instead of asking whether it exists.
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            found = FOLDER.fullmatch(entry.name)
            if found is not None and _is_leftover(entry, int(found[1])):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_leftover(entry: os.DirEntry[str], pid: int) -> bool:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return False
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        os.kill(pid, 0)
    except ProcessLookupError:
        return not _is_claimed(entry.path)
    except (OSError, OverflowError):
        return False
    return False


def _is_claimed(folder: str) -> bool:
    """The lock is also seen in containers that share the folder but not process ids."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        claim = os.open(folder, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(claim)
    return False
