"""Whether what the product answers is what a case expects."""

import re
from typing import Any

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import Option, text

_SETS_OF_SETS = frozenset({"regions", "groups", "restart"})
_COMMENTS = frozenset({"note", "why", "variants"})
_REFUSAL = re.compile(r"error|illegal|unsupported|exception|invalid", re.IGNORECASE)


class NotCovered(Exception):
    """A case of a covered area that is about something that the product leaves out on purpose."""


def differences(expect: Any, got: Any) -> str | None:
    """None where they agree. Of an object only the keys that the case names count."""
    if not isinstance(expect, dict):
        return None if is_equal(expect, got) else _tell(expect, got)
    if not isinstance(got, dict):
        plain = {key: value for key, value in expect.items() if key not in _COMMENTS}
        only = next(iter(plain.values())) if len(plain) == 1 else plain
        return None if is_equal(only, got) else _tell(only, got)
    for key, wanted in expect.items():
        if key in _COMMENTS:
            continue
        if key not in got:
            return f"expected {key}={wanted!r}, got nothing of that name"
        is_same = (
            is_equal(_as_sets(wanted), _as_sets(got[key]))
            if key in _SETS_OF_SETS
            else (is_equal(wanted, got[key]))
        )
        if not is_same:
            return f"{key}: {_tell(wanted, got[key])}"
    return None


def is_equal(wanted: Any, got: Any) -> bool:
    if isinstance(got, Exception):
        return wanted is None or bool(isinstance(wanted, str) and _REFUSAL.search(wanted))
    if isinstance(got, Option):
        return _is_default(wanted, got)
    if isinstance(wanted, dict) and isinstance(got, dict):
        keys = wanted.keys() - _COMMENTS
        return keys == got.keys() and all(is_equal(wanted[key], got[key]) for key in keys)
    if isinstance(wanted, list) and isinstance(got, (list, tuple)):
        return len(wanted) == len(got) and all(map(is_equal, wanted, got))
    if isinstance(wanted, bool) or isinstance(got, bool):
        return wanted is got
    if isinstance(wanted, (int, float)) and isinstance(got, (int, float)):
        is_whole = isinstance(wanted, int) and isinstance(got, int)
        return wanted == got if is_whole else abs(wanted - got) <= 1e-9 * max(1, abs(wanted))
    if isinstance(wanted, (set, frozenset)) and isinstance(got, (set, frozenset)):
        return wanted == got
    return type(wanted) is type(got) and bool(wanted == got)


def _is_default(wanted: Any, option: Option) -> bool:
    """Defaults are texts; `5 min` and `300 s` are one value, and none may be written in words."""
    if option.default is None:
        return wanted in {None, "none", "null", ""}
    if wanted is None:
        return False
    try:
        if option.kind is text:
            return str(wanted).lower() == option.default.lower()
        return option.parse(wanted) == option.parse(option.default)
    except ConfigurationError:
        return str(wanted) == option.default


def _as_sets(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return frozenset(map(_as_sets, value))
    return value


def _tell(wanted: Any, got: Any) -> str:
    return f"expected {wanted!r}, got {got!r}"
