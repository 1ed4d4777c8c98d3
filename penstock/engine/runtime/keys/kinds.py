"""The classes of keys whose type is not declared. An operator remembers the classes that it meets,
and its snapshots contain them.

A program may select keys of another class than the savepoint has. It would find no state, and begin
from nothing without an error. Its first keys show the difference. Does not know snapshots. Source:
Flink refuses another key serializer (StateMigrationException); differs: without a declared type,
only the keys themselves show their class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np

from penstock.engine.model.errors import FinalError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.keys.encoding import RefusedKey, path_of
from penstock.engine.runtime.keys.hashing import OtherKey

_SHOWN: Final = 200

_LIKE: Final = (
    (np.bool_, "bool"), (np.integer, "int"), (np.floating, "float"), (np.str_, "str"),
    (np.bytes_, "bytes"), (bool, "bool"), (int, "int"), (float, "float"), (str, "str"),
    (bytes, "bytes"), (tuple, "tuple"),
)  # fmt: skip
"""Keys of subclasses are the same keys as those of the class: see `engine/runtime/keys/encoding.py`."""


class KeyKinds:
    """Of one operator in one subtask. `former`: the names of the classes that a savepoint of another job has; none: nothing is compared."""

    def __init__(self, former: Iterable[str] = (), owner: object = "operator") -> None:
        """`owner`: names the operator in the error."""
        self._former = frozenset(former)
        self._is_to_compare = bool(self._former)
        self._owner = owner
        self._met: set[type] = set()

    def note(self, kinds: set[type]) -> None:
        """Remember the classes of the keys of a batch.

        Raises: FinalError: they are the first ones after a restore, and none has a class that the restored keys had.
        """
        if self._is_to_compare and kinds:
            present = set(map(name_of, kinds))
            if present.isdisjoint(self._former):
                raise FinalError(
                    f"{self._owner} cannot restore its keyed state: its keys were written without "
                    f"a declared type and were of class {_listed(self._former)}, and the program's "
                    f"keys are now of class {_listed(present)}, so no record would find its state. "
                    "Select keys of the class that they had, or give the operator another uid and "
                    "start with 'execution.state-recovery.ignore-unclaimed-state: true' "
                    "(--allow-non-restored-state), which drops its state."
                )
            self._is_to_compare = False
        if not kinds <= self._met:
            self._met |= kinds

    def names(self) -> tuple[str, ...]:
        """Return the names of all classes, those of the restored keys included."""
        return tuple(sorted(self._former.union(map(name_of, self._met))))


class KeyClasses:
    """The classes of users in the keys of one operator or state. A key has its class by name, so two of one name would be one key."""

    def __init__(self) -> None:
        self._met: set[type] = set()
        self._names: set[str] = set()

    def check(self, keys: Sequence[Any], skeys: Sequence[Any]) -> None:
        """Take notice of the classes in keys. Raises: RefusedKey: one has the name of another class in a key before."""
        for key, skey in zip(keys, skeys, strict=True):
            if type(skey) is OtherKey and not self._met.issuperset(skey.classes):
                self._meet(key, skey.classes)

    def _meet(self, key: Any, classes: Iterable[type]) -> None:
        for kind in dict.fromkeys(classes):
            if kind in self._met:
                continue
            name = path_of(kind)
            if name in self._names:
                error = RefusedKey(
                    f"{bounded_repr(key, _SHOWN)} cannot be in a key: its class {name} is not the "
                    "class of this name that another key has. A function that makes a class makes "
                    "another one with each call. Make the class once, outside of functions, or "
                    "let the key selector return a tuple of the fields that identify the key"
                )
                error.key = key
                raise error
            self._names.add(name)
            self._met.add(kind)


def name_of(kind: type) -> str:
    """Return the name of a class of keys; of one whose keys are those of a plain class, the name of that."""
    if not issubclass(kind, Enum):
        for base, name in _LIKE:
            if issubclass(kind, base):
                return name
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
