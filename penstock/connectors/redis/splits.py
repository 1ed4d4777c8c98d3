"""Splits of a RedisStreamSource: a stream with the id behind which to go on; and the enumerator, which hands them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.api.assigned_splits import AssignedSplits
from penstock.connectors.api.base import EnumeratorContext
from penstock.connectors.redis.client import RedisAddress, connect, told
from penstock.engine.model.errors import ConfigurationError

BEGINNING: Final = "0-0"
LATEST: Final = "$"
_MOST: Final = (1 << 64) - 1
_ID: Final = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")


@dataclass(frozen=True, slots=True)
class StreamSplit:
    """A stream. `after`: the id of the last entry read. `until`: that of the last one to read; None: no end.

    `has_begun`: an entry was read, so that those behind `after` must not be missing. `count`: how many entries the stream
    had ever got up to `after`; None: unknown.
    """

    stream: str
    after: str
    until: str | None = None
    has_begun: bool = False
    count: int | None = None


def key_of(entry_id: str) -> tuple[int, int]:
    """The id in its order."""
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence or 0)


def parsed_id(where: str, entry_id: object) -> str:
    """The id with both of its parts. Raises: ConfigurationError."""
    found = _ID.fullmatch(entry_id) if isinstance(entry_id, str) else None
    if found is None or max(int(one or 0) for one in found.groups()) > _MOST:
        raise ConfigurationError(
            f'{where}: got {entry_id!r}, expected the id of an entry, such as "1526919030474-55".'
        )
    return f"{int(found[1])}-{int(found[2] or 0)}"


def before_ms(where: str, epoch_ms: object) -> str:
    """The last id before this time. Raises: ConfigurationError."""
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, int) or not 0 <= epoch_ms <= _MOST:
        raise ConfigurationError(f"{where}: expected epoch ms, 0 or more, got {epoch_ms!r}.")
    return BEGINNING if not epoch_ms else f"{epoch_ms - 1}-{_MOST}"


class StreamsEnumerator(AssignedSplits):
    """Gives stream i to subtask i modulo the parallelism."""

    def __init__(
        self,
        context: EnumeratorContext,
        address: RedisAddress,
        streams: Sequence[str],
        starting: str,
        *,
        is_bounded: bool,
    ) -> None:
        super().__init__(context, is_bounded=is_bounded)
        self._address = address
        self._streams = streams
        self._starting = starting
        self._known: set[str] = set()

    def start(self) -> None:
        """Finds the positions of streams that no checkpoint has."""
        new = [name for name in self._streams if name not in self._known]
        last = self._last_ids(new) if self._is_bounded or self._starting == LATEST else {}
        splits = []
        for name in new:
            after = last[name] if self._starting == LATEST else self._starting
            splits.append(StreamSplit(name, after, last[name] if self._is_bounded else None))
        self._known.update(new)
        self._spread(splits)

    def snapshot_state(self) -> Any:
        return {"left": self.left(), "known": sorted(self._known)}

    def restore_state(self, state: Any) -> None:
        self._known = set(state["known"])
        self._spread([one for one in state["left"] if one.stream in self._streams])

    def _spread(self, splits: Sequence[StreamSplit]) -> None:
        for split in splits:
            self.give(self._streams.index(split.stream), split)

    def _last_ids(self, streams: Sequence[str]) -> dict[str, str]:
        """The id of the last entry of each stream, also if it was deleted; of one that is not there the beginning."""
        where = "RedisStreamSource on the driver"
        redis = extra("redis", "redis", where)
        client = connect(self._address, where)
        found = {}
        try:
            for name in streams:
                with told(self._address, where):
                    try:
                        found[name] = client.xinfo_stream(name)["last-generated-id"].decode()
                    except redis.exceptions.ResponseError as error:
                        if "no such key" not in str(error):
                            raise
                        found[name] = BEGINNING
        finally:
            client.close()
        return found
