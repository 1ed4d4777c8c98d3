"""The classes of the main script: those that a program ships, and those that an earlier run's pickle finds by name.

Source: none in PyFlink, where state that is restored holds other classes than the program's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final
from weakref import WeakValueDictionary

MAIN: Final = "__main__"
_SHIPPED: Final[WeakValueDictionary[str, type]] = WeakValueDictionary()
"""Classes of this process's main script that user code refers to, by qualified name."""


class _Reading(threading.local):
    """How this thread unpickles. `of_program`: classes of the main script that came with its task's program, by name."""

    of_program: Mapping[str, type] | None = None
    is_program = False
    is_state = False


READING: Final = _Reading()


class UnknownClass(Exception):
    """State holds objects of a class of the main script that the program does not have any more."""


def note_class(cls: type) -> None:
    """Take notice of a class that is pickled by value."""
    if cls.__module__ == MAIN and _in_main(cls.__qualname__) is cls:
        _SHIPPED[cls.__qualname__] = cls


def shipped_classes() -> list[type]:
    """The classes that go along with a program."""
    return [cls for name, cls in sorted(_SHIPPED.items()) if _in_main(name) is cls]


def class_of_main(qualname: str) -> type | None:
    """The program's class of this name; None: there is none, and the pickle has to bring it.

    Raises: UnknownClass: there is none, and it is state that is unpickled.
    """
    found = (READING.of_program or {}).get(qualname) or _in_main(qualname)
    if isinstance(found, type) and found.__module__ == MAIN:
        return found
    if READING.is_state and "<locals>" not in qualname:
        raise UnknownClass(
            f"it holds objects of class {qualname!r} of the main script, which this program's "
            "functions do not refer to. Give the class its former name again, or read the state "
            "with a program that has it"
        )
    return None


def _in_main(qualname: str) -> Any:
    try:
        return attrgetter(qualname)(sys.modules[MAIN])
    except AttributeError:
        return None
