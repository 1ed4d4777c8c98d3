"""Whether Spark's Python workers can run our tasks: the interpreter and the pyarrow that they have.

Spark starts the `python3` of PATH unless PYSPARK_PYTHON says otherwise, and that is another one than the program's where
no virtual environment is activated: in an IDE, in a notebook's kernel. One short Spark task looks, once for each session,
before a job starts. It is left out where the workers' interpreter is the program's own. `penstock doctor` looks at more.
The task may have to wait for a free slot. All jobs of the session that start meanwhile wait for it, and those of other sessions do not.
"""

from __future__ import annotations

import platform
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pyspark import SparkContext

from penstock.engine.hosting.os.session_jobs import SESSION_JOBS
from penstock.engine.hosting.os.spark_thread import SparkThread
from penstock.engine.hosting.shipping.interpreter import (
    executable_of,
    is_our_own,
    is_too_old,
    least_text,
    numbers,
)
from penstock.engine.hosting.spark.slots import SparkSlots
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.program import PythonOptions

_GROUP: Final = "penstock-python-check"
_LIMIT_S: Final = 60.0
"""Executors may have to start first, as TaskManagers would need too."""
_PATIENCE_S: Final = 3.0
"""How long the job waits, in s, before a line says what it waits for."""
_VARIABLE: Final = "PYSPARK_PYTHON"
_MISMATCH: Final = re.compile(r"different version: (\d+[\d.]*) than that in driver")
_CAUSES: Final = (
    re.compile(r"PYTHON_VERSION_MISMATCH\] (.*)"),
    re.compile(r"(Cannot run program.*)"),
    re.compile(r"\b(\w+Error: .*)"),
    re.compile(r"Exception: (.*)"),
)
"""The causes that an error of Spark's may have in it, the most telling first."""
_LINE: Final = f'import os, sys; os.environ["{_VARIABLE}"] = sys.executable'


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and its pyarrow. `pyarrow` None: it cannot be imported. `host`: empty for the driver."""

    executable: str
    python: str
    pyarrow: str | None
    host: str = ""


class _Look:
    """The look at the workers of one session. `answer`: what a worker has, or the text of Spark's
    error; None: not known yet, or it did not come in time. `has_warned`: whether a warning about it
    was given.
    """

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.answer: Interpreter | str | None = None
        self.has_warned = False

    def begin(self, context: SparkContext) -> None:
        # A thread has its own job group; the caller's must stay as it is.
        SparkThread(
            context,
            lambda: self.end(_answer(context)),
            lambda error: self.end(str(error)),
            "penstock-look-at-workers",
        ).start()

    def end(self, answer: Interpreter | str | None) -> None:
        """End with this answer, unless it has ended."""
        if not self.is_over.is_set():
            self.answer = answer
            self.is_over.set()


class Known:
    """The looks by session. The lock is held only to find one: no session waits for the workers of another."""

    looks: ClassVar[dict[tuple[str, str], _Look]] = {}
    lock = threading.Lock()


def check_workers(
    context: SparkContext,
    *,
    needs_pyarrow: bool,
    say: Callable[[str], None],
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
) -> None:
    """Find out in advance that Spark's Python workers cannot run a job.

    `needs_pyarrow`: the job's code runs in the workers themselves. TaskManagers on the driver's
    machine run the driver's own interpreter. `say`: takes a warning. `wait`: waits for an event, at
    most a number of seconds, and returns whether it came. Raises: ConfigurationError, with both
    versions and the line to write.
    """
    python = str(context.pythonExec)
    if context.master.startswith("local") and is_our_own(python):
        return
    key = str(context.applicationId), python
    with Known.lock:
        look = Known.looks.get(key)
        if look is None:
            look = Known.looks[key] = _Look()
            look.begin(context)
    try:
        _await(look, context, say, wait)
        there = _found(look.answer, context)
    except BaseException:  # The next job looks again.
        with Known.lock:
            Known.looks.pop(key, None)
        raise
    if there is None:
        return
    here = _here()
    refusal = refusal_of(there, here, needs_pyarrow=needs_pyarrow)
    if refusal is not None:
        raise ConfigurationError(f"{refusal} {remedy_for(context.master)}")
    if not look.has_warned and there.pyarrow is not None and there.pyarrow != here.pyarrow:
        look.has_warned = True
        say(
            f"pyarrow is {there.pyarrow} in {there.executable} on {there.host}, and "
            f"{here.pyarrow} on the driver: one may not read what the other has written. "
            "Install the same everywhere."
        )


def check_executable(settings: Settings, context: SparkContext) -> None:
    """Check that tasks run the interpreter that `python.executable` names, if it does. Nobody can change it once the session is made.

    Raises: ConfigurationError: they run another one; it names what to set.
    """
    wanted = executable_of(settings)
    if wanted is None:
        return
    is_local = str(context.master).startswith("local")
    theirs = sys.executable if is_local else str(context.pythonExec)
    if wanted == theirs or (is_local and is_our_own(wanted)):
        return
    what = f"{PythonOptions.EXECUTABLE.key} is {wanted!r}, but the tasks run {theirs!r}"
    if is_local:
        raise ConfigurationError(
            f"{what}: with master {context.master} they run the driver's own interpreter. "
            f"Run the program with {wanted!r}, or remove the option."
        )
    raise ConfigurationError(
        f"{what}: Spark chooses the interpreter when the SparkSession is made. Write this before "
        "it is made:\n"
        f'    import os; os.environ["{_VARIABLE}"] = "{wanted}"\n'
        f"or with spark-submit: --conf spark.pyspark.python={wanted}\n"
        "An interpreter in an archive needs spark.archives too. Or remove the option."
    )


def refusal_of(there: Interpreter, here: Interpreter, *, needs_pyarrow: bool) -> str | None:
    """Return why tasks cannot run there; None: they can."""
    ours = f"the driver runs {here.executable} (Python {here.python}, pyarrow {here.pyarrow})"
    theirs = f"Spark's workers run {there.executable} on {there.host} (Python {there.python}"
    if numbers(there.python) != numbers(here.python):
        return (
            f"{theirs}), and {ours}. "
            "Functions that one version has pickled cannot be read by the other."
        )
    if not needs_pyarrow:
        return None
    need = f"Tasks need pyarrow {least_text('pyarrow')} or newer."
    if there.pyarrow is None:
        return f"{theirs}, without pyarrow), and {ours}. {need}"
    if is_too_old("pyarrow", there.pyarrow):
        return f"{theirs}, pyarrow {there.pyarrow}), and {ours}. {need}"
    return None


def remedy_for(master: str) -> str:
    """Return what to do, for the user's own session."""
    if master.startswith("local"):
        return (
            f"Spark takes the python3 of PATH unless {_VARIABLE} is set. Stop your SparkSession "
            "(spark.stop()), write this line before it is made, and make it again:\n"
            f"    {_LINE}"
        )
    return (
        "Install the driver's Python (its first two numbers) with pyarrow on all executors, and "
        "name it before the SparkSession is made:\n"
        f'    import os; os.environ["{_VARIABLE}"] = "/path/of/that/python"\n'
        "or with spark-submit: --conf spark.pyspark.python=/path/of/that/python"
    )


def cause_in(text: str) -> str:
    """Return the cause out of an error of Spark's, whose first line only says that something was called."""
    for pattern in _CAUSES:
        found = pattern.search(text)
        if found is not None:
            return found[1].strip()
    return (text.strip().splitlines() or ["unknown cause"])[0]


# ---------------------------------------------------------------------- looking


def _here() -> Interpreter:
    import pyarrow as pa

    return Interpreter(sys.executable, platform.python_version(), pa.__version__)


def _await(
    look: _Look,
    context: SparkContext,
    say: Callable[[str], None],
    wait: Callable[[threading.Event, float], bool],
) -> None:
    """Wait until a look is over. If that takes too long, the look ends without an answer: what
    keeps Spark from running a task is reported when the job asks for its own.
    """
    try:
        if wait(look.is_over, _PATIENCE_S):
            return
        rest_s = _LIMIT_S - _PATIENCE_S
        say(
            "waiting for a short Spark task that looks which Python the workers have: "
            f"{SparkSlots(context).describe()}.{SESSION_JOBS.holders()} "
            f"If no slot is free within {rest_s:.0f} s, the job starts without this look."
        )
        wait(look.is_over, rest_s)
    finally:
        if not look.is_over.is_set():
            look.end(None)
            context.cancelJobGroup(_GROUP)


def _found(answer: Interpreter | str | None, context: SparkContext) -> Interpreter | None:
    """Return what a worker has; None: the task did not run in time, which is reported elsewhere, or
    failed for a reason of its own.

    Raises: ConfigurationError: no worker can be started.
    """
    if answer is None or isinstance(answer, Interpreter):
        return answer
    return there_in(answer, str(context.pythonExec), remedy_for(context.master))


def there_in(text: str, python: str, remedy: str) -> Interpreter | None:
    """Return the worker that an error of Spark's speaks of; None: the error has another reason.

    Raises: ConfigurationError: no worker can be started.
    """
    other = _MISMATCH.search(text)
    if other is not None:
        return Interpreter(python, other[1], None, "an executor")
    if "Cannot run program" in text:
        raise ConfigurationError(f"Spark cannot start a Python worker: {cause_in(text)}. {remedy}")
    return None


def _answer(context: SparkContext) -> Interpreter | str:
    """Return what a worker has, or the text of Spark's error."""
    try:
        context.setJobGroup(
            _GROUP, "Penstock: which Python the workers have", interruptOnCancel=True
        )
        return Interpreter(*context.parallelize([0], 1).mapPartitions(_asked()).collect()[0])
    except Exception as error:  # Py4J's errors are of many kinds, and some have the answer.
        return str(error)


def _asked() -> Callable[[Any], Any]:
    def ask(_partition: Any) -> Any:
        import importlib
        import platform
        import socket
        import sys

        try:
            pyarrow = str(importlib.import_module("pyarrow").__version__)
        except Exception:  # A broken installation may raise anything.
            pyarrow = None
        return [(sys.executable, platform.python_version(), pyarrow, socket.gethostname())]

    ask.__module__ = "__main__"  # Pickled by value: workers need not have Penstock.
    return ask
