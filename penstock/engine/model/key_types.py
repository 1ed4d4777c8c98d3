"""The type of the keys of an operator's state, as its snapshots and the job graph have it, and what a change of it asks for.

Does not know hashes: whether keys move is decided from the rule by which they are hashed, and from whether they change.
Source: Flink StateMetaInfoSnapshot (key serializer, namespace serializer); differs: written once for each operator.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.texts.type_texts import (
    shown_type,
    text_with_defaults,
    type_with_defaults,
)
from penstock.engine.model.type_changes import TypeChange, type_change
from penstock.engine.model.types import TypeInformation, is_pickled


@dataclass(frozen=True, slots=True)
class KeyType:
    """The keys of an operator's state. `type_text`: as `text_with_defaults` made it, because control messages carry no types of
    users; of the declared type, or of that of pickled values if there is none.

    `is_int32`: they are hashed as Flink hashes a Java int. `namespace`: the class of its windows; empty: it has none. `kinds`: the
    names of the classes that keys without a declared type had; none: it is declared, or an earlier release wrote it.
    """

    type_text: str
    is_int32: bool = False
    namespace: str = ""
    kinds: tuple[str, ...] = ()

    @staticmethod
    def of(type_info: TypeInformation, *, is_int32: bool = False, namespace: str = "") -> KeyType:
        """Raises: GraphError: a field of the type has a default that cannot be sent."""
        return KeyType(text_with_defaults(type_info), is_int32, namespace)

    @property
    def type_info(self) -> TypeInformation:
        return type_with_defaults(self.type_text)


@dataclass(frozen=True, slots=True)
class KeyMigration:
    """What an attempt does to restored keys before its operator sees them. `former`, `present`: the keys' types.

    `former` None: the type was not declared, or not written; the keys are checked and not converted.
    `is_rerouted`: they belong to other key groups now, so that each subtask reads all of them and keeps its own.
    `owner`: names the operator in error texts.
    """

    former: KeyType | None
    present: KeyType
    is_rerouted: bool
    allows_double: bool = False
    owner: str = "operator"

    @property
    def change(self) -> TypeChange:
        """What becomes of a key."""
        if self.former is None:
            return TypeChange()
        former, present = self.former.type_info, self.present.type_info
        return type_change(former, present, allows_double=self.allows_double)


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
    now = present.type_info
    before = None if former is None else former.type_info
    if former is None or before is None or is_pickled(before):
        if is_pickled(now):
            return KeyVerdict()
        # An earlier format says with each state how its keys were hashed: see `check_key_hash`.
        is_rerouted = former is not None and former.is_int32 != present.is_int32
        return KeyVerdict(migration=KeyMigration(None, present, is_rerouted))
    change = type_change(before, now, allows_double=allows_double)
    if change.refusal:
        return KeyVerdict(
            f"its keys were of type {shown_type(before)}, now they are of type "
            f"{shown_type(now)} ({change.refusal})"
        )
    is_rerouted = former.is_int32 != present.is_int32 or change.convert is not None
    if not change.steps and not is_rerouted:
        return KeyVerdict()
    migration = KeyMigration(former, present, is_rerouted, allows_double)
    return KeyVerdict(
        migration=migration, steps=change.steps or ("keys are hashed by another rule",)
    )
