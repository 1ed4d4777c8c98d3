"""Cursors and key ranges: where reading begins and ends, and which keys are read. Plain data, as users choose it.

Source: pyflink.datastream.connectors.pulsar, Flink's StartCursor, StopCursor, RangeGenerator; differs: fixed keys
select exactly these keys, not all keys with the same hash.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- protobuf
# The small part of protocol buffers that message ids and one command need: fields by number. Does not know messages.


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(fields: Mapping[int, int | str | bytes]) -> bytes:
    """In the order given."""
    out = bytearray()
    for number, value in fields.items():
        if isinstance(value, int):
            out += _varint(number << 3 | _VARINT) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | _BYTES) + _varint(len(data)) + data
    return bytes(out)


def decode(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a message. Raises: ValueError: the bytes are not a message."""
    found: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(data):
        key, place = _take_varint(data, place)
        value: int | bytes
        match key & 7:
            case 0:
                value, place = _take_varint(data, place)
            case 1 | 2 | 5:
                size = {_FIXED64: 8, _FIXED32: 4}.get(key & 7)
                if size is None:
                    size, place = _take_varint(data, place)
                value, place = data[place : place + size], place + size
                if len(value) < size:
                    raise ValueError("a field is cut off")
            case wire:
                raise ValueError(f"a field has the wire type {wire}")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _take_varint(data: bytes, place: int) -> tuple[int, int]:
    """A number, as signed with 64 bits."""
    found = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            found &= (1 << 64) - 1
            return found - (1 << 64) if found >= 1 << 63 else found, place
    raise ValueError("a number is cut off")


# ---------------------------------------------------------------------- splits
# Partitions of topics as splits of a source, with places in them. Plain data; does not know any client.
#
# Source: Flink PulsarPartitionSplit, TopicPartition; differs: the driver turns `latest` into the id of a message.


Place: TypeAlias = tuple[int, int, int]
"""A message's place: ledger, entry, and index in its batch or -1. Messages of a partition are in this order."""

NO_PARTITION = -1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition. `topic`: its full name without the partition. `number` NO_PARTITION: the topic has no partitions."""

    topic: str
    number: int = NO_PARTITION

    @classmethod
    def of(cls, name: str) -> TopicPartition:
        """The partition with this name of the client."""
        topic, mark, number = name.rpartition("-partition-")
        return cls(topic, int(number)) if mark and number.isdigit() else cls(name)

    def __str__(self) -> str:
        return self.topic if self.number < 0 else f"{self.topic}-partition-{self.number}"


class StartKind(Enum):
    """Where reading begins.

    SUBSCRIPTION: after the acknowledged messages; in a new subscription, where the driver made it begin.
    """

    SUBSCRIPTION = "the subscription's place"
    EARLIEST = "earliest"
    LATEST = "latest"
    FROM = "from"
    AFTER = "after"
    PUBLISH_TIME = "publish time"


@dataclass(frozen=True, slots=True)
class Start:
    """`place`: for FROM and AFTER; `timestamp_ms`: for PUBLISH_TIME. The driver replaces LATEST by AFTER."""

    kind: StartKind
    place: Place | None = None
    timestamp_ms: int = 0


class StopKind(Enum):
    """The property of a message that is compared with the goal."""

    LATEST = "latest"
    PLACE = "place"
    EVENT_TIME = "event time"
    PUBLISH_TIME = "publish time"


@dataclass(frozen=True, slots=True)
class Stop:
    """Messages from `goal` on are not read; with `is_inclusive` the first message exactly at `goal` is."""

    kind: StopKind
    goal: Place | int | None = None
    is_inclusive: bool = False


@dataclass(frozen=True, slots=True)
class PulsarSplit:
    """A partition in checkpoints: reading continues AFTER the last message that was read. `stop`
    None: no end.
    """

    partition: TopicPartition
    start: Start
    stop: Stop | None = None
    is_over: bool = False

    def moved_to(self, place: Place, *, is_over: bool) -> PulsarSplit:
        return replace(self, start=Start(StartKind.AFTER, place), is_over=is_over)


# ---------------------------------------------------------------------- cursors


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
        return StartCursor(Start(StartKind.FROM if inclusive else StartKind.AFTER, place))

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
