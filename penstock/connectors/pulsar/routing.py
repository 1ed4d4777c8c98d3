"""Chooses the partition of a message, and the time of its delivery. Does not know any client.

Source: pyflink.datastream.connectors.pulsar, Flink's RoundRobinTopicRouter, KeyHashTopicRouter, MessageDelayer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.common.time import Duration
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of


class TopicRoutingMode(Enum):
    """How a message's partition is chosen. CUSTOM needs a Java class, and is not supported."""

    ROUND_ROBIN = 0
    MESSAGE_KEY_HASH = 1
    CUSTOM = 2


@dataclass(frozen=True, slots=True)
class MessageDelayer:
    """Sets when messages are delivered. Make it with one of the static methods."""

    delay_ms: int = 0

    @staticmethod
    def never() -> MessageDelayer:
        """Deliver messages at once."""
        return MessageDelayer()

    @staticmethod
    def fixed(duration: Duration) -> MessageDelayer:
        """Deliver messages to shared subscriptions this long after they are sent.

        Other subscriptions, and readers, get them at once.

        Raises:
            ConfigurationError: the duration cannot be used.
        """
        delay_ms = millis_of(duration)
        if delay_ms <= 0:
            raise ConfigurationError(
                f"MessageDelayer.fixed: expected a Duration of at least 1 ms, got {duration!r}."
            )
        return MessageDelayer(delay_ms)


class Router:
    """Chooses partitions for one subtask.

    Flink's serializer for Python gives messages no keys, so MESSAGE_KEY_HASH chooses at random.
    """

    def __init__(self, mode: TopicRoutingMode, switch_after: int) -> None:
        """`switch_after`: after this many messages ROUND_ROBIN switches to the next partition."""
        self._mode = mode
        self._switch_after = switch_after
        self._sent = 0
        self._random = random.Random()

    def route(self, count: int, partitions: Sequence[str]) -> list[str]:
        """The partitions of the next `count` messages."""
        if self._mode is TopicRoutingMode.MESSAGE_KEY_HASH:
            return self._random.choices(partitions, k=count)
        first, self._sent = self._sent, self._sent + count
        return [
            partitions[number // self._switch_after % len(partitions)]
            for number in range(first, first + count)
        ]
