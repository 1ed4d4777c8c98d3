"""What becomes of state when its declared type changes: it stays, it is migrated, or it is refused.

    integers  BYTE to SHORT to INT to LONG to BIG_INT; with `allows_double` all but BIG_INT to DOUBLE
    others    FLOAT to DOUBLE, CHAR to STRING, a DECIMAL to one with as many digits on both sides of the point
    ROW       fields are found by name: added ones get their default (None), dropped ones are left out, all others
              may change by these rules; without names, fields are added and dropped at the end
    TUPLE     each field by these rules; as many as before
    LIST, MAP and arrays: their elements, keys and values by these rules

Does not know state or hashes. Source: Flink TypeSerializerSchemaCompatibility (compatible as is, after migration,
incompatible), PojoSerializerSnapshot; differs: numbers may be widened, and every change is known from the types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, TypeAlias

from penstock.engine.model import types as t
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.texts.type_texts import shown_type, type_text

Convert: TypeAlias = Callable[[Any], Any]

_WIDTHS: Final = (
    t.BasicType.BYTE, t.BasicType.SHORT, t.BasicType.INT, t.BasicType.LONG, t.BasicType.BIG_INT,
)  # fmt: skip
_WIDENED: Final = frozenset({
    (t.BasicType.FLOAT, t.BasicType.DOUBLE),
    (t.BasicType.CHAR, t.BasicType.STRING),
    *((_WIDTHS[i], _WIDTHS[j]) for j in range(len(_WIDTHS)) for i in range(j)),
})


@dataclass(frozen=True, slots=True)
class TypeChange:
    """How values of a former type become values of the present one.

    `refusal`: why they cannot; empty: they can. `steps`: what is migrated, as texts; none: the types are equal.
    `convert`: makes the present value of a former one; None: the value stays as it is. `merges`: two values may become one.
    `merges_keys`: so may two keys of a map inside, and then `convert` raises KeysMerge.
    """

    refusal: str = ""
    steps: tuple[str, ...] = ()
    convert: Convert | None = None
    merges: bool = False
    merges_keys: bool = False


class KeysMerge(ValueError):
    """Two keys of a map become one, so that an entry would be lost."""


_SAME: Final = TypeChange()


def type_change(
    former: t.TypeInformation, present: t.TypeInformation, *, allows_double: bool = False
) -> TypeChange:
    """How to go from one declared type to the other. `allows_double`: integers may become DOUBLE."""
    return _change(former, present, "", allows_double)


def _change(
    former: t.TypeInformation, present: t.TypeInformation, where: str, allows_double: bool
) -> TypeChange:
    if type_text(former) == type_text(present):
        return _SAME
    if isinstance(former, t.ExternalTypeInfo):
        return _change(former.element_type, present, where, allows_double)
    if isinstance(present, t.ExternalTypeInfo):
        return _change(former, present.element_type, where, allows_double)
    found: TypeChange | None = None
    if isinstance(former, t.BasicTypeInfo) and isinstance(present, t.BasicTypeInfo):
        found = _basic(former, present, where, allows_double)
    elif isinstance(former, t.DecimalTypeInfo) and isinstance(present, t.DecimalTypeInfo):
        found = _decimal(former, present, where)
    elif isinstance(former, t.RowTypeInfo) and isinstance(present, t.RowTypeInfo):
        found = _row(former, present, where, allows_double)
    elif isinstance(former, t.TupleTypeInfo) and isinstance(present, t.TupleTypeInfo):
        found = _tuple(former, present, where, allows_double)
    elif isinstance(former, t.MapTypeInfo) and isinstance(present, t.MapTypeInfo):
        found = _map(former, present, where, allows_double)
    elif isinstance(former, t.ElementTypeInfo) and type(former) is type(present):
        found = _elements(former, present, where, allows_double)
    return found or _refused(former, present, where, "there is no conversion")


def _refused(
    former: t.TypeInformation, present: t.TypeInformation, where: str, reason: str
) -> TypeChange:
    place = f"{where}: " if where else ""
    return TypeChange(f"{place}{shown_type(former)} cannot become {shown_type(present)}: {reason}")


def _step(former: t.TypeInformation, present: t.TypeInformation, where: str) -> str:
    place = f"{where}: " if where else ""
    return f"{place}{shown_type(former)} becomes {shown_type(present)}"


def _basic(
    former: t.BasicTypeInfo, present: t.BasicTypeInfo, where: str, allows_double: bool
) -> TypeChange | None:
    kinds = (former.basic_type, present.basic_type)
    if kinds in _WIDENED:
        return TypeChange(steps=(_step(former, present, where),))
    if present.basic_type is not t.BasicType.DOUBLE or former.basic_type not in _WIDTHS[:-1]:
        return None
    if not allows_double:
        reason = (
            "a LONG above 2**53 would be rounded, so the job has to allow it with "
            "'penstock.state-recovery.allow-int-to-double: true'"
        )
        return _refused(former, present, where, reason)
    # Above 2**53 several LONGs are the same DOUBLE.
    merges = former.basic_type is t.BasicType.LONG
    return TypeChange(steps=(_step(former, present, where),), convert=_double, merges=merges)


def _double(value: Any) -> Any:
    return None if value is None else float(value)


def _decimal(
    former: t.DecimalTypeInfo, present: t.DecimalTypeInfo, where: str
) -> TypeChange | None:
    is_wider = present.precision - present.scale >= former.precision - former.scale
    if present.scale < former.scale or not is_wider:
        return None
    unit = Decimal(1).scaleb(-present.scale)

    def convert(value: Any) -> Any:
        return None if value is None else value.quantize(unit)

    is_as_before = present.scale == former.scale
    steps = (_step(former, present, where),)
    return TypeChange(steps=steps, convert=None if is_as_before else convert)


# ------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the present type. `place`: of the former field; -1: it is new, and gets `default`."""

    place: int
    convert: Convert | None
    default: Any = None

    def of(self, values: Sequence[Any]) -> Any:
        if self.place < 0:
            return self.default
        value = values[self.place]
        return value if self.convert is None else self.convert(value)


def _row(
    former: t.RowTypeInfo, present: t.RowTypeInfo, where: str, allows_double: bool
) -> TypeChange:
    names, now = former.get_field_names(), present.get_field_names()
    if former.has_names != present.has_names and len(names) == len(now):
        names = now  # names were added to the same fields, or taken away
    if names and not set(names) & set(now):
        return _refused(former, present, where, "no field has the name that it had")
    types = dict(zip(names, former.get_field_types(), strict=True))
    fields, steps, inside = [], [], []
    for name, type_info in zip(now, present.get_field_types(), strict=True):
        path = f"{where}.{name}" if where else f"field {name!r}"
        if name not in types:
            default = present.defaults.get(name)
            fields.append(_Field(-1, None, default))
            steps.append(f"{path} is added, as {default!r}")
            continue
        inner = _change(types[name], type_info, path, allows_double)
        if inner.refusal:
            return inner
        fields.append(_Field(names.index(name), inner.convert))
        inside.append(inner)
        steps += inner.steps
    dropped = [name for name in names if name not in now]
    steps += [
        f"{where}.{name} is dropped" if where else f"field {name!r} is dropped" for name in dropped
    ]
    if not steps:
        steps = [_step(former, present, where)]  # another order, or other names
    return TypeChange(
        steps=tuple(steps),
        convert=_row_converter(tuple(names), tuple(now), fields),
        merges=bool(dropped) or any(one.merges for one in inside),
        merges_keys=any(one.merges_keys for one in inside),
    )


def _row_converter(
    names: tuple[str, ...], now: tuple[str, ...], fields: Sequence[_Field]
) -> Convert:
    """Takes a Row, or a tuple where the type takes tuples. A Row keeps its kind."""

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Row):
            return tuple(field.of(value) for field in fields)
        has_names = value._fields is not None and set(value._fields) == set(names)
        values = value.get_fields_by_names(names) if has_names else list(value)
        row = make_row(now, tuple(field.of(values) for field in fields))
        row.set_row_kind(value.get_row_kind())
        return row

    return convert


def _tuple(
    former: t.TupleTypeInfo, present: t.TupleTypeInfo, where: str, allows_double: bool
) -> TypeChange:
    types, now = former.get_field_types(), present.get_field_types()
    if len(types) != len(now):
        reason = (
            "the fields of a TUPLE have no names, so none can be added or dropped. Use ROW_NAMED "
            "for state that grows"
        )
        return _refused(former, present, where, reason)
    fields: list[_Field] = []
    steps: list[str] = []
    inside: list[TypeChange] = []
    for place, (old, new) in enumerate(zip(types, now, strict=True)):
        inner = _change(old, new, f"{where}.{place}" if where else f"item {place}", allows_double)
        if inner.refusal:
            return inner
        fields.append(_Field(place, inner.convert))
        inside.append(inner)
        steps += inner.steps
    if all(field.convert is None for field in fields):
        return TypeChange(steps=tuple(steps))

    def convert(value: Any) -> Any:
        return None if value is None else tuple(field.of(value) for field in fields)

    return TypeChange(
        steps=tuple(steps),
        convert=convert,
        merges=any(one.merges for one in inside),
        merges_keys=any(one.merges_keys for one in inside),
    )


# ------------------------------------------------------------------------------- collections


def _elements(
    former: t.ElementTypeInfo, present: t.TypeInformation, where: str, allows_double: bool
) -> TypeChange:
    assert isinstance(present, t.ElementTypeInfo), "both types have elements"
    path = f"{where}, elements" if where else "elements"
    inner = _change(former.element_type, present.element_type, path, allows_double)
    if inner.convert is None:
        return inner
    convert_one = inner.convert

    def convert(value: Any) -> Any:
        return None if value is None else [convert_one(item) for item in value]

    return replace(inner, convert=convert)


def _map(
    former: t.MapTypeInfo, present: t.MapTypeInfo, where: str, allows_double: bool
) -> TypeChange:
    path = f"{where}, " if where else ""
    keys = _change(former.key_type, present.key_type, f"{path}keys of the map", allows_double)
    values = _change(
        former.value_type, present.value_type, f"{path}values of the map", allows_double
    )
    for side in (keys, values):
        if side.refusal:
            return side
    steps = (*keys.steps, *values.steps)
    if keys.convert is None and values.convert is None:
        return TypeChange(steps=steps)
    key_of, value_of = keys.convert or _as_it_is, values.convert or _as_it_is

    def convert(value: Any) -> Any:
        if value is None:
            return None
        made = {key_of(key): value_of(item) for key, item in value.items()}
        if len(made) < len(value):
            raise KeysMerge("two keys of the map become one")
        return made

    return TypeChange(
        steps=steps,
        convert=convert,
        merges=values.merges,
        merges_keys=keys.merges or keys.merges_keys or values.merges_keys,
    )


def _as_it_is(value: Any) -> Any:
    return value
