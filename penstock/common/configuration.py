"""Configuration: a store of strings with typed getters. Knows no option; the options' list is in
the model.

Source: pyflink.common.configuration; differs: a value that cannot be parsed raises
ConfigurationError naming the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.model.config import parse_duration_ms
from penstock.model.errors import ConfigurationError

T = TypeVar("T")


class Configuration:
    """Keys and values in Flink's text form."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = {}
        for key, value in (values or {}).items():
            self._values[_checked_key(key)] = _text(value)

    @classmethod
    def from_dict(cls, map: dict[str, str]) -> Configuration:
        return cls(map)

    def get_string(self, key: str, default_value: str) -> str:
        return self._values.get(key, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        self._values[_checked_key(key)] = _text(value)
        return self

    def get_integer(self, key: str, default_value: int) -> int:
        return self._parsed(key, default_value, int, "a whole number")

    def set_integer(self, key: str, value: int) -> Configuration:
        return self.set_string(key, str(int(value)))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        return self._parsed(key, default_value, _boolean, "true or false")

    def set_boolean(self, key: str, value: bool) -> Configuration:
        return self.set_string(key, "true" if value else "false")

    def get_float(self, key: str, default_value: float) -> float:
        return self._parsed(key, default_value, float, "a number")

    def set_float(self, key: str, value: float) -> Configuration:
        return self.set_string(key, repr(float(value)))

    def get_duration_ms(self, key: str, default_ms: int) -> int:
        """A duration in Flink's text (`5 min`, `200 ms`, plain milliseconds). Not in PyFlink."""
        text = self._values.get(key)
        return default_ms if text is None else parse_duration_ms(text, key)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        return self._parsed(key, default_value, bytearray.fromhex, "bytes in hex")

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        return self.set_string(key, bytes(value).hex())

    def key_set(self) -> set[str]:
        return set(self._values)

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        target_dict.update(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        for key, value in other.to_dict().items():
            self._values[f"{prefix or ''}{key}"] = value
        return self

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def to_dict(self) -> dict[str, str]:
        return dict(self._values)

    def remove_config(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """Items of `a;b` or of `[a, b]`, which newer files write."""
        text = value.strip()
        separator = ";"
        if text.startswith("[") and text.endswith("]"):
            text, separator = text[1:-1], ","
        return [item.strip().strip("'\"") for item in text.split(separator) if item.strip()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __str__(self) -> str:
        return str(self._values)

    def _parsed(self, key: str, default: T, parse: Callable[[str], T], expected: str) -> T:
        text = self._values.get(key)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigurationError(
                f"option '{key}': got {text!r}, expected {expected}. Change it with "
                f"Configuration.set_string('{key}', ...)."
            ) from error


def _checked_key(key: str) -> str:
    if not isinstance(key, str) or not key:
        raise ConfigurationError(f"a configuration key must be a non-empty string, got {key!r}.")
    return key


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"
