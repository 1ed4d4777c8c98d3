"""Our own files where they stand as text: in the stacks of threads and in the tracebacks of users' errors. Knows no stack.

The tests hold each against the module that it names, so that no file moves away from under them. Everywhere else nothing is decided
by the name of a file.
"""

from __future__ import annotations

import os
from typing import Final

import penstock

PACKAGE_FOLDER: Final = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep
"""Of this process: all of our files, and no other, lie below it."""
_PACKAGE: Final = "/penstock/"
_ENGINE: Final = "/penstock/runtime/"
_TASK_THREAD: Final = "/penstock/hosting/task/thread.py"


def is_ours(filename: str) -> bool:
    """Whether a stack's file may be ours, of whatever process and however it was shipped."""
    return _PACKAGE in _with_slashes(filename)


def is_engine(filename: str) -> bool:
    """Whether it is of the runtime, which calls users' functions."""
    return _ENGINE in _with_slashes(filename)


def is_task_thread(line: str) -> bool:
    """Whether a line of a stack names the file in which the threads of tasks begin."""
    return _TASK_THREAD in _with_slashes(line)


def _with_slashes(filename: str) -> str:
    return filename.replace("\\", "/")
