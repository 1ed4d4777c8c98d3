"""Protects emitted records: what a function has emitted stays as it was, whatever the function does to its objects
afterwards.

Results are gathered in a batch before anybody reads them, and a function may keep what it emits. So each result that
can be changed is copied when it is emitted, unless the program has turned object reuse on. Numbers, texts, tuples of
them and the like are not copied. Does not know operators. Source: Flink CopyingChainingOutput; PyFlink, whose workers
encode each result before the function continues.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import fields as fields_of
from fractions import Fraction
from itertools import repeat
from operator import is_
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from penstock.engine.model.graph.chain import ChainSpec, ChainTarget
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.type_information import TypeInformation
from penstock.engine.runtime.codecs.convert import is_columnar
from penstock.engine.runtime.elements import Element, RowBatch
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.engine.runtime.records.frozen import ATOM_BASES, IMMUTABLE_KINDS, is_immutable

C = TypeVar("C", bound=type)
_PLAIN: Final[set[type]] = {
    *IMMUTABLE_KINDS,
    *(Fraction, range, type, FunctionType, BuiltinFunctionType, type(...)),
}
"""Classes whose objects nobody changes."""
_ATOMS: Final = (*ATOM_BASES, pa.Array, pa.ChunkedArray, pa.Scalar, pa.RecordBatch, pa.Schema)
"""As _PLAIN, with their subclasses."""
_OWN_ITERATORS: Final = frozenset({"builtins", "itertools"})
_DEPTH: Final = 4
"""Deeper parts are copied by `deepcopy`, which recognises objects that it has met before."""

ONE_RECORD: Final = frozenset({str, bytes, bytearray, dict, Row})
"""Iterables that a function returns as its one result if its author forgot `yield`. Its parts must not become records in silence."""


def never_changes(kind: C) -> C:
    """Mark a class whose objects nobody changes."""
    _PLAIN.add(kind)
    return kind


def same(given: Any) -> Any:
    """Used where nothing has to be copied."""
    return given


def own_copy(value: Any) -> Any:
    """A copy of everything in the value that can be changed; the value itself if there is nothing.

    An iterator of Python's own is returned itself. Raises: TypeError: the value cannot be copied.
    """
    # These cases come first and without a call, because most records are flat tuples.
    kind = type(value)
    if kind is tuple:
        for part in value:
            if type(part) not in _PLAIN:
                return _copied(value, _DEPTH)
        return value
    return value if kind in _PLAIN else _copied(value, _DEPTH)


def take(into: list[Any], results: Iterable[Any]) -> None:
    """`into.extend(results)`, with `own_copy` of each result before the next one is asked for."""
    append, plain = into.append, _PLAIN
    for value in results:
        kind = type(value)
        if kind is tuple:
            for part in value:
                if type(part) not in plain:
                    append(_copied(value, _DEPTH))
                    break
            else:
                append(value)
        elif kind in plain:
            append(value)
        else:
            append(_copied(value, _DEPTH))


def own_copies(values: list[Any]) -> list[Any]:
    """`own_copy` of each value; the list itself if none of them can be changed."""
    return values if is_immutable(values) else list(map(own_copy, values))


def raise_if_no_results(returned: object) -> None:
    """Raises: TypeError if this is not an iterable, which functions with any number of results return."""
    if hasattr(returned, "__iter__") or hasattr(returned, "__getitem__"):
        return
    raise TypeError(
        f"the function returned {bounded_repr(returned)}, of type {type(returned).__name__}; "
        "expected its results as an iterable. Use `yield`, or return a list."
    ) from None


def refuse_one_record(returned: object) -> NoReturn:
    """Raises: TypeError, because a process function has returned a value of ONE_RECORD."""
    kind = type(returned).__name__
    raise TypeError(
        f"the function returned {bounded_repr(returned)}, of type {kind}; expected its results "
        "in a list or another iterable of records. Use `yield`: without it the parts of the "
        f"{kind} would be records."
    ) from None


def opened(results: Iterable[Any]) -> Iterator[Any]:
    """What a function has returned, as an iterator. Raises: TypeError: it is no iterable, or one record."""
    if type(results) in ONE_RECORD:
        refuse_one_record(results)
    try:
        return iter(results)
    except TypeError:
        raise_if_no_results(results)
        raise


# ---------------------------------------------------------------------- copies by class


def _copied(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    copy = _COPIES.get(kind)
    if copy is None:
        return _of_another_class(value, depth)
    return copy(value, depth - 1) if depth else _deep_copy(value)


def _parts(values: Iterable[Any], depth: int) -> list[Any]:
    return [part if type(part) in _PLAIN else _copied(part, depth) for part in values]


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    made = _parts(value, depth)
    return value if all(map(is_, made, value)) else tuple(made)


def _frozenset(value: frozenset[Any], depth: int) -> Any:
    made = _parts(value, depth)
    return value if all(map(is_, made, value)) else frozenset(made)


def _dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    return dict(zip(_parts(value, depth), _parts(value.values(), depth), strict=True))


def _row(value: Row, depth: int) -> Row:
    # ruff: ignore[private-member-access] - hot
    fields, values, kind = value._fields, value._values, value._row_kind
    if _PLAIN.issuperset(map(type, values)):
        return make_row(fields, values, kind)
    return make_row(fields, _parts(values, depth), kind)


def _array(value: Any, _depth: int) -> Any:
    return _deep_copy(value) if value.dtype.hasobject else value.copy(order="K")


_COPIES: Final[dict[type, Callable[[Any, int], Any]]] = {
    tuple: _tuple,
    frozenset: _frozenset,
    list: _parts,
    dict: _dict,
    Row: _row,
    set: lambda value, depth: set(_parts(value, depth)),
    bytearray: lambda value, _depth: bytearray(value),
    deque: lambda value, depth: deque(_parts(value, depth), value.maxlen),
    np.ndarray: _array,
}


def _of_another_class(value: Any, depth: int) -> Any:
    if isinstance(value, _ATOMS) or (
        isinstance(value, Iterator) and _package(value) in _OWN_ITERATORS
    ):
        return value
    if depth and _is_frozen(value, depth - 1):
        return value
    return _deep_copy(value)


def _is_frozen(value: Any, depth: int) -> bool:
    """Whether this is a named tuple or frozen dataclass of what cannot be changed."""
    parts = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, tuple):
        parts += value
    elif not _COPIES.keys().isdisjoint(type(value).__mro__):
        return False
    elif getattr(vars(type(value)).get("__dataclass_params__"), "frozen", False):
        parts += [getattr(value, field.name, None) for field in fields_of(value)]
    else:
        return False
    return all(map(is_, _parts(parts, depth), parts))


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _deep_copy(value: Any) -> Any:
    try:
        if _package(value) == "pandas":  # Its deep copies share the objects in cells.
            return pickle.loads(pickle.dumps(value, protocol=5))
        return deepcopy(value)
    # The code of user classes may raise anything.
    except Exception as error:
        raise TypeError(
            f"{bounded_repr(value, 200)}, of type {type(value).__name__}, was emitted and cannot "
            f"be copied: {error}. Emit values that can be copied; or call "
            "env.get_config().enable_object_reuse(), if nothing changes what was emitted."
        ) from error


class RecordSharing:
    """Records that go to more than one consumer: each consumer gets its own, so that none sees what another changes in
    place.

    Does not know operators. Source: Flink CopyingBroadcastingOutputCollector, CopyingChainingOutput (object reuse off);
    differs: a batch at a time, only where a record goes to several consumers, and only if it can be changed.

    Decides which consumers in a chain get copies of records.
    """

    def __init__(self, spec: ChainSpec) -> None:
        self._as_columns = frozenset(
            place
            for place, output in enumerate(spec.outputs)
            if output.data_set_id is not None
            and isinstance(output.element_type, TypeInformation)
            and is_columnar(output.element_type)
        )
        """Outputs that keep no record, because records are written as columns at once."""
        self._reuses_objects = any(
            getattr(one.operator, "reuses_objects", False) for one in spec.operators
        )

    def copies(
        self, element: Element, outputs: Sequence[int], targets: Sequence[ChainTarget]
    ) -> Iterator[Element]:
        """The element for each output and then for each target of an operator."""
        if self._reuses_objects or (len(targets) <= 1 and self._as_columns.issuperset(outputs)):
            return repeat(element)
        return shared(element, len(outputs) + len(targets))


def shared(element: Element, consumers: int) -> Iterator[Element]:
    """The element for each consumer. Copies are made when they are asked for; the last consumer gets the element itself.

    Raises: TypeError: a record cannot be copied.
    """
    copy = _copier(element) if consumers > 1 else None
    for _ in range(consumers - 1):
        yield element if copy is None else copy()
    if consumers:
        yield element


def _copier(element: Element) -> Callable[[], Element] | None:
    """Makes copies of the records that share nothing changeable with them. None: they cannot be changed."""
    if isinstance(element, RowBatch) and not is_immutable(element.values):
        return lambda: RowBatch(_copies(element.values), element.timestamps)
    if isinstance(element, DecodedColumns) and any(map(_is_nested, element.schema.types)):
        return lambda: element.with_records(_copies(element.records))
    return None


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _copies(records: list[object]) -> list[object]:
    copies = list(map(own_copy, records))
    for one, copy in zip(records, copies, strict=True):
        if copy is one and isinstance(one, Iterator):
            raise TypeError(
                f"a record of type {type(one).__name__} goes to several consumers, and an iterator "
                "can be read only once: emit a list of its items"
            )
    return copies
