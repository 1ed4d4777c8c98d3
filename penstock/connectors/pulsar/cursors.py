"""Cursors and key ranges: where reading begins and ends, and which keys are read. Plain data, as users choose it.

Source: pyflink.datastream.connectors.pulsar, Flink's StartCursor, StopCursor, RangeGenerator; differs: fixed keys
select exactly these keys, not all keys with the same hash.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.connectors.pulsar.protobuf import decode
from penstock.connectors.pulsar.splits import Place, Start, StartKind, Stop, StopKind
from penstock.engine.model.errors import ConfigurationError

_LATEST_LEDGER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StartCursor:
    """Sets where reading starts. Make it with one of the static methods."""

    start: Start

    @staticmethod
    def default_start_cursor() -> StartCursor:
        """Start at the first message."""
        return StartCursor.earliest()

    @staticmethod
    def earliest() -> StartCursor:
        """Start at the first message."""
        return StartCursor(Start(StartKind.EARLIEST))

    @staticmethod
    def latest() -> StartCursor:
        """Start after the last message at the start of the job."""
        return StartCursor(Start(StartKind.LATEST))

    @staticmethod
    def from_message_id(message_id: bytes, inclusive: bool = True) -> StartCursor:
        """Start at a message, or after it if not `inclusive`.

        Args:
            message_id: the bytes from `pulsar.MessageId.serialize`; others raise
                ConfigurationError.
            inclusive: whether the message itself is read.
        """
        place = _place(message_id, "StartCursor.from_message_id")
        if place[0] < 0:
            return StartCursor.earliest()
        if place[0] == _LATEST_LEDGER:
            return StartCursor.latest()
        return StartCursor(Start(StartKind.FROM if inclusive else StartKind.BEHIND, place))

    @staticmethod
    def from_publish_time(timestamp: int) -> StartCursor:
        """Start at the first message published at or after this time in epoch ms."""
        at_ms = _timestamp(timestamp, "StartCursor.from_publish_time")
        return StartCursor(Start(StartKind.PUBLISH_TIME, timestamp_ms=at_ms))


@dataclass(frozen=True, slots=True)
class StopCursor:
    """Sets where reading stops. Make it with one of the static methods.

    `at_...`: the message at that place is not read. `after_...`: the message at that place is the last one.
    """

    stop: Stop | None

    @staticmethod
    def default_stop_cursor() -> StopCursor:
        """Never stop."""
        return StopCursor.never()

    @staticmethod
    def never() -> StopCursor:
        """Never stop."""
        return StopCursor(None)

    @staticmethod
    def latest() -> StopCursor:
        """Stop after the last message at the start of the job."""
        return StopCursor(Stop(StopKind.LATEST, is_inclusive=True))

    @staticmethod
    def at_event_time(timestamp: int) -> StopCursor:
        """Stop before an event time in epoch ms; messages without event time do not stop."""
        return _stop_at(StopKind.EVENT_TIME, timestamp, "StopCursor.at_event_time")

    @staticmethod
    def after_event_time(timestamp: int) -> StopCursor:
        """Stop after an event time in epoch ms; messages without event time do not stop."""
        return _stop_at(StopKind.EVENT_TIME, timestamp, "StopCursor.after_event_time", after=True)

    @staticmethod
    def at_publish_time(timestamp: int) -> StopCursor:
        """Stop before a publish time in epoch ms."""
        return _stop_at(StopKind.PUBLISH_TIME, timestamp, "StopCursor.at_publish_time")

    @staticmethod
    def after_publish_time(timestamp: int) -> StopCursor:
        """Stop after a publish time in epoch ms."""
        return _stop_at(
            StopKind.PUBLISH_TIME, timestamp, "StopCursor.after_publish_time", after=True
        )

    @staticmethod
    def at_message_id(message_id: bytes) -> StopCursor:
        """Stop before a message.

        Args:
            message_id: the bytes from `pulsar.MessageId.serialize`; others raise
                ConfigurationError.
        """
        return _stop_id(message_id, "StopCursor.at_message_id", after=False)

    @staticmethod
    def after_message_id(message_id: bytes) -> StopCursor:
        """Stop after a message.

        Args:
            message_id: the bytes from `pulsar.MessageId.serialize`; others raise
                ConfigurationError.
        """
        return _stop_id(message_id, "StopCursor.after_message_id", after=True)


@dataclass(frozen=True, slots=True)
class RangeGenerator:
    """Sets which keys are read. Make it with one of the static methods.

    `keys` None: all messages. The key "" stands for messages without key.
    """

    keys: frozenset[str] | None = None
    ordering_keys: frozenset[str] = frozenset()

    @staticmethod
    def full() -> RangeGenerator:
        """Read all messages."""
        return RangeGenerator()

    @staticmethod
    def fixed_key(
        support_null_key: bool = False,
        keys: str | list[str] | None = None,
        key_bytes: bytes | None = None,
        ordering_key_bytes: bytes | None = None,
    ) -> RangeGenerator:
        """Read messages with one of these keys; an ordering key takes precedence over a key.

        With `support_null_key` messages that have neither are read too.
        """
        found = _texts(keys)
        if key_bytes is not None:
            found.append(base64.b64encode(key_bytes).decode())  # byte keys have this form
        if support_null_key:
            found.append("")
        ordering = [] if ordering_key_bytes is None else [_ordering_key(ordering_key_bytes)]
        if not found and not ordering:
            raise ConfigurationError(
                "RangeGenerator.fixed_key: no key is given. Name keys, or use "
                "RangeGenerator.full()."
            )
        return RangeGenerator(frozenset(found), frozenset(ordering))

    def wants(self, key: str, ordering_key: str) -> bool:
        """Return whether a message with these keys is read; "": it has no such key."""
        if self.keys is None:
            return True
        return ordering_key in self.ordering_keys if ordering_key else key in self.keys


def _ordering_key(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except (UnicodeDecodeError, AttributeError) as error:
        raise ConfigurationError(
            "RangeGenerator.fixed_key: expected an ordering key in UTF-8, because the Python "
            f"client cannot read other bytes, got {data!r}."
        ) from error


def _texts(keys: str | Sequence[str] | None) -> list[str]:
    found: Iterable[str] = [keys] if isinstance(keys, str) else keys or ()
    found = list(found)
    if not all(isinstance(one, str) and one for one in found):
        raise ConfigurationError(
            f"RangeGenerator.fixed_key: expected keys that are text and not empty, got {keys!r}."
        )
    return found


def _stop_at(kind: StopKind, timestamp: int, where: str, *, after: bool = False) -> StopCursor:
    return StopCursor(Stop(kind, _timestamp(timestamp, where), after))


def _stop_id(message_id: bytes, where: str, *, after: bool) -> StopCursor:
    place = _place(message_id, where)
    if place[0] < 0:
        raise ConfigurationError(f"{where}: MessageId.earliest stops before the first message.")
    if place[0] == _LATEST_LEDGER:
        return StopCursor(Stop(StopKind.LATEST, is_inclusive=after))
    return StopCursor(Stop(StopKind.PLACE, place, after))


def _place(message_id: object, where: str) -> Place:
    """The place in a serialized message id. Source: MessageIdData of PulsarApi.proto."""
    fields: dict[int, list[int | bytes]] = {}
    reason = "ledger and entry are missing"
    if isinstance(message_id, bytes):
        try:
            fields = decode(message_id)
        except ValueError as error:
            reason = str(error)
    numbers = [
        fields.get(number, [default])[-1] for number, default in ((1, None), (2, None), (4, -1))
    ]
    ledger, entry, index = numbers
    if isinstance(ledger, int) and isinstance(entry, int) and isinstance(index, int):
        return ledger, entry, index
    raise ConfigurationError(
        f"{where}: expected the bytes from pulsar.MessageId.serialize(), got {message_id!r}: "
        f"{reason}."
    )


def _timestamp(timestamp: object, where: str) -> int:
    if isinstance(timestamp, int) and not isinstance(timestamp, bool) and timestamp >= 0:
        return timestamp
    raise ConfigurationError(f"{where}: expected epoch milliseconds from 0, got {timestamp!r}.")
