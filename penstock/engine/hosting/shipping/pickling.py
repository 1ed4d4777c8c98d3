"""Converts functions and records to bytes and back: plain pickle, and PySpark's cloudpickle for
what the main script defines.

Imports no module except those for pickling. Data that is unpickled must have been authenticated
before.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import PathFinder
from typing import Any, Final

from penstock.engine.hosting.shipping.main_classes import (
    MAIN,
    READING,
    class_of_main,
    find_by_name,
    note_of_functions,
    shipped_classes,
)

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
