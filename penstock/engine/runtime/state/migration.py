"""Restored values whose declared type has changed: raw values of the former type become raw values of the present one.

Does not know where raw values are kept. Which change is possible: `engine/model/type_changes.py`; what a raw value is:
`raw.py`. Source: Flink StateMigrationException, RocksDBKeyedStateBackend.migrateStateValues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

from penstock.engine.model.errors import FinalError
from penstock.engine.model.key_types import KeyMigration
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.texts.type_texts import shown_type
from penstock.engine.model.type_changes import Convert, KeysMerge, TypeChange, type_change
from penstock.engine.model.types import TypeInformation, is_pickled
from penstock.engine.runtime.codecs.convert import enforce_values
from penstock.engine.runtime.keys.hash_arrays import key_groups
from penstock.engine.runtime.keys.hashing import original_key, state_key, state_keys
from penstock.engine.runtime.state.map_entries import fitting
from penstock.engine.runtime.state.snapshot import (
    COLUMN_WINDOWS,
    KeyedPart,
    StateInfo,
    refuse_restored,
)

_VALUE_SHOWN: Final = 200
_MAPS: Final = frozenset({"Map", "Broadcast"})


@dataclass(frozen=True, slots=True)
class StateOwner:
    """Whose state it is, for error texts, and what its job allows. `allows_double`: integers may become DOUBLE.
    `records`: the type of the operator's records; None: it is not declared, or it has several inputs.
    """

    uid: str = ""
    name: str = ""
    allows_double: bool = False
    records: TypeInformation | None = None

    def __str__(self) -> str:
        return (
            f"operator {self.name!r} (uid {self.uid!r})" if self.name else f"operator {self.uid!r}"
        )


def change_of(restored: StateInfo, wanted: StateInfo, *, allows_double: bool) -> TypeChange:
    """What becomes of the values of a state. The kind and the time to live cannot change."""
    former, present = restored.type_info, wanted.type_info
    if restored == wanted and (former is None or present is None):
        return TypeChange()
    is_same_kind = (restored.kind, restored.has_ttl) == (wanted.kind, wanted.has_ttl)
    if not is_same_kind or former is None or present is None:
        return TypeChange(f"{restored} cannot become {wanted}")
    return type_change(former, present, allows_double=allows_double)


def records_type(input_types: tuple[Any, ...]) -> TypeInformation | None:
    """The type of the records that an operator with one input keeps; None: it is not declared."""
    only = input_types[0] if len(input_types) == 1 else None
    return None if is_pickled(only) else only


def raw_change(
    owner: StateOwner, name: str, restored: StateInfo, wanted: StateInfo
) -> Convert | None:
    """How raw values change; None: not at all.

    Raises: FinalError: they cannot. The function raises FinalError for a value that does not have its former type.
    """
    change = change_of(restored, wanted, allows_double=owner.allows_double)
    if change.refusal:
        refuse_restored(str(owner), name, restored, wanted, change.refusal)
    if change.convert is None:
        return None
    convert = _of_raw(restored.kind, change.convert, has_ttl=restored.has_ttl)

    def explained(raw: Any) -> Any:
        try:
            return convert(raw)
        except KeysMerge as error:
            raise FinalError(
                f"{owner} cannot migrate its state {name!r} ({'; '.join(change.steps)}): {error} "
                f"in {bounded_repr(raw, _VALUE_SHOWN)}, and an entry would be lost. Declare the "
                "type as it was."
            ) from error
        except Exception as error:
            # A value need not have its declared type: state in memory keeps any object.
            raise FinalError(
                f"{owner} cannot migrate its state {name!r} ({'; '.join(change.steps)}): the value "
                f"{bounded_repr(raw, _VALUE_SHOWN)} of class "
                f"{type(raw).__qualname__} does not have its former type: {type(error).__name__}: "
                f"{error}. Declare the type "
                "as it was."
            ) from error

    return explained


def _of_raw(kind: str, convert: Convert, *, has_ttl: bool) -> Callable[[Any], Any]:
    """`convert` takes the whole value: of a list all elements, of a map all entries."""
    if kind in _MAPS:
        return lambda raw: _converted_entries(convert, raw, has_ttl=has_ttl)
    if not has_ttl:
        return convert
    if kind == "List":
        return lambda raw: list(
            zip(convert([item for item, _ in raw]), (stamp for _, stamp in raw), strict=True)
        )
    return lambda raw: (convert(raw[0]), raw[1])


def _converted_entries(convert: Convert, raw: dict[Any, Any], *, has_ttl: bool) -> dict[Any, Any]:
    """One entry after the other: a dict of the keys of users may have one place for two of them. Raises: KeysMerge."""
    made: dict[Any, Any] = {}
    for entry, one in raw.items():
        value = one[0] if has_ttl else one
        ((key, converted),) = convert({original_key(entry): value}).items()
        found = None if key is None else state_key(key)
        if found in made:
            raise KeysMerge("two keys of the map become one")
        made[found] = (converted, one[1]) if has_ttl else converted
    return fitting(made)


_KEYS_SHOWN: Final = 200


class RestoredKeys:
    """Restored keys whose declared type has changed: they are checked, converted, and sent to the key groups that they
    belong to now.

    Does not know handles or backends: it changes parts as they are read. Which change is possible:
    `engine/model/type_changes.py`. Source: Flink refuses every changed key serializer (StateMigrationException);
    differs: a key that can be converted is.

    The keys of an operator in one subtask, while they are restored. `groups`: its first and last key group.
    """

    def __init__(self, migration: KeyMigration, groups: tuple[int, int]) -> None:
        self._migration = migration
        self._groups = groups
        self._convert = migration.change.convert
        self._known: dict[Any, Any] = {}

    @property
    def groups_to_read(self) -> tuple[int, int] | None:
        """First and last; None: all of them."""
        return None if self._migration.is_rerouted else self._groups

    @property
    def keeps_bytes(self) -> bool:
        """Whether keys are stored as they were, in the key groups in which they were."""
        return not self._migration.is_rerouted and self._convert is None

    def migrate(self, part: KeyedPart) -> None:
        """Change the part in place. Raises: FinalError: a key does not fit its type, or two keys become one."""
        if part.info.kind == COLUMN_WINDOWS:
            self._refuse_tables(part)
            return
        migration = self._migration
        if migration.former is None:
            check_keys([original_key(key) for key in part.keys], migration)
        if self._convert is not None:
            part.keys = self._converted(part.keys)
        if migration.is_rerouted:
            part.is_int32 = migration.present.is_int32
            self._keep_own(part)

    def _converted(self, skeys: list[Any]) -> list[Any]:
        assert self._convert is not None, "there is a conversion"
        found = state_keys([self._convert(original_key(skey)) for skey in skeys])
        for former, present in zip(skeys, found, strict=True):
            other = self._known.setdefault(present, former)
            if other != former:
                raise FinalError(
                    f"{self._migration.owner} cannot restore its keyed state: two keys become one, "
                    f"because {'; '.join(self._migration.change.steps)}: "
                    f"{bounded_repr(original_key(other), _KEYS_SHOWN)} and "
                    f"{bounded_repr(original_key(former), _KEYS_SHOWN)} become "
                    f"{bounded_repr(original_key(present), _KEYS_SHOWN)}. Declare the key "
                    "type of key_by as "
                    "it was."
                )
        return found

    def _keep_own(self, part: KeyedPart) -> None:
        """Drop the rows of other subtasks' key groups."""
        if not part.keys:
            return
        keys = [original_key(skey) for skey in part.keys]
        groups = key_groups(keys, part.max_parallelism, is_int32=part.is_int32)
        is_ours = ((groups >= self._groups[0]) & (groups <= self._groups[1])).tolist()
        part.keys = list(compress(part.keys, is_ours))
        for place, column in enumerate(part.columns):
            assert isinstance(column, list), "restored parts are lists, not frozen columns"
            part.columns[place] = list(compress(column, is_ours))

    def _refuse_tables(self, part: KeyedPart) -> None:
        migration = self._migration
        if migration.former is not None and part.keys:
            raise FinalError(
                f"{migration.owner} cannot restore its windows on columns: they have keys of type "
                f"{shown_type(migration.former.type_info)}, and the program now declares "
                f"{shown_type(migration.present.type_info)}: their panes are tables, whose keys "
                "are not "
                "migrated. Cast the key's "
                "column to its former type before key_by."
            )


def check_keys(keys: list[Any], migration: KeyMigration) -> None:
    """Raises: FinalError: a key that was written without a type is not of the declared type."""
    wanted = shown_type(migration.present.type_info)
    try:
        fitting = enforce_values(keys, migration.present.type_info)
    except (TypeError, AssertionError, OverflowError, ValueError) as error:
        found = sorted({type(key).__qualname__ for key in keys})
        raise FinalError(
            f"{migration.owner} cannot restore its keyed state: its keys were written without a "
            f"declared type and are of class {', '.join(found)}, and the "
            f"program now declares {wanted}: {error}. Declare the key type that they have, or none."
        ) from error
    if fitting is keys:
        return
    for former, present in zip(state_keys(keys), state_keys(fitting), strict=True):
        if former != present or type(original_key(former)) is not type(original_key(present)):
            raise FinalError(
                f"{migration.owner} cannot restore its keyed state: its keys were written without "
                f"a declared type, and {bounded_repr(original_key(former), _KEYS_SHOWN)} of class "
                f"{type(original_key(former)).__qualname__} is not what the program now declares, "
                f"{wanted}, so its records "
                "would not find it. Declare the key type that the keys have, or none."
            )
