"""Options: what they are called, how their text is read, and which value of which layer counts.

Knows nobody who uses them. Source: Flink ConfigOption, TimeUtils, MemorySize; differs: one flat
table (`config_options.py`), unknown `penstock.*` keys are errors, and Flink's keys that Penstock
does not use are accepted and listed by `ignored_keys`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias, cast

from penstock.model.config_options import IGNORED, USED, Kind
from penstock.model.errors import ConfigurationError

Value: TypeAlias = int | float | bool | str | list[str] | dict[str, str]

SPARK_PREFIX: Final = "spark."
PENSTOCK_PREFIX: Final = "penstock."
INT_MAX: Final = 2**31 - 1

_UNITS_MS: Final = {
    "ns": 1e-6, "nano": 1e-6, "nanosecond": 1e-6,
    "us": 1e-3, "micro": 1e-3, "microsecond": 1e-3, "\u00b5s": 1e-3,
    "": 1, "ms": 1, "milli": 1, "millisecond": 1,
    "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip
_UNITS_BYTES: Final = {
    "": 0, "b": 0, "bytes": 0,
    "k": 10, "kb": 10, "kibibytes": 10,
    "m": 20, "mb": 20, "mebibytes": 20,
    "g": 30, "gb": 30, "gibibytes": 30,
    "t": 40, "tb": 40, "tebibytes": 40,
}  # fmt: skip
_NUMBER_AND_UNIT: Final = re.compile(r"\s*(\d+)\s*([^\W\d]*)\s*")


class Layer(StrEnum):
    """Where a value came from, strongest first."""

    PROGRAM = "program"
    COMMAND_LINE = "-D"
    SPARK = "spark"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Option:
    """One key. `default`: the value's text as Flink prints it, or None."""

    key: str
    kind: Kind
    default: str | None
    doc: str
    is_used: bool

    def parse(self, text: object) -> Value:
        """The typed value of a text. Raises ConfigurationError with the key in it."""
        if isinstance(text, str):
            return _PARSERS[self.kind](self.key, text)
        if isinstance(text, (bool, int, float, list, dict)):
            return _PARSERS[self.kind](self.key, _as_text(text))
        raise _refusal(self.key, text, "a text, number, boolean, list or mapping")


def _options_of(table: str, *, is_used: bool) -> dict[str, Option]:
    found: dict[str, Option] = {}
    section = ""
    for line in table.strip().replace("\n    ", " ").splitlines():
        if line.startswith("= "):
            section = line.removeprefix("= ")
            continue
        key, kind, default, *doc = (part.strip() for part in line.split(" | "))
        text = None if default == "-" else default
        found[key] = Option(key, Kind(kind), text, doc[0] if doc else section, is_used)
    return found


OPTIONS: Final[Mapping[str, Option]] = {
    **_options_of(USED, is_used=True),
    **_options_of(IGNORED, is_used=False),
}


OLD_NAMES: Final[Mapping[str, str]] = {
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "execution.checkpointing.alignment-timeout": "execution.checkpointing.aligned-checkpoint-timeout",
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "high-availability": "high-availability.type",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "restart-strategy": "restart-strategy.type",
    "state.backend": "state.backend.type",
}
"""What options were called before, by Flink's withDeprecatedKeys: read where the present name is not set."""


def parse_duration_ms(text: str, key: str = "") -> int:
    """Milliseconds of `5 min`, `200 ms`, `1 h`, `20`; parts below a millisecond are cut off."""
    return int(parse_fine_duration_ms(text, key))


def parse_fine_duration_ms(text: str, key: str = "") -> float:
    """Milliseconds of `200 us`, `1 ms` with their fractions."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip().lower())
    unit = match[2] if match else ""
    if match and unit not in _UNITS_MS:
        unit = unit.removesuffix("s")
    if not match or unit not in _UNITS_MS:
        raise _refusal(key, text, "a duration such as '200 ms', '5 s', '10 min' or '1 h'")
    return int(match[1]) * _UNITS_MS[unit]


def parse_memory_bytes(text: str, key: str = "") -> int:
    """Bytes of `64 mb`, `1g`, `32768`; the units are powers of 1024."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip().lower())
    if not match or match[2] not in _UNITS_BYTES:
        raise _refusal(key, text, "a size such as '32 kb', '64 mb' or '1 gb'")
    return int(match[1]) << _UNITS_BYTES[match[2]]


class Settings:
    """Values of all options in layers; the first layer that sets a key counts.

    Raises: ConfigurationError: an unknown `penstock.*` key (the nearest one is named), or a text
    that its option cannot take.
    """

    def __init__(
        self,
        program: Mapping[str, object] | None = None,
        command_line: Mapping[str, object] | None = None,
        spark: Mapping[str, object] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        """`spark`: Spark's configuration, all of it. `defaults`: what the host sets."""
        self._layers: tuple[tuple[Layer, dict[str, object]], ...] = (
            (Layer.PROGRAM, _renamed(program or {})),
            (Layer.COMMAND_LINE, _renamed(command_line or {})),
            (Layer.SPARK, _renamed(_from_spark(spark or {}))),
            (Layer.DEFAULT, dict(defaults or {})),
        )
        for _, values in self._layers:
            for key, value in values.items():
                _check_known(key)
                if key in OPTIONS:
                    OPTIONS[key].parse(value)

    def get(self, key: str) -> Value | None:
        """The typed value: durations in ms, sizes in bytes. An unknown key: ConfigurationError."""
        option = OPTIONS.get(key)
        if option is None:
            raise _unknown(key)
        raw = self.raw(key)
        text = option.default if raw is None else raw
        return None if text is None else option.parse(text)

    def get_int(self, key: str) -> int:
        value = self.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise _refusal(key, value, "a value (the option has no default)")

    def get_float(self, key: str) -> float:
        value = self.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise _refusal(key, value, "a number")

    def get_bool(self, key: str) -> bool:
        return self.get(key) is True

    def get_str(self, key: str) -> str | None:
        value = self.get(key)
        return None if value is None else str(value)

    def get_optional_int(self, key: str) -> int | None:
        return None if self.get(key) is None else self.get_int(key)

    def raw(self, key: str) -> object | None:
        """What was set, as it was set; None if no layer sets the key."""
        return next((values[key] for _, values in self._layers if key in values), None)

    def is_set(self, key: str) -> bool:
        return self.raw(key) is not None

    def layer_of(self, key: str) -> Layer:
        """Which layer decides the key's value."""
        return next((layer for layer, values in self._layers if key in values), Layer.DEFAULT)

    def ignored_keys(self) -> list[str]:
        """Keys that were set and change nothing: Flink's without a use here, and strangers'."""
        keys = {
            key for layer, values in self._layers if layer is not Layer.DEFAULT for key in values
        }
        return sorted(key for key in keys if key not in OPTIONS or not OPTIONS[key].is_used)

    def as_text(self) -> dict[str, str]:
        """What was set, the host's defaults apart, as texts: to be read again elsewhere."""
        keys = {key for layer, values in self._layers for key in values}
        return {
            key: value if isinstance(value := self.raw(key), str) else _as_text(cast("Any", value))
            for key in sorted(keys)
            if self.layer_of(key) is not Layer.DEFAULT
        }

    def as_dict(self) -> dict[str, object]:
        """All values that some layer sets, the strongest layer's each."""
        merged: dict[str, object] = {}
        for _, values in reversed(self._layers):
            merged.update(values)
        return merged


def _renamed(values: Mapping[str, object]) -> dict[str, object]:
    found = {key: value for key, value in values.items() if key not in OLD_NAMES}
    for old, present in OLD_NAMES.items():
        if old in values:
            found.setdefault(present, values[old])
    return found


def _from_spark(spark: Mapping[str, object]) -> dict[str, object]:
    """`spark.penstock.slot.idle.timeout` sets slot.idle.timeout, `spark.penstock.x` penstock.x."""
    found: dict[str, object] = {}
    prefix = SPARK_PREFIX + PENSTOCK_PREFIX
    for key, value in spark.items():
        if key.startswith(prefix):
            short = key.removeprefix(prefix)
            is_flinks = short in OPTIONS or short in OLD_NAMES
            found[short if is_flinks else PENSTOCK_PREFIX + short] = value
    return found


def _check_known(key: str) -> None:
    if key.startswith(PENSTOCK_PREFIX) and key not in OPTIONS:
        raise _unknown(key)


def _unknown(key: str) -> ConfigurationError:
    near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.6)
    hint = f" Did you mean '{near[0]}'?" if near else " See docs for the list of options."
    return ConfigurationError(f"there is no option '{key}'.{hint}")


def _refusal(key: str, value: object, wanted: str) -> ConfigurationError:
    where = f"option '{key}'" if key else "the value"
    return ConfigurationError(f"{where} is {value!r}, but it takes {wanted}. Change the setting.")


def _as_text(value: bool | float | list[str] | dict[str, str]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return ";".join(map(str, value))
        case dict():
            return ",".join(f"{name}:{text}" for name, text in value.items())
        case _:
            return str(value)


def _parse_int(key: str, text: str) -> int:
    if text.strip().lower() in {"infinite", "infinity"}:
        return INT_MAX
    try:
        return int(text)
    except ValueError:
        raise _refusal(key, text, "a whole number") from None


def _parse_float(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _refusal(key, text, "a number") from None


def _parse_bool(key: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise _refusal(key, text, "true or false")
    return word == "true"


def _parse_list(_key: str, text: str) -> list[str]:
    inner = text.strip().removeprefix("[").removesuffix("]")
    return [part.strip().strip("'\"") for part in re.split(r"[;,]", inner) if part.strip()]


def _parse_map(key: str, text: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    found = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    if text.strip() and not found:
        raise _refusal(key, text, "pairs such as 'a:1,b:2'")
    return found


_PARSERS: Final[Mapping[Kind, Callable[[str, str], Value]]] = {
    Kind.DURATION: lambda key, text: parse_duration_ms(text, key),
    Kind.FINE_DURATION: lambda key, text: parse_fine_duration_ms(text, key),
    Kind.MEMORY: lambda key, text: parse_memory_bytes(text, key),
    Kind.INT: _parse_int,
    Kind.FLOAT: _parse_float,
    Kind.BOOL: _parse_bool,
    Kind.STR: lambda _, text: text,
    Kind.LIST: _parse_list,
    Kind.MAP: _parse_map,
}
