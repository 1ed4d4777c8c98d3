"""The entries of a map state: a dict whose keys stand for those of the user, as the keys of keyed state do (`state_key`).

So entries have the same keys on the heap and in RocksDB. None may be a key. Does not know backends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.engine.model.errors import FinalError, UserError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.keys.encoding import RefusedKey
from penstock.engine.runtime.keys.hashing import PLAIN, OtherKey, original_key, state_key
from penstock.engine.runtime.keys.kinds import KeyClasses

_SHOWN: Final = 200


class MapEntries(dict[Any, Any]):
    """Entries of which some key is an OtherKey. They are pickled with the keys of the user."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return entries_of, ([(original_key(key), value) for key, value in self.items()],)


def entry_key(key: Any, owner: object, name: str, classes: KeyClasses) -> Any:
    """What stands for a key of a map state. `owner`, `name`: of the operator and the state. `classes`: of its keys.

    Raises: UserError: it cannot be a key.
    """
    kind = type(key)
    if key is None or (kind in PLAIN and kind is not int):
        return key
    try:
        skey = state_key(key)
        if kind is int:
            return skey
        classes.check((key,), (skey,))
    except RefusedKey as error:
        raise UserError(
            f"{owner}: an entry of the map state {name!r} needs a key: {error}"
        ) from None
    return skey


def entries_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The entries of stored (key, value) pairs.

    Raises: FinalError: two of the keys are equal. They were not when they were stored, so their class has changed.
    """
    made: dict[Any, Any] = {}
    for key, value in pairs:
        skey = None if key is None else state_key(key)
        if skey in made:
            other = next(one for one in made if one == skey)
            raise FinalError(
                "a map state cannot be restored: two of its entries become one, because their keys "
                f"{bounded_repr(original_key(other), _SHOWN)} and {bounded_repr(key, _SHOWN)} "
                f"of class {type(key).__qualname__} were different when they were stored and are "
                "equal now. Restore with the former __eq__ of the class"
            )
        made[skey] = value
    return fitting(made)


def fitting(entries: dict[Any, Any]) -> dict[Any, Any]:
    """The same entries, in a dict that can be pickled."""
    has_other = OtherKey in map(type, entries)
    return MapEntries(entries) if has_other and type(entries) is dict else entries


def plain_map(entries: Mapping[Any, Any]) -> Any:
    """The map as users see it: a dict, or a list of (key, value) if a dict has one place for two of the keys, such as 1 and True."""
    pairs = [(original_key(key), value) for key, value in entries.items()]
    made = dict(pairs)
    return made if len(made) == len(pairs) else pairs
