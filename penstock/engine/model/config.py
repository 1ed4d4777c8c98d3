"""Settings: the values of options, collected from several layers.

Does not know the readers of options. Source: Flink Configuration; differs: there are layers, unknown `penstock.*` keys
are errors, as are misspelt options that decide whether data is safe, and Flink's keys that Penstock does not use are accepted and
listed by `ignored_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from penstock.engine.model.options.catalogue import (
    FORMER_KEYS,
    check_spelling,
    find_option,
    is_known,
    nearest,
    option_named,
)
from penstock.engine.model.options.option import Option, as_text

T = TypeVar("T")

SPARK_PREFIX: Final = "spark."
PENSTOCK_PREFIX: Final = "penstock."


class Layer(StrEnum):
    """The place where a value was set, strongest first."""

    PROGRAM = "program"
    COMMAND_LINE = "-D"
    SPARK = "spark"
    DEFAULT = "default"


class Settings:
    """Values of all options in layers; the first layer that sets a key counts.

    Raises: ConfigurationError: an unknown `penstock.*` key, or an unknown key that looks like an option of checkpoints, restarts, high
    availability or state (the nearest one is named), or a text that its option cannot take.
    """

    def __init__(
        self,
        program: Mapping[str, object] | None = None,
        command_line: Mapping[str, object] | None = None,
        spark: Mapping[str, object] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        """`spark`: the whole configuration of Spark. `defaults`: values that the host sets."""
        self._layers: tuple[tuple[Layer, dict[str, object]], ...] = (
            (Layer.PROGRAM, _renamed(program or {})),
            (Layer.COMMAND_LINE, _renamed(command_line or {})),
            (Layer.SPARK, _renamed(_from_spark(spark or {}))),
            (Layer.DEFAULT, dict(defaults or {})),
        )
        for _, values in self._layers:
            for key, value in values.items():
                _check_known(key)
                option = find_option(key)
                if option is not None:
                    option.parse(value)

    def get(self, option: Option[T]) -> T:
        """The option's value: durations in ms, sizes in bytes. None is possible only for an option without a default."""
        raw = self.raw(option)
        given = option.default if raw is None else raw
        return cast("T", None) if given is None else option.parse(given)

    def chosen(self, option: Option[T]) -> Option[T]:
        """The option, or the older one that it falls back to if only that is set."""
        older = option.fallback
        is_older = older is not None and self._raw(option.key) is None and self.is_set(older)
        return older if older is not None and is_older else option

    def raw(self, option: Option[Any]) -> object | None:
        """The value as it was set; None if no layer sets it."""
        return self._raw(self.chosen(option).key)

    def is_set(self, option: Option[Any]) -> bool:
        return self.raw(option) is not None

    def ignored_keys(self) -> list[str]:
        """Keys that were set and have no effect: Flink's that Penstock does not use, and keys of other software."""
        keys = {
            key for layer, values in self._layers if layer is not Layer.DEFAULT for key in values
        }
        found = {key: find_option(key) for key in keys}
        return sorted(key for key, option in found.items() if option is None or not option.is_used)

    def ignored_texts(self) -> list[str]:
        """The keys of `ignored_keys`, each with the option that it was probably meant to be."""
        return [
            f"{key} (did you mean '{near}'?)" if (near := nearest(key)) else key
            for key in self.ignored_keys()
        ]

    def as_text(self) -> dict[str, str]:
        """The values that were set, without the host's defaults, as texts that can be read again elsewhere."""
        keys = {key for layer, values in self._layers for key in values}
        return {
            key: value if isinstance(value := self._raw(key), str) else as_text(cast("Any", value))
            for key in sorted(keys)
            if self._layer_of(key) is not Layer.DEFAULT
        }

    def as_dict(self) -> dict[str, object]:
        """All values that some layer sets; the strongest layer's value of each."""
        merged: dict[str, object] = {}
        for _, values in reversed(self._layers):
            merged.update(values)
        return merged

    def origins(self) -> dict[str, Layer]:
        """Who set each key that is set: the strongest layer of those that do."""
        return {key: self._layer_of(key) for key in self.as_dict()}

    def host_defaults(self) -> dict[str, object]:
        """The values that the host sets unless a user does."""
        return next(dict(values) for layer, values in self._layers if layer is Layer.DEFAULT)

    def _raw(self, key: str) -> object | None:
        return next((values[key] for _, values in self._layers if key in values), None)

    def _layer_of(self, key: str) -> Layer:
        return next((layer for layer, values in self._layers if key in values), Layer.DEFAULT)


def _renamed(values: Mapping[str, object]) -> dict[str, object]:
    found = {key: value for key, value in values.items() if key not in FORMER_KEYS}
    for old, present in FORMER_KEYS.items():
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
            found[short if is_known(short) else PENSTOCK_PREFIX + short] = value
    return found


def _check_known(key: str) -> None:
    if key.startswith(PENSTOCK_PREFIX):
        option_named(key)
    else:
        check_spelling(key)
