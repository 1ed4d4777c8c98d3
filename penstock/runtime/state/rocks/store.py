"""RocksStore: what states, timers, windows and the restore know of the backend that they belong to. Opens nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.runtime.records.frozen import Dumps, Loads
from penstock.runtime.state.raw import RawKeyedStateBackend
from penstock.runtime.state.rocks.database import Database
from penstock.runtime.state.snapshot import StateInfo


class RocksStore(RawKeyedStateBackend):
    """`dumps`, `loads`: how values become bytes."""

    dumps: Dumps
    loads: Loads

    @property
    @abstractmethod
    def database(self) -> Database:
        """Opened when it is first needed: before, its files may be restored."""

    @abstractmethod
    def prefix(self) -> bytes:
        """Of the rows of the current key and namespace."""

    @abstractmethod
    def prefix_of(self, skey: Any, namespace: Any) -> bytes: ...
    @abstractmethod
    def group_of_state_key(self, skey: Any) -> int: ...
    @abstractmethod
    def next_number(self) -> int:
        """Higher than all before, also those of the backend that this one was restored from."""

    @abstractmethod
    def family_of(self, name: str, info: StateInfo) -> Any:
        """Of a state that is asked for. Raises: UserError: another one of that name was restored."""

    @abstractmethod
    def has_state(self, name: str) -> bool:
        """Whether there is such a state already. Opens no database."""
