"""Restored keys whose declared type has changed: they are checked, converted, and sent to the key groups that they belong to now.

Does not know handles or backends: it changes parts as they are read. Which change is possible: `engine/model/type_changes.py`.
Source: Flink refuses every changed key serializer (StateMigrationException); differs: a key that can be converted is.
"""

from __future__ import annotations

from itertools import compress
from typing import Any, Final

from penstock.engine.model.errors import FinalError
from penstock.engine.model.key_types import KeyMigration
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.texts.type_texts import shown_type
from penstock.engine.runtime.codecs.convert import enforce_values
from penstock.engine.runtime.keys.hash_arrays import key_groups
from penstock.engine.runtime.keys.hashing import original_key, state_keys
from penstock.engine.runtime.state.snapshot import COLUMN_WINDOWS, KeyedPart

_KEYS_SHOWN: Final = 200


class RestoredKeys:
    """The keys of an operator in one subtask, while they are restored. `groups`: its first and last key group."""

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
