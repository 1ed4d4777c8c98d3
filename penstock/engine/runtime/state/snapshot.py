"""What one operator keeps in a checkpoint: keyed parts and lists, and their layout in bytes. Does not know files or
operators.

An operator's `snapshot` hands over its tables, copied flat. Before the next record is processed, `freeze` makes them
independent of changes that user code makes to the objects in them. Values that cannot change (numbers, text, tuples of
them, copied lists and dicts of those, and Rows of them) are kept as they are; everything else is pickled at once. Key
groups, order and bytes are left to the thread that writes (`snapshot_writer.py`). Source: Flink StateSnapshot,
CopyOnWriteStateMap, RegisteredStateMetaInfoSnapshot; differs: values are live objects that their owners may change in
place, so copy-on-write would not notice a change.

Keyed state is written in chunks of neighbouring key groups. Each chunk has its own handle and checksum, so that a
restore at another parallelism reads only chunks that contain some of its own groups:

    length of header (4 bytes) | header (JSON: the parts) | group | group | ...
    group:  (part number: 2 | rows: 4 | key column | other columns) ...
    column: see `column_format`
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.engine.model.checkpoints import DatabaseHandle, RedistributionMode, StateHandle
from penstock.engine.model.errors import FinalError
from penstock.engine.model.key_types import KeyMigration, KeyType
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.records.frozen import Dumps, frozen
from penstock.engine.runtime.state.column_format import pickled
from penstock.engine.runtime.state.packed import (
    KeyRule,
    SortedKeys,
    StateColumn,
    TableValues,
    packed,
)

Add: TypeAlias = Callable[[bytes], StateHandle]
Read: TypeAlias = Callable[[StateHandle], bytes]

IN_HAND: Final = "in_hand"
"""List state of a chain's head: (input, element) of elements that were read and not yet processed."""


COLUMN_WINDOWS: Final = "Column windows"
"""The kind of state whose keys are key groups, and whose values are tables."""


@dataclass(frozen=True, slots=True)
class StateInfo:
    """The properties of a state that must be equal when it is restored. `kind`: "Value", "Map" and so on, or one of
    the engine's own.

    `type_info`: the declared type, if there is one. It has `type_text` already, but says more when the two differ.
    """

    kind: str
    type_text: str = ""
    has_ttl: bool = False
    type_info: TypeInformation | None = field(default=None, compare=False)

    def __str__(self) -> str:
        shown = f"{self.kind} of {self.type_text}" if self.type_text else self.kind
        return f"{shown} {'with' if self.has_ttl else 'without'} time to live"


@dataclass(slots=True)
class KeyedPart:
    """Rows of state: `keys[i]` (a state key, see `state_key`) and `columns[...][i]`.

    `groups`: the key group of each row, if it is not that of the row's key: shape (rows,). `rule`: what the state knows of its keys
    from one checkpoint to the next; None: nothing.
    """

    info: StateInfo
    max_parallelism: int
    is_int32: bool
    keys: list[Any]
    columns: list[StateColumn]
    groups: NDArray[np.int64] | None = None
    rule: KeyRule | None = None

    def rows(self) -> Iterable[tuple[Any, ...]]:
        """(state key, *columns) of each row. The part must not be frozen."""
        return zip(self.keys, *self.columns, strict=True)

    def extend(self, other: KeyedPart) -> None:
        """Append the rows of other key groups. Neither part may be frozen."""
        self.keys.extend(other.keys)
        for column, more in zip(self.columns, other.columns, strict=True):
            assert isinstance(column, list), "a frozen part cannot be extended"
            assert isinstance(more, list | TableValues), "a frozen part cannot be appended"
            column.extend(more)

    def sorted_keys(self) -> SortedKeys:
        rule = self.rule
        if rule is None:
            rule = KeyRule(self.max_parallelism, self.is_int32)
        return rule.sorted(self.keys, self.groups)

    def freeze(self, dumps: Dumps) -> None:
        """Make the columns independent of later changes to the objects in them."""
        self.columns = [_frozen(column, dumps) for column in self.columns]

    def close(self, *, is_kept: bool) -> None:
        """The part was written, or is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How files get to the place that checkpoints share. `groups`: first and last key group of the subtask.

    `share`: writes a file; `is_ours`: whether a handle is in a place to which later checkpoints of this job may refer.
    """

    groups: tuple[int, int]
    share: Add
    is_ours: Callable[[StateHandle], bool]


@dataclass(frozen=True, slots=True)
class RestoredDatabase:
    """A database of a former subtask. `groups`: first and last key group of the restored subtask. `keys`: what is done
    to its keys; None: nothing.
    """

    handle: DatabaseHandle
    groups: tuple[int, int]
    read: Read
    keys: KeyMigration | None = None


class RowSource(Protocol):
    """Rows that are not in memory, by key group, as they were when the snapshot was taken."""

    def groups(self, name: str, /) -> Iterable[int]: ...
    def columns(self, name: str, group: int, /) -> list[list[Any]]:
        """The keys, namespaces and raw values of one key group."""
        ...

    def write_files(self, sharing: Sharing, add: Add, /) -> Iterable[tuple[str, StateHandle]]:
        """Write everything as files: files that never change are shared, the others added."""
        ...

    def close(self, *, is_kept: bool) -> None: ...


class StoredPart(KeyedPart):
    """Rows of a state that a backend keeps on disk. They are read when they are written, one key group at a time."""

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
        """`columns`: how many there are in addition to the keys."""
        super().__init__(info, max_parallelism, is_int32, [], [[] for _ in range(columns)])
        self.source = source
        self.name = name

    def freeze(self, dumps: Dumps) -> None:
        """Does nothing: the files do not change."""

    def close(self, *, is_kept: bool) -> None:
        self.source.close(is_kept=is_kept)


@dataclass(slots=True)
class ListPart:
    """One named operator state: its elements, which are distributed as `mode` says. When frozen, each element is a mark and a pickle
    (`column_format.pickled`).

    `type_info`: the declared type of each element; None: there is none.
    """

    mode: RedistributionMode
    elements: list[Any]
    type_info: TypeInformation | None = None


class Pieces(Protocol):
    """Reads the parts whose names begin with the prefix, which is removed from the names. A part may come in any number of pieces."""

    def __call__(self, prefix: str, /) -> Iterator[dict[str, KeyedPart]]: ...
    def not_taken(self) -> dict[str, StateInfo]:
        """The parts that have rows, and whose names began with no prefix that was asked for."""
        ...


@dataclass(slots=True)
class OperatorSnapshot:
    """Keyed parts by name (`role/state` where a role has several states), and lists by name.

    `pieces`: keyed parts that have not been read yet, in place of `keyed`. `keys`: the type of all keys, when it is written.
    `allows_double`: when it is restored, integers may become DOUBLE. `key_kinds`: as of an `OperatorRestore`.
    """

    keyed: dict[str, KeyedPart] = field(default_factory=dict)
    lists: dict[str, ListPart] = field(default_factory=dict)
    databases: list[RestoredDatabase] = field(default_factory=list)
    pieces: Pieces | None = None
    keys: KeyType | None = None
    allows_double: bool = False
    key_kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keyed or self.lists or self.databases or self.pieces)

    def add(self, role: str, parts: Mapping[str, KeyedPart]) -> None:
        """Add all states of a role."""
        self.keyed.update((f"{role}/{name}", part) for name, part in parts.items())

    def take(self, prefix: str = "") -> dict[str, KeyedPart]:
        """Remove and return the parts of a role (`role/`), or all parts."""
        names = [name for name in self.keyed if name.startswith(prefix)]
        found = {name.removeprefix(prefix): self.keyed.pop(name) for name in names}
        for piece in () if self.pieces is None else self.pieces(prefix):
            _extend(found, piece)
        return found

    def hold(self, other: OperatorSnapshot) -> None:
        """Add the keyed parts of another snapshot, which has other key groups. Neither may be frozen."""
        _extend(self.keyed, other.keyed)

    def take_in_pieces(self, prefix: str = "") -> Iterator[dict[str, KeyedPart]]:
        """As `take`, but a few key groups at a time if the snapshot is read in pieces."""
        if self.pieces is None:
            yield self.take(prefix)
        else:
            yield from self.pieces(prefix)

    def not_taken(self) -> dict[str, str]:
        """What nobody has taken, by name. For a snapshot that is read in pieces: the parts in addition to those that were read."""
        found = {name: str(part.info) for name, part in self.keyed.items() if part.keys}
        found |= {one.handle.role: "files of RocksDB" for one in self.databases}
        if self.pieces is not None:
            found |= {name: str(info) for name, info in self.pieces.not_taken().items()}
        return found

    def elements(self, name: str) -> list[Any]:
        """The elements of a list; empty when there is none."""
        part = self.lists.get(name)
        return [] if part is None else part.elements

    def freeze(self, dumps: Dumps, keys: KeyType | None = None) -> OperatorSnapshot:
        """Make the snapshot independent of later changes to its objects. `keys`: their type. Raises: what `dumps` raises."""
        self.keys = keys
        for part in self.keyed.values():
            part.freeze(dumps)
        for state in self.lists.values():
            state.elements = [b"".join(pickled(element, dumps)) for element in state.elements]
        return self

    def sources(self) -> dict[str, RowSource]:
        """The sources of stored parts, by role."""
        stored = [(name, p) for name, p in self.keyed.items() if isinstance(p, StoredPart)]
        return {name.removesuffix(part.name): part.source for name, part in stored}

    def take_databases(self, role: str) -> list[RestoredDatabase]:
        """Remove and return the databases of this role."""
        found = [one for one in self.databases if one.handle.role == role]
        self.databases = [one for one in self.databases if one.handle.role != role]
        return found

    def close(self, *, is_kept: bool) -> None:
        """The snapshot was written (`is_kept`) or given up: remove its files from disk. A second call does nothing."""
        for part in self.keyed.values():
            part.close(is_kept=is_kept)


def _frozen(column: StateColumn, dumps: Dumps) -> StateColumn:
    if not isinstance(column, list | TableValues):
        return column
    found = packed(column)
    return frozen(list(column), dumps) if found is None else found


def _extend(parts: dict[str, KeyedPart], others: Mapping[str, KeyedPart]) -> None:
    for name, part in others.items():
        if name in parts:
            parts[name].extend(part)
        else:
            parts[name] = part


def check_restored(owner: str, name: str, restored: StateInfo, wanted: StateInfo) -> None:
    """Raises: FinalError when a state had another kind or type in the checkpoint."""
    if restored != wanted:
        refuse_restored(owner, name, restored, wanted)


def refuse_restored(
    owner: str, name: str, restored: StateInfo, wanted: StateInfo, reason: str = ""
) -> NoReturn:
    """Raises: FinalError: a state cannot be restored. `reason`: why its values cannot be migrated."""
    why = f" ({reason})" if reason else ""
    raise FinalError(
        f"{owner} cannot restore its state {name!r}: the checkpoint has it as {restored}, and the "
        f"program declares it as {wanted}{why}. Declare it as it was, or give the new state another name."
    )


def check_all_taken(uid: str, operator: str, restored: OperatorSnapshot) -> None:
    """Raises: FinalError when an operator of another kind than the one that wrote the state has left some of it."""
    refuse_left(uid, operator, restored.not_taken())


def refuse_left(uid: str, operator: str, left: Mapping[str, str]) -> None:
    """Raises: FinalError: there is state for which an operator has no place. `left`: its properties, by name."""
    if left:
        shown = "; ".join(f"{name!r} ({info})" for name, info in sorted(left.items()))
        raise FinalError(
            f"operator {uid!r} cannot restore {shown}: the checkpoint was written by an operator of another kind, and "
            f"{operator} has no place for it. Make the operator what it was, or give it another uid and start with "
            "execution.savepoint.ignore-unclaimed-state (penstock run -s ... -n), which drops that state."
        )


def check_key_hash(owner: str, name: str, restored: KeyedPart, *, is_int32: bool) -> None:
    """Raises: FinalError when keys were put into key groups by another rule."""
    if restored.is_int32 == is_int32 or not restored.keys:
        return
    rules = {True: "INT, SHORT or BYTE", False: "not INT, SHORT or BYTE"}
    raise FinalError(
        f"{owner} cannot restore its state {name!r}: when it was written, the declared key type was "
        f"{rules[restored.is_int32]}, now it is {rules[is_int32]}, and that sends keys to other subtasks. "
        "Declare the key type of key_by as it was."
    )


VERSION: Final = 1
SECTION_HEAD: Final = struct.Struct("<HI")
"""Number of the part, and number of rows, before a key group's columns of that part."""
