"""RocksStore: the backend as its states, timers, windows and the restore see it. Opens nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.state.raw import RawKeyedStateBackend
from penstock.engine.runtime.state.rocks.database import Database
from penstock.engine.runtime.state.snapshot import StateInfo


class RocksStore(RawKeyedStateBackend):
    """`dumps`, `loads`: turn values into bytes and back."""

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
