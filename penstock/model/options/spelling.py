"""What a key that is no option probably means, and whether it may be ignored.

A key of other software has no effect here, and that is all right. A key that looks like an option but is none was meant to do something. If
that is to keep data safe, a job without it must not run. Does not know values. Source: none; Flink ignores keys that it does not know.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Final

from penstock.model.errors import ConfigurationError
from penstock.model.options.catalogue import FORMER_KEYS, OPTIONS, find_option
from penstock.model.options.flink_names import FLINK_NAMES

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


@lru_cache(maxsize=1024)
def nearest(key: str) -> str | None:
    """The option that this key was probably meant to be; None: it is one of Flink's names, or like none of them."""
    if _is_known(key):
        return None
    names = _names()
    cutoff = _VERY_NEAR if key.startswith(_OPEN) else _NEAR
    # Capitals, and `_` for `-`, are no other letters.
    found = difflib.get_close_matches(_plain(key), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


@lru_cache(maxsize=1)
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
    if _is_known(key):
        return
    near = nearest(key)
    is_closed = key.startswith(_SAFETY) and not key.startswith(_OPEN)
    if is_closed or (near is not None and near.startswith(_SAFETY)):
        hint = f"Did you mean '{near}'?" if near else "See docs/reference/configuration.md."
        raise ConfigurationError(
            f"there is no option '{key}'. {hint} It looks like an option that decides whether "
            "data is safe after a failure, so it is not ignored. Correct its name, or remove it."
        )


def _is_known(key: str) -> bool:
    return find_option(key) is not None or key in FORMER_KEYS or key in FLINK_NAMES
