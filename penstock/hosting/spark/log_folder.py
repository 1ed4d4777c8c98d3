"""The folder of the embedded Spark: its log and its settings. It goes when the program ends, however that ends.

Three take care of it, and none handles signals, which belong to the program. Python removes it at an orderly end and
after Ctrl-C. Spark's JVM, which outlives Python by a moment, removes it when Python was killed. The next program removes
what is left of programs that were killed together with their JVM.
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

from pyspark import SparkContext

_PREFIX: Final = "penstock-spark-"
_CLAIM: Final = "in-use"


class _Own:
    """The folder of this process. `claim`: open, and locked while the process lives."""

    folder: Path | None = None
    claim: IO[bytes] | None = None
    pid: int = 0


def log_folder() -> Path:
    """Return the folder of this process; it is made on first use. Not thread-safe."""
    known = _Own.folder
    if known is None or _Own.pid != os.getpid() or not known.is_dir():
        _sweep_leftovers()
        known = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _Own.claim = (known / _CLAIM).open("wb")
        _lock(_Own.claim)
        if _Own.folder is None:
            atexit.register(_remove)
        _Own.folder, _Own.pid = known, os.getpid()
    return known


def remove_with(context: SparkContext) -> None:
    """Have the JVM of this context remove the folder when it ends, after all that Spark does then."""
    jvm = context._jvm
    if _Own.folder is None or jvm is None:
        return
    folder = jvm.java.io.File(str(_Own.folder))
    # An internal class of Spark. Without it the next program cleans up.
    with contextlib.suppress(Exception):
        jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(folder)


def _remove() -> None:
    """Remove the folder, unless it is that of a process from which this one was forked."""
    if _Own.claim is not None:
        _Own.claim.close()
    if _Own.folder is not None and _Own.pid == os.getpid():
        shutil.rmtree(_Own.folder, ignore_errors=True)


def _sweep_leftovers() -> None:
    """Remove this user's folders that no process claims any more."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_leftover(entry):
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
