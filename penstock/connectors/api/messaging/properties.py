"""Properties as builders collect them: a dict of names and texts. Does not know any client.

Source: java.util.Properties, as Flink's builders take them; differs: numbers and booleans are accepted too.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.model.errors import ConfigurationError


def checked_properties(properties: object, setter: str) -> dict[str, str]:
    """The properties as texts. Raises: ConfigurationError."""
    if not isinstance(properties, Mapping):
        raise ConfigurationError(f"{setter}: expected a dict of properties, got {properties!r}.")
    return dict(checked_property(key, value, setter) for key, value in properties.items())


def checked_property(key: object, value: object, setter: str) -> tuple[str, str]:
    """Raises: ConfigurationError."""
    if not isinstance(key, str) or not key:
        raise ConfigurationError(f"{setter}: expected the name of a property, got {key!r}.")
    if isinstance(value, bool):
        return key, str(value).lower()
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"{setter}: expected text as the value of {key!r}, got {value!r}.")
    return key, str(value)


def flag_of(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Raises: ConfigurationError."""
    text = properties.get(key)
    if text is None:
        return default
    known = {"true": True, "false": False}
    if text.strip().lower() not in known:
        raise ConfigurationError(f"the property {key!r} must be true or false, got {text!r}.")
    return known[text.strip().lower()]


def int_of(properties: Mapping[str, str], key: str, default: int) -> int:
    """Raises: ConfigurationError."""
    text = properties.get(key)
    try:
        return default if text is None else int(text)
    except ValueError as error:
        raise ConfigurationError(f"the property {key!r} must be a number, got {text!r}.") from error
