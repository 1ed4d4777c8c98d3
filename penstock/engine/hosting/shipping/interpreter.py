"""Which Python interpreter runs the tasks: the one that a program wants, and whether that is the program's own."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.options.program import PythonOptions

VARIABLE: Final = "python"
"""The variable in which functions find the interpreter that runs them. Source: Flink's Python environment manager."""


def executable_of(settings: Settings) -> str | None:
    """Return the interpreter that the program wants; None: any, which Flink's default stands for."""
    wanted = settings.get(PythonOptions.EXECUTABLE)
    return None if wanted == PythonOptions.EXECUTABLE.default else wanted


def is_our_own(python: str) -> bool:
    """Whether this command starts the program's own interpreter, with its environment: python and python3 of one folder."""
    found = shutil.which(python)
    if found is None:
        return False
    folders = [
        os.path.realpath(os.path.dirname(os.path.abspath(one))) for one in (found, sys.executable)
    ]
    return folders[0] == folders[1] and os.path.realpath(found) == os.path.realpath(sys.executable)
