"""The RocksDB of one operator in one subtask: a column family for each state, and the memory that all databases of a slot
share.

There is no write-ahead log: what is lost in a failure is restored from a checkpoint. Does not know kinds of state or
keys. Source: Flink RocksDBResourceContainer, RocksDBMemoryControllerUtils, EmbeddedRocksDBStateBackendFactory.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.engine.model.errors import UserError
from penstock.engine.model.texts.type_texts import type_of_text, type_text
from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.state.raw import RawKeyedStateBackend
from penstock.engine.runtime.state.rocks.encoding import GROUP, group_start
from penstock.engine.runtime.state.snapshot import StateInfo

DEFAULT_FAMILY: Final = "default"
_CURRENT: Final = "CURRENT"
"""RocksDB recognises a database by this file, which names the manifest."""
_WRITE_BUFFER_SHARE: Final = 0.5
_BLOOM_BITS: Final = 10
_MIN_WRITE_BUFFER: Final = 1 << 20
_MAX_WRITE_BUFFER: Final = 64 << 20
_MIN_FILE: Final = 4 << 20
_INFO: Final = b"state/"
_WINDOWS: Final = b"windows/"
_NEXT_NUMBER: Final = b"next number"
_NUMBER: Final = struct.Struct(">Q")


def rocksdict() -> Any:
    """The package. Raises: UserError: it is not installed."""
    try:
        import rocksdict as package
    except ImportError as error:
        raise UserError(
            "state.backend.type is 'rocksdb', but the package 'rocksdict' cannot be imported on this TaskManager "
            f"({error}). Install it on all executors (pip install 'penstock[rocksdb]'), ship it with "
            "spark.archives, or set state.backend.type to 'hashmap'."
        ) from None
    return package


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SlotMemory:
    """The block cache and the write buffers of all databases of a slot. Together they stay within one size."""

    cache: Any
    write_buffers: Any
    size: int


def slot_memory(size: int) -> SlotMemory:
    """`size`: in bytes. Raises: as `rocksdict`."""
    package = rocksdict()
    cache = package.Cache(size)
    buffers = package.WriteBufferManager.new_write_buffer_manager_with_cache(
        int(size * _WRITE_BUFFER_SHARE), False, cache
    )
    return SlotMemory(cache, buffers, size)


Remove: TypeAlias = Callable[[str], object]
"""Removes a directory with its content, now or later."""


def remove_now(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)


class Database:
    """A database that is open from `__init__` to `close`, in a directory that nobody else uses and that `close` removes."""

    def __init__(self, directory: str, memory: SlotMemory) -> None:
        """The directory may hold the files of a snapshot. Raises: UserError: the package is missing; OSError."""
        self._package = rocksdict()
        self._memory = memory
        self.directory = directory
        names = self._existing()
        families = {name: self._options() for name in names if name != DEFAULT_FAMILY}
        self._db = self._package.Rdict(directory, self._options(), families or None)
        self._quick = self._package.WriteOptions()
        self._quick.disable_wal = True
        self._db.set_write_options(self._quick)
        self._families = {
            name: self._adopted(self._db.get_column_family(name)) for name in families
        }

    def family(self, name: str) -> Any:
        """The column family of a state, made if there is none."""
        found = self._families.get(name)
        if found is None:
            found = self._adopted(self._db.create_column_family(name, self._options()))
            self._families[name] = found
        return found

    @property
    def families(self) -> Mapping[str, Any]:
        """The column families of all states."""
        return self._families

    @property
    def next_number(self) -> int:
        """The next free number, above all that were used. Rows that only differ by a number use it."""
        stored = self._db.get(_NEXT_NUMBER)
        return 0 if stored is None else _NUMBER.unpack(stored)[0]

    @next_number.setter
    def next_number(self, number: int) -> None:
        self._db[_NEXT_NUMBER] = _NUMBER.pack(number)

    # ------------------------------------------------------------------ what the states are

    def note_info(self, name: str, info: StateInfo) -> None:
        values = None if info.type_info is None else type_text(info.type_info)
        noted = [info.kind, info.type_text, info.has_ttl, values]
        self._db[_INFO + name.encode()] = json.dumps(noted).encode()

    @property
    def infos(self) -> dict[str, StateInfo]:
        """The infos of all states that were ever noted."""
        found = self._db.items(from_key=_INFO)
        noted = ((key, text) for key, text in found if key.startswith(_INFO))
        return {key[len(_INFO) :].decode(): _info_of(text) for key, text in noted}

    def info(self, name: str) -> StateInfo | None:
        """The info noted last; None: there is none."""
        text = self._db.get(_INFO + name.encode())
        return None if text is None else _info_of(text)

    def note_windows(self, name: str, waiting: Iterable[int], fired: Iterable[int]) -> None:
        """Note the starts of all windows of a state with windows: those that have not fired, and those that have."""
        self._db[_WINDOWS + name.encode()] = json.dumps([list(waiting), list(fired)]).encode()

    def windows(self, name: str) -> tuple[list[int], list[int]]:
        """The starts noted last."""
        text = self._db.get(_WINDOWS + name.encode())
        if text is None:
            return [], []
        waiting, fired = json.loads(text)
        return waiting, fired

    # ------------------------------------------------------------------ the whole database

    def checkpoint(self, directory: str) -> None:
        """Link all current files into a directory that must not exist. Fast, because only data in memory is written."""
        self._package.Checkpoint(self._db).create_checkpoint(directory)

    def close(self, remove: Remove = remove_now) -> None:
        """Close the database, and have its files removed."""
        for family in self._families.values():
            family.close()
        self._db.close()
        remove(self.directory)

    def _existing(self) -> list[str]:
        """The column families of a restored database. Raises if its files are damaged."""
        if not os.path.exists(os.path.join(self.directory, _CURRENT)):
            return []
        names: list[str] = self._package.Rdict.list_cf(
            self.directory, self._package.Options(raw_mode=True)
        )
        return names

    def _adopted(self, family: Any) -> Any:
        family.set_write_options(self._quick)
        return family

    def _options(self) -> Any:
        package = self._package
        table = package.BlockBasedOptions()
        table.set_block_cache(self._memory.cache)
        table.set_bloom_filter(_BLOOM_BITS, False)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = package.Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self._memory.write_buffers)
        buffer = int(self._memory.size * _WRITE_BUFFER_SHARE) // 4
        options.set_write_buffer_size(min(max(buffer, _MIN_WRITE_BUFFER), _MAX_WRITE_BUFFER))
        # A checkpoint holds the whole file in memory while it writes it.
        options.set_target_file_size_base(max(self._memory.size // 8, _MIN_FILE))
        options.set_max_open_files(-1)
        return options


def _info_of(text: bytes) -> StateInfo:
    kind, shown, has_ttl, declared = json.loads(text)
    return StateInfo(kind, shown, has_ttl, None if declared is None else type_of_text(declared))


def rows_with(family: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of all rows that begin with the prefix, in order, as they are at the call."""
    found = family.iter()
    found.seek(prefix)
    while found.valid():
        key = found.key()
        if not key.startswith(prefix):
            return
        yield key, found.value()
        found.next()


def groups_in(family: Any) -> Iterator[int]:
    """The key groups in which a family has rows, in order."""
    found = family.iter()
    found.seek_to_first()
    while found.valid():
        (group,) = GROUP.unpack_from(found.key())
        yield group
        found.seek(group_start(group + 1))


class RocksStore(RawKeyedStateBackend):
    """The backend as its states, timers, windows and the restore see it. Opens nothing.

    `dumps`, `loads`: turn values into bytes and back.
    """

    dumps: Dumps
    loads: Loads

    @property
    @abstractmethod
    def database(self) -> Database:
        """The database. It is opened at first use, because before that its files may be restored."""

    @abstractmethod
    def prefix(self) -> bytes:
        """The prefix of the rows of the current key and namespace."""

    @abstractmethod
    def key_suffix(self) -> bytes:
        """What the values of rows of the current key end with."""

    @abstractmethod
    def prefix_of(self, skey: Any, namespace: Any) -> bytes: ...
    @abstractmethod
    def group_of_state_key(self, skey: Any) -> int: ...
    @abstractmethod
    def next_number(self) -> int:
        """A number higher than all earlier ones, including those of the backend that this one was restored from."""

    @abstractmethod
    def family_of(self, name: str, info: StateInfo) -> Any:
        """The column family of a state that is used. Raises: UserError: another state was restored under that name."""

    @abstractmethod
    def has_state(self, name: str) -> bool:
        """Whether such a state exists already. Does not open the database."""
