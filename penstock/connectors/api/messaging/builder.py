"""What the builders of message sources and sinks share: each setter sets one setting and checks it.

Source: Flink KafkaSourceBuilder, KafkaSinkBuilder, PulsarSourceBuilder, PulsarSinkBuilder.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

from penstock.engine.model.errors import ConfigurationError

Value = TypeVar("Value")


class MessagingBuilder(ABC):
    """`settings`: a frozen dataclass."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    @abstractmethod
    def build(self) -> object:
        """Returns the source or sink. Raises: ConfigurationError."""

    def _with(self, **changes: Any) -> Self:
        self._settings = replace(self._settings, **changes)
        return self

    def _with_a(self, kind: type, setter: str, **change: Any) -> Self:
        """Raises: ConfigurationError: the value is of another kind."""
        ((name, value),) = change.items()
        return self._with(**{name: checked_kind(setter, value, kind)})


class MessageSourceBuilder(MessagingBuilder):
    """Builds a source. `settings` has a field `subscription`, which says what is read."""

    def _subscribe(self, setter: str, subscription: object, setters: str) -> Self:
        """Sets what is read. `setters`: the setters of which only one may be called, once.

        Raises: ConfigurationError: this is the second call.
        """
        if self._settings.subscription is not None:
            raise ConfigurationError(
                f"{setter}: what to read is set already: {self._settings.subscription}. Call only "
                f"one of {setters}, and only once."
            )
        return self._with(subscription=subscription)


class CompleteBuilder(MessagingBuilder):
    """Builds what certain settings must be there for. `name`: begins errors. `always`: the fields of `settings` that source and sink
    need, and who sets each.
    """

    name: ClassVar[str]
    always: ClassVar[Mapping[str, str]] = {}

    def _complete(self, **calls: str) -> Any:
        """The settings. `calls`: who sets each further field. Raises ConfigurationError: one is missing."""
        for name, call in {**self.always, **calls}.items():
            if not getattr(self._settings, name):
                raise ConfigurationError(f"{self.name}: {call} is missing before build().")
        return self._settings


def checked_kind(setter: str, value: object, kind: type[Value]) -> Value:
    """The value. Raises: ConfigurationError: it is of another kind."""
    if not isinstance(value, kind):
        raise ConfigurationError(f"{setter}: expected a {kind.__name__}, got {value!r}.")
    return value


def checked_number(setter: str, number: object, least: int) -> int:
    """The number. Raises: ConfigurationError: it is none, or below `least`."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ConfigurationError(f"{setter}: expected {least} or more, got {number!r}.")
    return number


def checked_topics(names: str | Iterable[str]) -> tuple[str, ...]:
    """The arguments of set_topics: one name, or several. Raises: ConfigurationError."""
    found = (names,) if isinstance(names, str) else tuple(names)
    if not found or not all(isinstance(one, str) and one for one in found):
        raise ConfigurationError(f"set_topics: expected names of topics, got {names!r}.")
    return found


def checked_topic_pattern(pattern: str) -> str:
    """The argument of set_topic_pattern. Raises: ConfigurationError: it is not a regular expression."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigurationError(
            f"set_topic_pattern: {pattern!r} is not a regular expression: {error}."
        ) from error
    return pattern
