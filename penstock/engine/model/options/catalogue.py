"""All options by key: the settings that a user may make, what they mean, and what a key that is no option probably means.

A new file of options must be imported here, otherwise its options do not exist. A key of other software has no effect,
and that is all right. A key that looks like an option but is none was meant to do something; if that is to keep data
safe, a job without it must not run. Source: none for this; Flink ignores keys that it does not know.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options import (
    autoscaler,
    checkpoints,
    cluster,
    network,
    program,
    reporters,
    rest,
    scheduling,
    task,
)
from penstock.engine.model.options.flink_names import FLINK_NAMES, WITHOUT_EFFECT
from penstock.engine.model.options.option import NAME, Option, OptionGroup

_FILES: Final = (
    program, checkpoints, scheduling, autoscaler, cluster, network, task, reporters, rest
)  # fmt: skip

_NEAR: Final = 0.82
_VERY_NEAR: Final = 0.95
"""For keys of families with more names than are listed here."""
_SAFETY: Final = (
    "execution.checkpointing",
    "execution.savepoint",
    "execution.state-recovery",
    "high-availability",
    "job-result-store",
    "restart-strategy",
    "state.backend",
    "state.checkpoint",
    "state.savepoint",
    "state.storage",
)
"""Options that decide what is left of a job's data after a failure."""
_COMMON: Final = "execution."
"""Begins the names of options that people know by the rest: `checkpointing.interval`."""
_OPEN: Final = (
    "high-availability.kubernetes.",
    "state.backend.forst.",
    "state.backend.rocksdb.",
    "state.changelog.",
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
} | {f"kubernetes.operator.{key}": key for key in OPTIONS if key.startswith("job.autoscaler.")}
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


@cache
def documentation() -> Mapping[str, str]:
    """What each option means, by key: the text below its attribute."""
    found = {option.key: subject for option, subject in WITHOUT_EFFECT.items()}
    for group in GROUPS:
        (declared,) = ast.parse(inspect.getsource(group)).body
        assert isinstance(declared, ast.ClassDef)
        for one, below in pairwise(declared.body):
            match one, below:
                case ast.Assign([ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                    option: Option[Any] = getattr(group, name)
                    found[option.key] = " ".join(text.split())
                    if option.fallback is not None:
                        found[option.fallback.key] = (
                            f"Older key of {option.key}. Used when that is not set."
                        )
    return found


def option_named(key: str) -> Option[Any]:
    """The option with this key. Raises: ConfigurationError: there is none; the text names the nearest one."""
    option = OPTIONS.get(key)
    if option is None:
        near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.6)
        all_options = " See docs/reference/configuration.md for all options."
        hint = f" Did you mean '{near[0]}'?" if near else all_options
        raise ConfigurationError(f"there is no option '{key}'.{hint}")
    return option


@lru_cache(maxsize=1024)
def nearest(key: str) -> str | None:
    """The option that this key was probably meant to be; None: it is one of Flink's names, or like none of them."""
    if is_known(key):
        return None
    names = _names()
    cutoff = _VERY_NEAR if key.startswith(_OPEN) else _NEAR
    # Capitals, and `_` for `-`, are no other letters.
    found = difflib.get_close_matches(_plain(key), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


@cache
def _names() -> dict[str, str]:
    """What people may have meant to write, and the option that it stands for."""
    names = [*OPTIONS, *FORMER_KEYS, *FLINK_NAMES]
    short = {
        _plain(name.removeprefix(_COMMON)): FORMER_KEYS.get(name, name)
        for name in names
        if name.startswith(_COMMON)
    }
    return short | {_plain(name): FORMER_KEYS.get(name, name) for name in names}


def _plain(key: str) -> str:
    return key.lower().replace("_", "-")


def check_spelling(key: str) -> None:
    """Raises ConfigurationError: the key is unknown, and it or the option that it resembles decides whether data is safe."""
    if is_known(key):
        return
    near = nearest(key)
    is_closed = key.startswith(_SAFETY) and not key.startswith(_OPEN)
    if is_closed or (near is not None and near.startswith(_SAFETY)):
        hint = f"Did you mean '{near}'?" if near else "See docs/reference/configuration.md."
        raise ConfigurationError(
            f"there is no option '{key}'. {hint} It looks like an option that decides whether "
            "data is safe after a failure, so it is not ignored. Correct its name, or remove it."
        )


def is_known(key: str) -> bool:
    return find_option(key) is not None or key in FORMER_KEYS or key in FLINK_NAMES
