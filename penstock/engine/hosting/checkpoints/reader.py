"""Reads a savepoint or checkpoint without a job: its operators, states, sizes and key groups, and
keyed state as a table.

`Savepoint` reads no pickled object unless it is asked for state that contains pickled objects. So
another user's may be looked at; its state is read only where no other user can have changed it.
Source: Flink's State Processor API (SavepointReader), reading only.

Opens the databases of an incremental checkpoint to read them. Their files are first copied into
a temporary directory.

Needs `rocksdict` in this process. Source: Flink's State Processor API, which restores a RocksDB
backend to read one.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage, malformed_is_damaged
from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.file_systems import joined, parted
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.model.checkpoints import (
    METADATA,
    SHARED_FOLDER,
    CompletedCheckpoint,
    DatabaseHandle,
    FileHandle,
    ListStateShare,
    OperatorCheckpoint,
    OperatorRestore,
    OperatorSubtaskState,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError, UserError
from penstock.engine.model.ids import JobId
from penstock.engine.model.row import Row
from penstock.engine.runtime.keys.hashing import original_key, state_keys
from penstock.engine.runtime.state.map_entries import plain_map
from penstock.engine.runtime.state.rocks.database import SlotMemory, slot_memory
from penstock.engine.runtime.state.rocks.restore import fetch
from penstock.engine.runtime.state.rocks.snapshots import RocksSnapshot, Uploads, snapshot_at
from penstock.engine.runtime.state.snapshot import KeyedPart, Read, RestoredDatabase, StateInfo
from penstock.engine.runtime.state.snapshot_reader import infos_in, read_operator, rows_by_group

_MEMORY: Final = 64 << 20


def opened(
    databases: Iterable[DatabaseHandle], read: Read
) -> Iterator[tuple[DatabaseHandle, RocksSnapshot]]:
    """Yield the opened databases one after the other; each is removed when the next is asked for.

    Raises: ExternalError: the package rocksdict is missing here. What `read` raises.
    """
    memory: SlotMemory | None = None
    for handle in databases:
        memory = memory or _memory()
        with _opened(handle, read, memory) as found:
            yield handle, found


def keyed_part(
    databases: Iterable[DatabaseHandle], read: Read, name: str, max_parallelism: int
) -> KeyedPart | None:
    """Return all rows of a state by its name, with its role; None: no database has it. Raises: as `opened`."""
    whole: KeyedPart | None = None
    for handle, database in opened(databases, read):
        own_name = name.removeprefix(handle.role)
        info = database.infos.get(own_name)
        if info is None or not name.startswith(handle.role):
            continue
        for group in list(database.groups(own_name)):
            keys, *columns = database.columns(own_name, group)
            part = KeyedPart(info, max_parallelism, False, state_keys(keys), list(columns))
            if whole is None:
                whole = part
            else:
                whole.extend(part)
    return whole


@contextmanager
def _opened(handle: DatabaseHandle, read: Read, memory: SlotMemory) -> Generator[RocksSnapshot]:
    with _folder() as folder:
        directory = str(Path(folder) / "db")
        fetch(RestoredDatabase(handle, (handle.first_group, handle.last_group), read), directory)
        uploads = Uploads(threading.Lock)
        found = snapshot_at(directory, memory, dumps_records, loads_records, uploads)
        try:
            yield found
        finally:
            found.close(is_kept=False)


@contextmanager
def _folder() -> Generator[str]:
    """A temporary folder, by a path on which nobody else can put other files in the place of ours."""
    with tempfile.TemporaryDirectory(prefix="penstock-read-") as folder:
        held = private_files.hold(folder)
        try:
            yield private_files.held_path(held, folder)
        finally:
            os.close(held)


def _memory() -> SlotMemory:
    try:
        return slot_memory(_MEMORY)
    except UserError as error:
        raise ExternalError(
            "this is an incremental checkpoint, whose keyed state is stored in RocksDB "
            "files, and the package 'rocksdict' cannot be imported here. Install it (pip "
            "install 'penstock[rocksdb]'), or read a savepoint instead."
        ) from error


_READER = JobId("reader")
_USER_STATE = "state/"


@dataclass(slots=True)
class KeyedStateView:
    """Describes one keyed state.

    `kind` is Value, Map and so on, with the declared type. `groups` has the rows of each key group.
    """

    name: str
    kind: str
    rows: int = 0
    size_bytes: int = 0
    groups: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class ListStateView:
    """Describes one operator state. `mode`: how its elements are redistributed."""

    name: str
    mode: str
    elements: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OperatorView:
    """Describes one operator.

    `size_bytes` is the size of all its state. `is_finished`: all its subtasks had finished.
    """

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    is_finished: bool
    size_bytes: int
    coordinator_bytes: int
    bytes_in_flight: int
    keyed: tuple[KeyedStateView, ...]
    lists: tuple[ListStateView, ...]

    @property
    def group_rows(self) -> Counter[int]:
        """The number of rows of keyed state by key group, for all states together."""
        return sum((state.groups for state in self.keyed), Counter[int]())


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Keyed state as columns: `keys[i]`, its namespace (a window, or None), and its value."""

    keys: list[Any]
    namespaces: list[Any]
    values: list[Any]

    def __len__(self) -> int:
        return len(self.keys)

    def columns(self) -> dict[str, list[Any]]:
        """Return lists by name: key, namespace if any, and value or a Row value's fields."""
        found = {"key": self.keys}
        if any(namespace is not None for namespace in self.namespaces):
            found["namespace"] = self.namespaces
        names = _shared_fields(self.values)
        if names:
            for place, name in enumerate(names):
                column = name if name not in found else f"value.{name}"
                found[column] = [value[place] for value in self.values]
        else:
            found["value"] = self.values
        return found

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`. Raises UserError if Arrow does not know a column's objects."""
        import pyarrow as pa

        arrays = {}
        for name, values in self.columns().items():
            try:
                arrays[name] = pa.array(values)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UserError(
                    f"column '{name}' of the state cannot be an Arrow column: {error}. Use "
                    "to_pandas(), which keeps any object."
                ) from error
        return pa.table(arrays)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Raises ExternalError if pandas is not installed."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ExternalError(
                "pandas is not installed here, so there are no data frames. Install it, or "
                "use to_arrow()."
            ) from error
        return pd.DataFrame({
            name: pd.Series(values, dtype=None if _is_plain(values) else object)
            for name, values in self.columns().items()
        })


class Savepoint:
    """A savepoint or checkpoint. `location`: path or URI of its folder or metadata file."""

    def __init__(self, location: str) -> None:
        """Open the savepoint.

        Raises:
            ConfigurationError: the file system is not known.
            CheckpointDamaged: there is no savepoint, or it is not complete.
        """
        location = location.rstrip("/")
        folder, name = parted(location)
        self._folder = folder if name == METADATA else location
        self._storage = CheckpointStorage(self._folder, _READER, is_checked=False)
        self._trusted = CheckpointStorage(self._folder, _READER)
        self.checkpoint: CompletedCheckpoint = self._storage.load_given(self._folder)

    # ------------------------------------------------------------------ looking

    def operators(self) -> list[OperatorView]:
        """Return the operators from sources to sinks; reads and checks all keyed state.

        Raises:
            CheckpointDamaged: a file is missing or damaged.
        """
        with malformed_is_damaged(self._folder):
            return [self._view(operator) for operator in self.checkpoint.operators]

    @property
    def size_bytes(self) -> int:
        states = (state for o in self.checkpoint.operators for state in o.subtasks if state)
        return sum(state.size_bytes for state in states)

    def _view(self, operator: OperatorCheckpoint) -> OperatorView:
        states = [state for state in operator.subtasks if state is not None]
        in_flight = [
            one.handle.size
            for state in states
            for one in (*state.inputs_in_flight, *state.outputs_in_flight)
        ]
        return OperatorView(
            operator.uid,
            operator.name,
            operator.parallelism,
            operator.max_parallelism,
            operator.is_fully_finished,
            sum(state.size_bytes for state in states),
            len(operator.coordinator_state or b""),
            sum(in_flight),
            tuple(self._keyed(states)),
            tuple(_lists(states)),
        )

    def _keyed(self, states: list[OperatorSubtaskState]) -> list[KeyedStateView]:
        found: dict[str, KeyedStateView] = {}

        def add(name: str, info: StateInfo, group: int, rows: int, size: int) -> None:
            shown = name.removeprefix(_USER_STATE)
            view = found.setdefault(shown, KeyedStateView(shown, str(info)))
            view.rows += rows
            view.size_bytes += size
            view.groups[group] += rows

        for state in states:
            for handle in state.keyed:
                data = self._storage.read(handle.handle)
                for section in rows_by_group(handle, data):
                    add(*section)
        databases = [one for state in states for one in state.databases]
        for database_handle, database in opened(databases, self._storage.read):
            for name, info in database.infos.items():
                for group, rows, size in database.sizes(name):
                    add(database_handle.role + name, info, group, rows, size)
        return list(found.values())

    def state_infos(self, operator: OperatorCheckpoint) -> tuple[dict[str, StateInfo], set[str]]:
        """Return the properties of an operator's keyed states, by name with its role, and the names
        of those that have rows. Reads no values.

        Raises:
            CheckpointDamaged: a file is missing or damaged.
        """
        with malformed_is_damaged(self._folder):
            return self._infos(operator)

    def _infos(self, operator: OperatorCheckpoint) -> tuple[dict[str, StateInfo], set[str]]:
        infos: dict[str, StateInfo] = {}
        filled: set[str] = set()
        states = [state for state in operator.subtasks if state is not None]
        for handle in (handle for state in states for handle in state.keyed):
            data = self._storage.read(handle.handle)
            infos |= infos_in(data)
            filled |= {name for name, *_ in rows_by_group(handle, data)}
        databases = [one for state in states for one in state.databases]
        for of_role, database in opened(databases, self._storage.read):
            for name, info in database.infos.items():
                infos[of_role.role + name] = info
                if next(database.groups(name), None) is not None:
                    filled.add(of_role.role + name)
        return infos, filled

    # ------------------------------------------------------------------ reading

    def keyed_state(self, uid: str, name: str) -> KeyedRows:
        """Return all rows of a keyed state.

        Args:
            uid: the operator's uid.
            name: the name of the state's descriptor, as `operators` shows it.

        Raises:
            ConfigurationError: there is no such state, or other users could have changed it.
            CheckpointDamaged: a file is missing or damaged.
        """
        operator = self._trusted_operator(uid)
        read = self._trusted.read
        states = [state for state in operator.subtasks if state is not None]
        restore = OperatorRestore(tuple(handle for state in states for handle in state.keyed))
        groups = (0, operator.max_parallelism - 1)
        snapshot = read_operator(restore, read, groups, loads_records)
        part = snapshot.keyed.get(_USER_STATE + name) or snapshot.keyed.get(name)
        part = part or self._part_on_disk(operator, name)
        if part is None:
            names = sorted(view.name for view in self._keyed(states))
            raise ConfigurationError(
                f"operator {uid!r} has no keyed state {name!r} in {self._folder}; it has: {', '.join(names) or 'none'}."
            )
        return _rows(part)

    def _part_on_disk(self, operator: OperatorCheckpoint, name: str) -> KeyedPart | None:
        """Read a keyed state of an incremental checkpoint."""
        databases = [one for state in operator.subtasks if state for one in state.databases]
        read, groups = self._trusted.read, operator.max_parallelism
        part = keyed_part(databases, read, _USER_STATE + name, groups)
        return part or keyed_part(databases, read, name, groups)

    def list_state(self, uid: str, name: str) -> list[Any]:
        """Return all elements of an operator state, by subtask. Raises as `keyed_state` does."""
        operator = self._trusted_operator(uid)
        shares = tuple(
            ListStateShare(one, 0, len(one.offsets) - 1)
            for state in operator.subtasks
            if state is not None
            for one in state.lists
            if one.name == name
        )
        if not shares:
            names = sorted({
                one.name for state in operator.subtasks if state for one in state.lists
            })
            raise ConfigurationError(
                f"operator {uid!r} has no list state {name!r} in {self._folder}; it has: {', '.join(names) or 'none'}."
            )
        restore = OperatorRestore(lists=shares)
        snapshot = read_operator(restore, self._trusted.read, (0, 0), loads_records)
        return snapshot.elements(name)

    def _trusted_operator(self, uid: str) -> OperatorCheckpoint:
        """Read the metadata once more, checked this time: small state is in it."""
        checkpoint = self._trusted.load_given(self._folder)
        for operator in checkpoint.operators:
            if uid in {operator.uid, operator.name}:
                return operator
        uids = ", ".join(operator.uid for operator in checkpoint.operators)
        raise ConfigurationError(
            f"{self._folder} has no operator of uid or name {uid!r}; it has: {uids}."
        )

    # ------------------------------------------------------------------ removing

    def dispose(self) -> None:
        """Delete the savepoint; its job must not be running.

        The metadata goes first, then the folder, then the files that it shared with checkpoints
        next to it and that none of those left needs.

        Raises:
            CheckpointIoError: a file cannot be deleted.
            ConfigurationError: some of its files are in another place.
        """
        assert self.checkpoint.location is not None
        folder = parted(self.checkpoint.location)[0]
        shared = joined(parted(folder)[0], SHARED_FOLDER)
        others = {
            path for path in _files(self.checkpoint) if parted(path)[0] not in {folder, shared}
        }
        if others:
            raise ConfigurationError(
                f"{self._folder} refers to files outside of it ({min(others)}), and this "
                "process does not know who else needs them. Begin the job with it once more "
                "(penstock run -s), take a savepoint, and remove both folders."
            )
        self._storage.discard(self.checkpoint)
        self._storage.discard_claimed(self.checkpoint)


def read_savepoint(location: str) -> Savepoint:
    """Open a savepoint, or a checkpoint that was kept, to read its state.

    Example:
        `read_savepoint(path).keyed_state("uid", "name").to_pandas()`

    Args:
        location: path or URI of the folder or its metadata file.

    Raises:
        ConfigurationError: the file system is not known.
        CheckpointDamaged: there is no savepoint, or it is not complete.
    """
    return Savepoint(location)


def _files(checkpoint: CompletedCheckpoint) -> Iterator[str]:
    for operator in checkpoint.operators:
        for state in operator.subtasks:
            for handle in () if state is None else state.handles:
                if isinstance(handle, FileHandle):
                    yield handle.path


def _lists(states: list[OperatorSubtaskState]) -> list[ListStateView]:
    found: dict[str, ListStateView] = {}
    for state in states:
        for one in state.lists:
            view = found.setdefault(one.name, ListStateView(one.name, str(one.mode)))
            view.elements += len(one.offsets)
            view.size_bytes += one.handle.size
    return list(found.values())


def _rows(part: KeyedPart) -> KeyedRows:
    keys = [original_key(key) for key in part.keys]
    columns: list[Any] = list(part.columns)
    if len(columns) == 2:
        values = columns[1]
        if part.info.has_ttl:
            values = [_without_times(part.info.kind, value) for value in values]
        if part.info.kind == "Map":
            values = list(map(plain_map, values))
        return KeyedRows(keys, columns[0], values)
    nothing = [None] * len(keys)
    values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return KeyedRows(keys, nothing, values if columns else nothing)


def _without_times(kind: str, raw: Any) -> Any:
    """Strip the time of last access from a value of a state with time to live."""
    if kind == "List":
        return [value for value, _ in raw]
    if kind == "Map":
        return {key: value for key, (value, _) in raw.items()}
    return raw[0]


def _shared_fields(values: list[Any]) -> tuple[str, ...]:
    """Return the field names if all values are Rows with the same names; else nothing."""
    if not all(isinstance(value, Row) for value in values):
        return ()
    found = {value._fields for value in values}
    return (found.pop() or ()) if len(found) == 1 else ()


def _is_plain(values: list[Any]) -> bool:
    kinds = set(map(type, values))
    return len(kinds) == 1 and kinds <= {int, float, bool}
