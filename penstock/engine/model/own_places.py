"""Penstock's own files, as they appear in the stacks of threads and in tracebacks of user errors. Does not read stacks.

Tests compare each path with the module that it names, so that no file moves unnoticed. No other code decides by the
name of a file.
"""

from __future__ import annotations

import os
from typing import Final

import penstock

PACKAGE_FOLDER: Final = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep
"""The package's folder in this process: it contains all of our files, and no others."""
ARCHIVE_ROOT: Final = "/penstock.zip/"
"""What stands before the names of files in the bytecode of the archive that executors import, wherever it lies."""
_LIBRARY: Final = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGE: Final = "/penstock/"
_ARCHIVED: Final = ARCHIVE_ROOT + "penstock/"
_ENGINE: Final = "/penstock/engine/runtime/"
_TASK_THREAD: Final = "/penstock/engine/hosting/taskmanager/task/thread.py"


def is_ours(filename: str) -> bool:
    """Whether a stack's file may be one of ours, in any process and however the package was shipped."""
    return _PACKAGE in _with_slashes(filename)


def is_ours_here(filename: str) -> bool:
    """Whether a frame of this process is in the package. Unlike `is_ours`, it takes no user's folder for ours."""
    return filename.startswith((PACKAGE_FOLDER, _ARCHIVED))


def is_pythons(filename: str) -> bool:
    """Whether a frame of this process is in Python's standard library."""
    return filename.startswith((_LIBRARY, "<frozen ")) and "-packages" not in filename


def is_engine(filename: str) -> bool:
    """Whether the file is part of the runtime, which calls users' functions."""
    return _ENGINE in _with_slashes(filename)


def is_task_thread(line: str) -> bool:
    """Whether a line of a stack names the file in which the threads of tasks begin."""
    return _TASK_THREAD in _with_slashes(line)


def _with_slashes(filename: str) -> str:
    return filename.replace("\\", "/")
