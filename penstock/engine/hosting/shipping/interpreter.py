"""Which Python interpreter runs the tasks: the one that a program wants, and whether that is the program's own.

The oldest packages that tasks can use, and what is said where an executor's are older.

The same numbers stand in `pyproject.toml`, for the driver's installation.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.options.program import PythonOptions

LEAST: Final[Mapping[str, tuple[int, ...]]] = {"pyarrow": (15,), "numpy": (1, 26)}


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, at most two: (3, 11) of 3.11.7."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def is_too_old(name: str, version: str) -> bool:
    return numbers(version) < LEAST.get(name, ())


def least_text(name: str) -> str:
    """Return the oldest version as people write it."""
    return ".".join(map(str, LEAST[name]))


def check_here() -> None:
    """Raises: ExternalError: the pyarrow of this process is too old for tasks. ImportError: there is none."""
    import pyarrow as pa

    if is_too_old("pyarrow", pa.__version__):
        raise ExternalError(
            f"pyarrow is {pa.__version__} in {sys.executable} on {socket.gethostname()}, and "
            f"Penstock needs {least_text('pyarrow')} or newer. Install a newer one there."
        )


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
