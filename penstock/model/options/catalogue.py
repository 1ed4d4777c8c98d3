"""All options by key: the settings that a user may make.

A new file of options must be imported here, otherwise its options do not exist. Does not know their readers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.model.errors import ConfigurationError
from penstock.model.options import (
    addresses,
    autoscaler,
    checkpoints,
    cluster,
    elastic,
    high_availability,
    history,
    logs,
    network,
    program,
    reporters,
    rest,
    scheduling,
    security,
    state,
    task,
    telemetry,
)
from penstock.model.options.option import NAME, Option, OptionGroup
from penstock.model.options.without_effect import WITHOUT_EFFECT

_FILES: Final = (
    program,
    checkpoints,
    state,
    scheduling,
    autoscaler,
    elastic,
    cluster,
    addresses,
    network,
    task,
    reporters,
    telemetry,
    high_availability,
    rest,
    history,
    security,
    logs,
)

GROUPS: Final[tuple[type[OptionGroup], ...]] = tuple(
    found
    for file in _FILES
    for found in vars(file).values()
    if isinstance(found, type) and found.__module__ == file.__name__
)
"""In the order in which the reference page shows them."""


def _by_key(options: Iterable[Option[Any]]) -> dict[str, Option[Any]]:
    found: dict[str, Option[Any]] = {}
    for option in options:
        assert option.key not in found, f"two options are called {option.key}"
        found[option.key] = option
    return found


OPTIONS: Final[Mapping[str, Option[Any]]] = _by_key((
    *(option for group in GROUPS for option in group.options()),
    *WITHOUT_EFFECT,
))

FORMER_KEYS: Final[Mapping[str, str]] = {
    former: option.key for option in OPTIONS.values() for former in option.former_keys
}
"""Present keys by their former names (Flink's withDeprecatedKeys)."""


_OF_A_NAME: Final = [
    (re.compile(re.escape(option.key).replace(re.escape(NAME), r"([^.]+)")), option)
    for option in OPTIONS.values()
    if NAME in option.key
]


def find_option(key: str) -> Option[Any] | None:
    """The option with this key, also one for a name: `metrics.reporter.x.port`. None: there is none."""
    if key in OPTIONS:
        return OPTIONS[key]
    for pattern, option in _OF_A_NAME:
        if found := pattern.fullmatch(key):
            return option.of(found[1])
    return None


def option_named(key: str) -> Option[Any]:
    """The option with this key. Raises: ConfigurationError: there is none; the text names the nearest one."""
    option = OPTIONS.get(key)
    if option is None:
        near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.6)
        all_options = " See docs/reference/configuration.md for all options."
        hint = f" Did you mean '{near[0]}'?" if near else all_options
        raise ConfigurationError(f"there is no option '{key}'.{hint}")
    return option
