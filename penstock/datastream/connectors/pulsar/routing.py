"""Which partition a message goes to, and when it is delivered. Knows no client.

Source: pyflink.datastream.connectors.pulsar, Flink's RoundRobinTopicRouter, KeyHashTopicRouter, MessageDelayer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.common.time import Duration
from penstock.model.errors import ConfigurationError


class TopicRoutingMode(Enum):
    """How a partition is chosen. CUSTOM needs a class of Java's, and is not there."""

    ROUND_ROBIN = 0
    MESSAGE_KEY_HASH = 1
    CUSTOM = 2


@dataclass(frozen=True, slots=True)
class MessageDelayer:
    """Made by its static methods. `delay_ms` 0: messages are delivered at once."""

    delay_ms: int = 0

    @staticmethod
    def never() -> MessageDelayer:
        return MessageDelayer()

    @staticmethod
    def fixed(duration: Duration) -> MessageDelayer:
        """Shared subscriptions get messages so long after they were sent; others, and readers, at once. Raises: ConfigurationError."""
        delay_ms = duration.to_millis() if isinstance(duration, Duration) else 0
        if delay_ms <= 0:
            raise ConfigurationError(
                f"MessageDelayer.fixed: expected a Duration of at least a millisecond, got {duration!r}."
            )
        return MessageDelayer(delay_ms)


class Router:
    """For one subtask. Flink's serializer for Python gives messages no keys, so that MESSAGE_KEY_HASH chooses at random."""

    def __init__(self, mode: TopicRoutingMode, switch_after: int) -> None:
        """`switch_after`: so many messages ROUND_ROBIN sends to one partition before it goes on to the next."""
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
