"""Modules and files of a program whose functions run in this process."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.engine.hosting.shipping.interpreter import VARIABLE, executable_of, is_our_own
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.program import PythonOptions
from penstock.engine.model.program import ProgramSettings


def import_here(python_files: Sequence[str]) -> None:
    """Make modules that a program names for its functions importable in this process, where the
    functions run.

    They stay importable after the job. Raises: ConfigurationError for a missing file.
    """
    for path in [Path(one.removeprefix("file://")).absolute() for one in python_files]:
        if not path.exists():
            raise ConfigurationError(
                f"add_python_file: there is no file or directory {str(path)!r}"
            )
        place = str(path.parent if path.suffix == ".py" else path)
        if place not in sys.path:
            sys.path.insert(0, place)
    importlib.invalidate_caches()


def refuse_files(program: ProgramSettings) -> None:
    """Raises: ConfigurationError: the program has archives or requirements, which functions in this
    process cannot get.
    """
    if program.python_archives or program.python_requirements:
        raise ConfigurationError(
            "add_python_archive and set_python_requirements work only for jobs on Spark: a "
            "MiniCluster runs functions in this process. Install the packages here, and "
            "leave both calls out of the tested program."
        )


def use_python_of(settings: Settings) -> None:
    """Have functions find the interpreter that the program names in the variable `python`, as in Flink's workers.

    Raises: ConfigurationError: it is another one than this process has, which runs the functions.
    """
    wanted = executable_of(settings)
    if wanted is None:
        return
    if is_our_own(wanted):
        os.environ[VARIABLE] = wanted
        return
    raise ConfigurationError(
        f"{PythonOptions.EXECUTABLE.key} is {wanted!r}, but a MiniCluster runs functions in this "
        f"process, with {sys.executable!r}. Run the program with {wanted!r}, or remove the option."
    )
