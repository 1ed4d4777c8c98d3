"""The type of the keys of an operator's state, as its snapshots and the job graph have it, and what a change of it asks for.

Does not know hashes: whether keys move is decided from the rule by which they are hashed, and from whether they change.
Source: Flink StateMetaInfoSnapshot (key serializer, namespace serializer); differs: written once for each operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.model.type_changes import TypeChange, type_change
from penstock.model.type_texts import shown_type, type_of_text, type_text
from penstock.model.types import TypeInformation, is_pickled


@dataclass(frozen=True, slots=True)
class KeyType:
    """The keys of an operator's state. `type_info`: declared type, or that of pickled values if there is none.

    `is_int32`: they are hashed as Flink hashes a Java int. `namespace`: the class of its windows; empty: it has none.
    """

    type_info: TypeInformation
    is_int32: bool = False
    namespace: str = ""

    def as_json(self) -> list[Any]:
        return [type_text(self.type_info), self.is_int32, self.namespace]

    @staticmethod
    def of_json(found: list[Any]) -> KeyType:
        """Raises: ValueError: its type is none."""
        type_info, is_int32, namespace = found
        return KeyType(type_of_text(type_info), is_int32, namespace)


@dataclass(frozen=True, slots=True)
class KeyMigration:
    """What an attempt does to restored keys before its operator sees them.

    `former` None: the type was not declared, or not written; the keys are only checked. `is_int32`: how they are hashed now.
    `is_rerouted`: they belong to other key groups now, so that each subtask reads all of them and keeps its own.
    `owner`: names the operator in error texts.
    """

    former: TypeInformation | None
    present: TypeInformation
    is_int32: bool
    is_rerouted: bool
    allows_double: bool = False
    owner: str = "operator"

    @property
    def change(self) -> TypeChange:
        """What becomes of a key."""
        if self.former is None:
            return TypeChange()
        return type_change(self.former, self.present, allows_double=self.allows_double)


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """What becomes of an operator's keys. `refusal`: why they cannot be restored; empty: they can.

    `migration` None: they stay as they are. `steps`: what is migrated, as texts.
    """

    refusal: str = ""
    migration: KeyMigration | None = None
    steps: tuple[str, ...] = ()


def judge_keys(
    former: KeyType | None, present: KeyType, *, allows_double: bool = False
) -> KeyVerdict:
    """What becomes of keys that were written with the type `former` (None: a snapshot of an earlier format) and are restored now.

    Undeclared keys may become declared ones if each of them fits: that is checked when they are read.
    """
    if former is not None and former.namespace != present.namespace:
        return KeyVerdict(
            f"its windows were of type {former.namespace or 'none'}, now they are of type "
            f"{present.namespace or 'none'}"
        )
    if former is None or is_pickled(former.type_info):
        if is_pickled(present.type_info):
            return KeyVerdict()
        migration = KeyMigration(None, present.type_info, present.is_int32, is_rerouted=False)
        return KeyVerdict(migration=migration)
    change = type_change(former.type_info, present.type_info, allows_double=allows_double)
    if change.refusal:
        return KeyVerdict(
            f"its keys were of type {shown_type(former.type_info)}, now they are of type "
            f"{shown_type(present.type_info)} ({change.refusal})"
        )
    is_rerouted = former.is_int32 != present.is_int32 or change.convert is not None
    if not change.steps and not is_rerouted:
        return KeyVerdict()
    migration = KeyMigration(
        former.type_info, present.type_info, present.is_int32, is_rerouted, allows_double
    )
    return KeyVerdict(
        migration=migration, steps=change.steps or ("keys are hashed by another rule",)
    )
