"""The Penstock side of a Spark task that feeds a source subtask: computes a partition and sends it
from a position on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.engine.hosting.network.wire.dialling import Ticket, register
from penstock.engine.hosting.spark.dataframes.feed_reader import (
    BATCH,
    DIAL_S,
    DIFFERS,
    DONE,
    END,
    RESUME,
    FeedSocket,
    Position,
    dial,
)


@dataclass(frozen=True, slots=True)
class FeedOrder:
    """Where the reader of the partition listens. `driver`: where the ticket is valid."""

    host: str
    port: int
    driver: tuple[str, int]
    ticket: dict[str, str]


def feed(order: FeedOrder, messages: Iterable[bytes]) -> None:
    """Return when the reader has everything. Nothing is buffered here, so a slow reader slows Spark
    down.

    Raises: OSError, ExternalError: the reader or the driver is gone, or cannot be reached.
    """
    credentials = register(order.driver, Ticket.from_plain(order.ticket), DIAL_S)
    link = dial(order.host, order.port, credentials)
    try:
        kind, payload = link.receive()
        assert kind == RESUME
        if _send(link, Position.unpacked(payload), messages):
            kind, _ = link.receive()
            assert kind == DONE
    finally:
        link.close()


def _send(link: FeedSocket, begin: Position, messages: Iterable[bytes]) -> bool:
    """Send the partition. Returns: whether it could continue from the reader's position."""
    at = Position()
    for message in messages:
        if at.batches == begin.batches and at.checksum != begin.checksum:
            break
        is_new = at.batches >= begin.batches
        at = at.after(message)
        if is_new:
            link.send(BATCH, message)
    if at.batches < begin.batches or (at.batches == begin.batches and at != begin):
        link.send(DIFFERS, at.packed())
        return False
    link.send(END, at.packed())
    return True
