"""The classes of the main script: those that a program ships, and those that an earlier run's pickle finds by name.

Source: none in PyFlink, where state that is restored holds other classes than the program's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

from penstock.engine.model.errors import ExternalError, UserError

MAIN: Final = "__main__"
_SHIPPED: Final[WeakValueDictionary[str, type]] = WeakValueDictionary()
"""Classes of this process's main script that user code refers to, by qualified name."""
_OF_FUNCTIONS: Final[WeakSet[type]] = WeakSet()
"""Those that a function of the main script has made, which no name finds in the script: they are found among the program's."""
_LOCK: Final = threading.Lock()
_CAME: Final[WeakSet[type]] = WeakSet()
"""Classes that came along with programs, which find them by name."""


class _Reading(threading.local):
    """How this thread unpickles. `of_program`: classes of the main script that came with its task's program, by name; None: several
    have this name.
    """

    of_program: Mapping[str, type | None] | None = None
    is_program = False
    is_state = False


READING: Final = _Reading()


class UnknownClass(Exception):
    """State holds objects of a class of the main script that the program does not have any more."""


def unreadable_state(what: str, error: Exception) -> UserError | ExternalError:
    """The error of a part of a checkpoint that cannot be read or unpickled. No restart brings a class back that has gone."""
    if isinstance(error, OSError):
        return ExternalError(
            f"{what} cannot be read: {type(error).__name__}: {error}. See whether this host can "
            "reach the file or the server. The job tries again as its restart strategy says."
        )
    made = UserError(
        f"{what} cannot be read: {type(error).__name__}: {error}. The classes of its "
        "values must be importable where it is restored, under the names that they had when it "
        "was written."
    )
    made.is_recoverable = not isinstance(error, UnknownClass | ImportError | AttributeError)
    return made


def note_class(cls: type) -> bool:
    """Take notice of a class that is pickled by value. Returns: whether the program finds it by its name."""
    if cls.__module__ != MAIN:
        return False
    if _in_main(cls.__qualname__) is cls:
        _SHIPPED[cls.__qualname__] = cls
        return True
    return cls in _CAME


def note_of_functions(classes: Iterable[type]) -> None:
    """Take notice of classes with which a pickle by value has succeeded."""
    new = [cls for cls in classes if is_of_function(cls) and cls not in _OF_FUNCTIONS]
    if new:
        with _LOCK:
            _OF_FUNCTIONS.update(new)


def is_of_function(cls: type) -> bool:
    """Whether a function of the main script has made the class."""
    return cls.__module__ == MAIN and is_name_in_function(cls.__qualname__)


def is_name_in_function(qualname: str) -> bool:
    return "<locals>" in qualname


def shipped_classes() -> tuple[type, ...]:
    """The classes that go along with a program."""
    with _LOCK:
        of_functions = sorted(_OF_FUNCTIONS, key=attrgetter("__qualname__"))
    named = (cls for name, cls in sorted(_SHIPPED.items()) if _in_main(name) is cls)
    return *named, *of_functions


def find_by_name(classes: Iterable[type]) -> None:
    """From now on this thread finds the classes of a program by name."""
    found: dict[str, type | None] = {}
    for cls in classes:
        name = cls.__qualname__
        found[name] = cls if found.get(name, cls) is cls else None
    READING.of_program = found
    _CAME.update(classes)


def class_of_main(qualname: str) -> type | None:
    """The program's class of this name; None: there is none, and the pickle has to bring it.

    Raises: UnknownClass: there is none, and it is state that is unpickled.
    """
    of_program = READING.of_program or {}
    found = of_program.get(qualname) or _in_main(qualname)
    if isinstance(found, type) and found.__module__ == MAIN:
        return found
    if READING.is_state:
        why = (
            "of which this program has several"
            if qualname in of_program
            else "which this program's functions do not refer to"
        )
        raise UnknownClass(
            f"it holds objects of class {qualname!r} of the main script, {why}. Give the class its "
            "former name again, or read the state with a program that has it"
        )
    return None


def _in_main(qualname: str) -> Any:
    try:
        return attrgetter(qualname)(sys.modules[MAIN])
    except AttributeError:
        return None
