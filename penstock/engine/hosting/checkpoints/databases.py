"""Opens the databases of an incremental checkpoint to read them. Their files are first copied into
a temporary directory.

Needs `rocksdict` in this process. Source: Flink's State Processor API, which restores a RocksDB
backend to read one.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.model.checkpoints import DatabaseHandle
from penstock.engine.model.errors import ExternalError, UserError
from penstock.engine.runtime.keys.hashing import state_keys
from penstock.engine.runtime.state.rocks.database import SlotMemory, slot_memory
from penstock.engine.runtime.state.rocks.restore import fetch
from penstock.engine.runtime.state.rocks.snapshots import RocksSnapshot, Uploads, snapshot_at
from penstock.engine.runtime.state.snapshot import KeyedPart, Read, RestoredDatabase

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
