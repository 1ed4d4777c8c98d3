"""Restored values whose declared type has changed: raw values of the former type become raw values of the present one.

Does not know where raw values are kept. Which change is possible: `engine/model/type_changes.py`; what a raw value is: `raw.py`.
Source: Flink StateMigrationException, RocksDBKeyedStateBackend.migrateStateValues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.model.errors import FinalError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.type_changes import Convert, KeysMerge, TypeChange, type_change
from penstock.engine.model.types import BasicType, BasicTypeInfo, TypeInformation, is_pickled
from penstock.engine.runtime.keys.hashing import original_key, state_key
from penstock.engine.runtime.state.map_entries import fitting
from penstock.engine.runtime.state.snapshot import StateInfo, refuse_restored

_BASIC: Final = {str(made): made for made in map(BasicTypeInfo, BasicType)}
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
    former, present = declared_type(restored), declared_type(wanted)
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


def declared_type(info: StateInfo) -> TypeInformation | None:
    """The type of the values; None: it is not known. An earlier release wrote only its text, which tells basic types."""
    return info.type_info or _BASIC.get(info.type_text)


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
