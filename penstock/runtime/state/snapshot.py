"""What one operator keeps in a checkpoint: keyed parts and lists. Knows no file and no operator.

An operator's `snapshot` hands over its tables copied flat; `freeze` then makes them independent of what user code does to
the objects in them, before the next record is processed. What cannot change (numbers, text, tuples of them, lists and
dicts of those, once copied, and Rows of them) is kept as it is; everything else is pickled on the spot. Key groups, order and bytes are
left to the thread that writes (`snapshot_format.py`).
Source: Flink StateSnapshot, CopyOnWriteStateMap, RegisteredStateMetaInfoSnapshot; differs: values are live objects that
their owners may change in place, so copying on write could not be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.model.checkpoints import DatabaseHandle, RedistributionMode, StateHandle
from penstock.model.errors import UserError
from penstock.runtime.records.frozen import (
    Column,
    Dumps,
    frozen,
)

Add: TypeAlias = Callable[[bytes], StateHandle]
Read: TypeAlias = Callable[[StateHandle], bytes]

IN_HAND: Final = "in_hand"
"""List state of a chain's head: (input, element) that were read and not yet processed."""


@dataclass(frozen=True, slots=True)
class StateInfo:
    """What must be the same where a state is restored. `kind`: "Value", "Map" and so on, or the engine's own."""

    kind: str
    type_text: str = ""
    has_ttl: bool = False

    def __str__(self) -> str:
        shown = f"{self.kind} of {self.type_text}" if self.type_text else self.kind
        return f"{shown} {'with' if self.has_ttl else 'without'} time to live"


@dataclass(slots=True)
class KeyedPart:
    """Rows of state: `keys[i]` (a state key, see `state_key`) and `columns[...][i]`.

    `groups`: the key group of each row, where it is not that of its key: shape (rows,).
    """

    info: StateInfo
    max_parallelism: int
    is_int32: bool
    keys: list[Any]
    columns: list[Column]
    groups: NDArray[np.int64] | None = None

    def rows(self) -> Iterable[tuple[Any, ...]]:
        """(state key, *columns) of each row, of a part that is not frozen."""
        return zip(self.keys, *self.columns, strict=True)

    def extend(self, other: KeyedPart) -> None:
        """Rows of other key groups, of a part that is not frozen either."""
        self.keys.extend(other.keys)
        for column, more in zip(self.columns, other.columns, strict=True):
            assert isinstance(column, list), "it was read, not frozen"
            assert isinstance(more, list), "it was read, not frozen"
            column.extend(more)

    def freeze(self, dumps: Dumps) -> None:
        """Make the columns independent of what owns the objects in them."""
        self.columns = [frozen(column, dumps) for column in self.columns]

    def close(self, *, is_kept: bool) -> None:
        """It was written, or nobody wants it."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How files get to where checkpoints share them. `groups`: first and last key group of the subtask.

    `share`: writes a file; `is_ours`: whether a handle lies where later checkpoints of this job may refer to it.
    """

    groups: tuple[int, int]
    share: Add
    is_ours: Callable[[StateHandle], bool]


@dataclass(frozen=True, slots=True)
class RestoredDatabase:
    """A database of some former subtask. `groups`: the key groups that the restored subtask has."""

    handle: DatabaseHandle
    groups: tuple[int, int]
    read: Read


class RowSource(Protocol):
    """Rows that lie outside of memory, by key group, as they were when the snapshot was taken."""

    def groups(self, name: str, /) -> Iterable[int]: ...
    def columns(self, name: str, group: int, /) -> list[list[Any]]:
        """Keys, namespaces, raw values."""
        ...

    def write_files(self, sharing: Sharing, add: Add, /) -> Iterable[tuple[str, StateHandle]]:
        """All of it as files: those that stay as they are shared, the others added."""
        ...

    def close(self, *, is_kept: bool) -> None: ...


class StoredPart(KeyedPart):
    """Rows of a state that a backend keeps on disk: read, one key group at a time, when they are written."""

    __slots__ = ("name", "source")

    def __init__(
        self,
        info: StateInfo,
        max_parallelism: int,
        is_int32: bool,
        columns: int,
        *,
        source: RowSource,
        name: str,
    ) -> None:
        """`columns`: how many beside the keys."""
        super().__init__(info, max_parallelism, is_int32, [], [[] for _ in range(columns)])
        self.source = source
        self.name = name

    def freeze(self, dumps: Dumps) -> None:
        """Nobody changes it."""

    def close(self, *, is_kept: bool) -> None:
        self.source.close(is_kept=is_kept)


@dataclass(slots=True)
class ListPart:
    """One named operator state: its elements, which go to other subtasks as `mode` says. Frozen: pickled each."""

    mode: RedistributionMode
    elements: list[Any]


class Pieces(Protocol):
    """Reads parts whose names begin with the prefix, which is taken off. A part may be in any number of pieces."""

    def __call__(self, prefix: str, /) -> Iterator[dict[str, KeyedPart]]: ...
    def not_taken(self) -> dict[str, StateInfo]:
        """Of which rows were met, and whose names began with no prefix."""
        ...


@dataclass(slots=True)
class OperatorSnapshot:
    """Keyed parts by name, `role/state` where a role has several states; lists by name.

    `pieces`: keyed parts that were not read yet, in place of `keyed`.
    """

    keyed: dict[str, KeyedPart] = field(default_factory=dict)
    lists: dict[str, ListPart] = field(default_factory=dict)
    databases: list[RestoredDatabase] = field(default_factory=list)
    pieces: Pieces | None = None

    def __bool__(self) -> bool:
        return bool(self.keyed or self.lists or self.databases or self.pieces)

    def add(self, role: str, parts: Mapping[str, KeyedPart]) -> None:
        """All states of a role."""
        self.keyed.update((f"{role}/{name}", part) for name, part in parts.items())

    def take(self, prefix: str = "") -> dict[str, KeyedPart]:
        """What `add` was given for the role in `role/`, or all; it is no longer in `keyed`."""
        names = [name for name in self.keyed if name.startswith(prefix)]
        found = {name.removeprefix(prefix): self.keyed.pop(name) for name in names}
        for piece in () if self.pieces is None else self.pieces(prefix):
            _extend(found, piece)
        return found

    def hold(self, other: OperatorSnapshot) -> None:
        """The keyed parts of another one, of other key groups. Nothing is frozen."""
        _extend(self.keyed, other.keyed)

    def take_in_pieces(self, prefix: str = "") -> Iterator[dict[str, KeyedPart]]:
        """As `take`, a few key groups at a time where it was read so."""
        if self.pieces is None:
            yield self.take(prefix)
        else:
            yield from self.pieces(prefix)

    def not_taken(self) -> dict[str, str]:
        """What nobody has taken, by name; of parts that are read in pieces, those that lie beside what was read."""
        found = {name: str(part.info) for name, part in self.keyed.items() if part.keys}
        found |= {one.handle.role: "files of RocksDB" for one in self.databases}
        if self.pieces is not None:
            found |= {name: str(info) for name, info in self.pieces.not_taken().items()}
        return found

    def elements(self, name: str) -> list[Any]:
        """Of a list; empty when there is none."""
        part = self.lists.get(name)
        return [] if part is None else part.elements

    def freeze(self, dumps: Dumps) -> OperatorSnapshot:
        """As it is now, whatever happens to the objects in it later. Raises: what `dumps` raises."""
        for part in self.keyed.values():
            part.freeze(dumps)
        for state in self.lists.values():
            state.elements = [dumps(element) for element in state.elements]
        return self

    def sources(self) -> dict[str, RowSource]:
        """What keeps the rows of stored parts, by role."""
        stored = [(name, p) for name, p in self.keyed.items() if isinstance(p, StoredPart)]
        return {name.removesuffix(part.name): part.source for name, part in stored}

    def take_databases(self, role: str) -> list[RestoredDatabase]:
        """Those of this role; they are no longer in here."""
        found = [one for one in self.databases if one.handle.role == role]
        self.databases = [one for one in self.databases if one.handle.role != role]
        return found

    def close(self, *, is_kept: bool) -> None:
        """It was written and will be told of, or not: what lies on disk for it is removed. A second call does nothing."""
        for part in self.keyed.values():
            part.close(is_kept=is_kept)


def _extend(parts: dict[str, KeyedPart], others: Mapping[str, KeyedPart]) -> None:
    for name, part in others.items():
        if name in parts:
            parts[name].extend(part)
        else:
            parts[name] = part


def check_restored(uid: str, name: str, restored: StateInfo, wanted: StateInfo) -> None:
    """Raises: UserError when a state was something else in the checkpoint."""
    if restored == wanted:
        return
    raise UserError(
        f"operator {uid!r} cannot restore its state {name!r}: the checkpoint has it as {restored}, and the "
        f"program declares it as {wanted}. Declare it as it was, or give the new state another name."
    )


def check_all_taken(uid: str, operator: str, restored: OperatorSnapshot) -> None:
    """Raises: UserError when the operator, of another kind than the one that wrote it, has left some state."""
    left = restored.not_taken()
    if left:
        shown = "; ".join(f"{name!r} ({info})" for name, info in sorted(left.items()))
        raise UserError(
            f"operator {uid!r} cannot restore {shown}: the checkpoint was written by an operator of another kind, and "
            f"{operator} has no place for it. Make the operator what it was, or give it another uid and start with "
            "execution.savepoint.ignore-unclaimed-state (penstock run -s ... -n), which leaves that state behind."
        )


def check_key_hash(uid: str, name: str, restored: KeyedPart, *, is_int32: bool) -> None:
    """Raises: UserError when keys were put into key groups by another rule."""
    if restored.is_int32 == is_int32 or not restored.keys:
        return
    rules = {True: "INT, SHORT or BYTE", False: "not INT, SHORT or BYTE"}
    raise UserError(
        f"operator {uid!r} cannot restore its state {name!r}: when it was written, the declared key type was "
        f"{rules[restored.is_int32]}, now it is {rules[is_int32]}, and keys go to other subtasks by that. "
        "Declare the key type of key_by as it was."
    )
