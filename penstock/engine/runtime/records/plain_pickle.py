"""Pickles that hold no objects of users' classes, so that reading them runs no code but that of the few classes named here.

State is written so where it can be, and is marked. A pickle that claims to be plain and names anything else was altered: it is
refused before anything of it runs. Whoever can write a file can also change its mark, so this does not replace the
checks of who may write it (`engine/hosting/os/file_systems.py`). Source: Python's manual, "Restricting Globals"; Flink's
TypeSerializers, which make no objects of other classes either.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from decimal import Decimal
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np

from penstock.engine.model.errors import FinalError
from penstock.engine.runtime.value_classes import classes_of

_BUILTINS: Final = ("set", "frozenset", "complex", "bytearray", "range", "slice")
_NUMPY: Final = ("numpy.core", "numpy._core")
"""Before and since numpy 2."""

PLAIN: Final = frozenset({
    *(("builtins", name) for name in _BUILTINS),
    *(("collections", name) for name in ("OrderedDict", "Counter", "defaultdict", "deque")),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "UUID"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"{core}.multiarray", "scalar") for core in _NUMPY),
    *((f"{core}.multiarray", "_reconstruct") for core in _NUMPY),
    *((f"{core}.numeric", "_frombuffer") for core in _NUMPY),
    ("penstock.engine.model.row", "Row"),
    ("penstock.engine.model.row", "RowKind"),
    ("penstock.engine.model.row", "make_row"),
    ("penstock.engine.model.time", "Instant"),
    ("penstock.engine.model.time", "Time"),
    ("penstock.engine.model.time", "Duration"),
    *(
        ("penstock.engine.runtime.windows", name)
        for name in ("TimeWindow", "CountWindow", "GlobalWindow")
    ),
})  # fmt: skip
"""Module and name of the classes, and of the functions that make their objects, that a plain pickle may name."""

_WITH_ZONE: Final = frozenset({dt.datetime, dt.time})
_ZONES: Final = frozenset({type(None), dt.timezone})
_ATOMS: Final = _WITH_ZONE | {
    *(type(None), bool, int, float, complex, str, bytes, Decimal, dt.date, dt.timedelta),
}
_NAMED: Final = (type, FunctionType, BuiltinFunctionType)
_OF_NUMPY: Final = (np.generic, np.dtype)


class _NotPlainError(Exception):
    """An object of another class was met while pickling."""


class _Pickler(pickle.Pickler):
    """Is asked about every object but numbers, text, bytes, None and the usual containers, which cost nothing."""

    def reducer_override(self, obj: Any) -> Any:
        named = obj if isinstance(obj, _NAMED) else type(obj)
        is_plain = (named.__module__, named.__qualname__) in PLAIN
        if not is_plain and not (named is not obj and isinstance(obj, _OF_NUMPY)):
            raise _NotPlainError
        return NotImplemented


def dumps_plain(value: object) -> bytes | None:
    """The pickle (protocol 5); None: it would name other classes, or cannot be made."""
    if type(value) is list and _are_atoms(value):
        # The pickler below asks about each of these, which takes as long as pickling it.
        return pickle.dumps(value, protocol=5)
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5).dump(value)
    except (_NotPlainError, pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return file.getvalue()


def _are_atoms(values: list[Any]) -> bool:
    """Whether all are numbers, text and times that hold no other objects. Works in C."""
    kinds = classes_of(values)
    if not kinds <= _ATOMS:
        return False
    if kinds.isdisjoint(_WITH_ZONE):
        return True
    zones = {value.tzinfo for value in values if type(value) in _WITH_ZONE}
    return set(map(type, zones)) <= _ZONES


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise FinalError(
                f"state that was written without objects of users' classes names {module}.{name}: "
                "the file was altered after "
                "it was written. Nothing of it was run. Restore from another savepoint or "
                "checkpoint, and see who can write "
                "to the folder."
            )
        return super().find_class(module, name)


def loads_plain(data: bytes | memoryview) -> Any:
    """The value of a plain pickle. Raises: FinalError: it names another class."""
    return _Unpickler(io.BytesIO(data)).load()
