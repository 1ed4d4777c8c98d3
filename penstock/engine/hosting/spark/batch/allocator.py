"""How a Spark worker allocates memory while a BATCH task runs: as a process of TaskManagers does.

By default the C library gives large blocks back to the system at once and asks for them again for the next batch. Their page faults cost
more than the work (`engine/hosting/taskmanager/child.py`). Spark has started the worker, so what its environment says cannot be changed; calls
change it. Where the C library is not glibc, or the user has chosen such settings, nothing changes. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_DURING: Final = ((_MMAP_THRESHOLD, 32 << 20), (_TRIM_THRESHOLD, 512 << 20), (_TOP_PAD, 16 << 20))
_AFTER: Final = ((_TRIM_THRESHOLD, 64 << 20), (_TOP_PAD, 128 << 10))
"""What glibc itself sets in a process that has freed a block of 32 MB."""
_OF_USER: Final = (
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"),
    "GLIBC_TUNABLES",
)
_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"


def load_arrow() -> None:
    """Load Arrow so that it allocates by the C library, if `large_blocks_kept` changes how that does. With its own allocator, batches of
    columns take twice as long.

    It reads its choice once, when it is loaded. A choice of the user's counts, and so does that of who has loaded it before.
    """
    if _POOL in os.environ or "pyarrow" in sys.modules or _changed_libc() is None:
        return
    os.environ[_POOL] = "system"
    try:
        importlib.import_module("pyarrow")
    finally:
        del os.environ[_POOL]


@contextmanager
def large_blocks_kept() -> Generator[None]:
    """Let freed blocks be used again until the end. Then they go back to the system."""
    libc = _changed_libc()
    if libc is None:
        yield
        return
    for parameter, value in _DURING:
        libc.mallopt(parameter, value)
    try:
        yield
    finally:
        for parameter, value in _AFTER:
            libc.mallopt(parameter, value)
        libc.malloc_trim(0)


def _changed_libc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc and the user has not chosen how it keeps blocks."""
    if any(name in os.environ for name in _OF_USER):
        return None
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # TypeError: on Windows
        return None
    return libc if hasattr(libc, "gnu_get_libc_version") else None
