"""Checks of setters' arguments: a whole number that is not too small, or an object of a class.

Does not know options. Source: the checks of Flink's CheckpointConfig and ExecutionConfig; differs: the error says what
is accepted.
"""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.engine.model.errors import ConfigurationError

T = TypeVar("T")
_MOST = 86_399_999_913_600_000
"""As many ms as a timedelta has room for."""


def check_whole(name: str, value: int, least: int, unit: str = "") -> int:
    """The value. Raises: ConfigurationError: it is no whole number, too small, or too large for any use."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if is_whole and least <= value <= _MOST:
        return value
    much = "at most" if is_whole and value > _MOST else "at least"
    bound = _MOST if is_whole and value > _MOST else least
    raise ConfigurationError(
        f"{name} must be {much} {bound}{unit and ' '}{unit}, as a whole number, got {value!r:.200}."
    )


def check_kind(name: str, value: T, kind: type[Any], example: str) -> T:
    """The value. Raises: TypeError: it is of another class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(
            f"{name} takes {article} {kind.__name__} such as {example}, got {value!r:.200}."
        )
    return value
