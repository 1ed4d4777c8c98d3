"""Configuration: a store of strings with typed getters. Does not know options; the model lists them.

Source: pyflink.common.configuration; differs: a value that cannot be parsed raises ConfigurationError naming the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.catalogue import FORMER_KEYS
from penstock.engine.model.options.option import parse_duration_ms
from penstock.engine.model.setting_checks import check_kind

T = TypeVar("T")


Value: TypeAlias = str | int | float | bool | bytearray


class Configuration:
    """Holds configuration keys and their values, which Flink's text form can express.

    Each getter returns its default value if the key is not set, and raises ConfigurationError if
    the value does not have its type. Each setter returns the configuration.
    """

    def __init__(self, other: Configuration | Mapping[str, str] | None = None) -> None:
        """Take over the keys and values of `other`."""
        self._values: dict[str, Value] = {}
        if isinstance(other, Configuration):
            self.add_all(other)
        else:
            for key, value in (other or {}).items():
                self._put(key, value)

    @classmethod
    def from_dict(cls, map: dict[str, str]) -> Configuration:
        """Return a configuration with these keys and values."""
        return cls(map)

    def get_string(self, key: str, default_value: str) -> str:
        """Return the value as text."""
        found = self._value(key)
        return default_value if found is None else _text(found)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a text."""
        return self._put(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return the value as a whole number. Raises ConfigurationError: it is none."""
        return self._parsed(key, default_value, int, "a whole number")

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a whole number."""
        return self._put(key, int(value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return the value as True or False. Raises ConfigurationError: it is neither `true` nor `false`."""
        return self._parsed(key, default_value, _boolean, "true or false")

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set True or False."""
        return self._put(key, bool(value))

    def get_float(self, key: str, default_value: float) -> float:
        """Return the value as a number. Raises ConfigurationError: it is none."""
        return self._parsed(key, default_value, float, "a number")

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a number."""
        return self._put(key, float(value))

    def get_duration_ms(self, key: str, default_ms: int) -> int:
        """Return a duration in ms; the value is `5 min`, `200 ms` or a number of ms.

        Not in PyFlink.
        """
        found = self._value(key)
        return default_ms if found is None else parse_duration_ms(_text(found), key)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return bytes, which a text value gives in hex."""
        return self._parsed(key, default_value, bytearray.fromhex, "bytes in hex")

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set bytes; a copy is kept."""
        return self._put(key, bytearray(value))

    def key_set(self) -> set[str]:
        """Return all keys that are set."""
        return set(self._values)

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add all keys to the dict. Values keep the type with which they were set."""
        target_dict.update(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Add all keys of another configuration, with `prefix` in front of each."""
        example = "Configuration.from_dict({'key': 'value'})"
        check_kind("configuring", other, Configuration, example)
        for key, value in other._values.items():
            self._values[f"{prefix or ''}{key}"] = value
        return self

    def contains_key(self, key: str) -> bool:
        """Return whether the key is set. Defaults do not count."""
        return key in self._values

    def to_dict(self) -> dict[str, str]:
        """Return all keys with their values as text."""
        return {key: _text(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Remove a key, and return whether it was set."""
        return self._values.pop(key, None) is not None

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Return the items of `a;b`, `[a, b]`, or a YAML list of lines that start with dashes."""
        text = (value or "").strip()
        separator = ";"
        if text.startswith("[") and text.endswith("]"):
            text, separator = text[1:-1], ","
        elif text.startswith("- "):
            text, separator = f"\n{text}", "\n- "
        return [item.strip().strip("'\"") for item in text.split(separator) if item.strip()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        """The text as in Java: `{key=value, other=value}`."""
        return f"{{{', '.join(f'{key}={value}' for key, value in self.to_dict().items())}}}"

    def _put(self, key: str, value: Value) -> Configuration:
        if not isinstance(key, str) or not key:
            raise ConfigurationError(
                f"a configuration key must be a non-empty string, got {key!r}."
            )
        self._values[key] = value if isinstance(value, int | float | bytearray) else str(value)
        return self

    def _value(self, key: str) -> Value | None:
        """The value of this key, or else of one of its former names."""
        found = self._values.get(key)
        if found is None:
            former = [old for old, present in FORMER_KEYS.items() if present == key]
            found = next((self._values[old] for old in former if old in self._values), None)
        return found

    def _parsed(self, key: str, default: T, parse: Callable[[str], T], expected: str) -> T:
        found = self._value(key)
        if found is None:
            return default
        text = _text(found)
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigurationError(
                f"option '{key}': got {text!r}, expected {expected}. Change it with "
                f"Configuration.set_string('{key}', ...)."
            ) from error


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytearray):
        return value.hex()
    return repr(value) if isinstance(value, float) else str(value)


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"
