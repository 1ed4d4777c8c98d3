"""Checks of setters' arguments: a whole number that is not too small, or an object of a class.

Does not know options. Source: the checks of Flink's CheckpointConfig and ExecutionConfig; differs: the error says what
is accepted.
"""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.model.errors import ConfigurationError

T = TypeVar("T")


def check_whole(name: str, value: int, least: int, unit: str = "") -> int:
    """The value. Raises: ConfigurationError: it is no whole number, or too small."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ConfigurationError(
            f"{name} must be at least {least}{unit and ' '}{unit}, as a whole number, got {value!r}."
        )
    return value


def check_kind(name: str, value: T, kind: type[Any], example: str) -> T:
    """The value. Raises: TypeError: it is of another class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(
            f"{name} takes {article} {kind.__name__} such as {example}, got {value!r:.200}."
        )
    return value
