"""Converts functions and records to bytes and back: plain pickle, and PySpark's cloudpickle for
what the main script defines.

Imports no module except those for pickling. Data that is unpickled must have been authenticated
before.

The classes of the main script: those that a program ships, and those that an earlier run's pickle finds by name.

Source: none in PyFlink, where state that is restored holds other classes than the program's.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
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


_CLOUDPICKLE: Final = "pyspark.cloudpickle.cloudpickle"
_REPLACED: Final = {"_make_skeleton_class": "make_class", "_class_setstate": "set_class"}
"""Functions of cloudpickle by the names of those of `classes_by_value` that take their place."""
_UNPICKLING: Final = threading.RLock()


def serialize(value: object) -> bytes:
    """Pickle with functions and classes of the main script by value.

    Raises: whatever pickling raises, with the reason; the caller names the operator.
    """
    from penstock.engine.hosting.shipping.classes_by_value import Pickler

    buffer = io.BytesIO()
    pickler = Pickler(buffer, protocol=5)
    pickler.dump(value)
    note_of_functions(pickler.by_value)
    return buffer.getvalue()


def deserialize(data: bytes) -> Any:
    """Unpickle on a TaskManager, after authentication only.

    One call at a time: unpickling imports modules, and tasks that start together must not see
    half-imported ones.
    """
    return _program_of(data)[0]


def serialize_program(value: object) -> bytes:
    """`serialize`, and after it the classes of the main script that the program's functions refer to."""
    return serialize(value) + serialize(shipped_classes())


def deserialize_program(data: bytes) -> Any:
    """Unpickle what `serialize_program` made; from now on this thread finds the classes that came along by name."""
    value, classes = _program_of(data)
    find_by_name(classes)
    return value


def _program_of(data: bytes) -> tuple[Any, Sequence[type]]:
    file = io.BytesIO(data)
    with _UNPICKLING:
        READING.is_program = True
        try:
            value = _Unpickler(file).load()
            return value, _Unpickler(file).load() if file.tell() < len(data) else ()
        finally:
            READING.is_program = False


def loads_state(data: bytes | bytearray | memoryview) -> Any:
    """Unpickle state. Raises: UnknownClass: the program lacks a class of the main script that the state has."""
    READING.is_state = True
    try:
        return loads_records(data)
    finally:
        READING.is_state = False


def dumps_records(value: object) -> bytes:
    """Pickle records for the wire: plain pickle, or cloudpickle for objects of the main script's own classes."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return serialize(value)


def load_cloudpickle_alone() -> None:
    """Load cloudpickle without the rest of PySpark, in processes of ours.

    Importing all of PySpark takes a second where it comes as a zip. Later imports of cloudpickle
    get this module.
    """
    package = importlib.util.find_spec("pyspark")
    folders = () if package is None else package.submodule_search_locations or ()
    places = [os.path.join(folder, "cloudpickle") for folder in folders]
    spec = PathFinder.find_spec(_CLOUDPICKLE, places)
    if spec is not None and spec.loader is not None and _CLOUDPICKLE not in sys.modules:
        module = sys.modules[_CLOUDPICKLE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


class _Unpickler(pickle.Unpickler):
    """Uses the loaded cloudpickle, where the plain unpickler would first import the packages above
    it, and the program's own classes of the main script.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module == _CLOUDPICKLE and name in _REPLACED:
            from penstock.engine.hosting.shipping import classes_by_value

            return getattr(classes_by_value, _REPLACED[name])
        loaded = sys.modules.get(module) if module == _CLOUDPICKLE else None
        if loaded is not None:
            return getattr(loaded, name)
        if module == MAIN:
            found = class_of_main(name)
            if found is not None:
                return found
        return super().find_class(module, name)


def loads_records(data: bytes | bytearray | memoryview) -> Any:
    """Unpickle what `dumps_records` or `serialize` made. After authentication only."""
    return _Unpickler(io.BytesIO(data)).load()
