"""Plan: how one function runs on batches with certain columns: as a comprehension, on named tuples of the columns that it reads, or as it is written.

Does not know operators. A plan is made once for each schema, from the function's bytecode; nothing of the function runs.
"""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.engine.model.row import make_rows
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.base import Codec, column_values, may_lack_values
from penstock.engine.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.engine.runtime.codecs.convert import ROW_KIND_COLUMN, fields_of, is_as_declared
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.engine.runtime.row_functions.known_code import (
    READS_BYTECODE,
    Guard,
    Refused,
    has_own_containers,
    has_plain_values,
    hold,
)
from penstock.engine.runtime.row_functions.reading import Reader, fields_read
from penstock.engine.runtime.row_functions.trees import (
    Compiled,
    Kind,
    Node,
    TooLarge,
    compiled,
    nodes_of,
    results_of,
)

KnownValues: TypeAlias = Mapping[int, list[Any]]
"""Python values of columns, by the column's index."""


class Strategy(StrEnum):
    """How a function runs."""

    COLUMNS = "columns"
    """Its body is a comprehension over the columns that it reads."""
    FIELDS = "fields"
    """It is called with tuples or named tuples of the columns that it reads."""
    """Records of a key are counted, and their number is added. Only aggregates that count (`counts`)."""
    RECORDS = "records"
    """It is called with records."""


@dataclass(slots=True)
class Fields:
    """The fields of records with certain columns. `names`: of a Row; None: the records are tuples, or bare values."""

    names: tuple[str, ...] | None
    types: list[pa.DataType]
    codecs: list[Codec | None]
    is_record: bool

    def kind(self, place: int) -> TypeInformation | None:
        """The declared type of a column."""
        codec = self.codecs[place]
        return None if codec is None else codec.type_info

    def node(self, place: int) -> Node:
        """The node of a column. Raises: Refused: its values may be objects whose methods are not known."""
        kind, arrow = self.kind(place), self.types[place]
        is_plain = has_plain_values(kind, arrow)
        if not is_plain and not has_own_containers(kind, arrow):
            raise Refused(f"it reads a field of type {arrow if kind is None else kind}")
        return Node(
            Kind.COLUMN,
            value=place,
            is_changeable=not is_plain,
            has_plain_items=is_plain or has_own_containers(kind, arrow, of_plain=True),
        )

    def place_of(self, read: int | str) -> int:
        """The index of a field of a Row. Raises: Refused."""
        names = self.names or ()
        if isinstance(read, int):
            if not -len(names) <= read < len(names):
                raise Refused(f"the record has no field {read}")
            place = read % len(names)
        elif read in names:
            place = names.index(read)
        else:
            raise Refused(f"the record has no field {read!r}")
        return place


def fields_of_columns(schema: pa.Schema, type_info: TypeInformation | None) -> Fields:
    """The fields of the records that such columns become. Raises: Refused: they need more than their values."""
    if ROW_KIND_COLUMN in schema.names or not is_as_declared(schema, type_info):
        raise Refused("its columns do not have the declared types, or rows have kinds of change")
    codec = codec_of(type_info)
    if codec.arrow is None:
        names = tuple(schema.names)
        if len(set(names)) < len(names):
            raise Refused("two columns have the same name")
        return Fields(names, list(schema.types), [None] * len(names), is_record=True)
    codecs: list[Codec | None] = [*fields_of(codec)]
    is_record = isinstance(codec, RecordCodec)
    names_of = codec.row_names if isinstance(codec, RecordCodec) else None
    return Fields(names_of, list(schema.types), codecs, is_record)


class RecordView(NamedTuple):
    """What a function gets in place of a record. `named`: the class of named tuples; None: tuples. `is_whole`: they have a place for each
    field, because the function reads some by their index.
    """

    named: Any
    is_whole: bool


@dataclass(slots=True)
class Plan:
    """How a function runs. `why_not`: why not as columns. `places`: of the columns that it reads."""

    strategy: Strategy
    why_not: str
    fields: Fields | None = None
    places: tuple[int, ...] = ()
    guards: tuple[Guard, ...] = ()
    run: Compiled | None = None
    made_names: tuple[str, ...] | None = None
    """Names of the Rows that it makes."""
    makes_rows: bool = False
    is_shared: bool = False
    """Whether its results may hold lists and dicts to which somebody else refers, too."""
    view: RecordView | None = None
    """What the function gets, where it is called with fields."""
    reads_changeable: bool = False
    """Whether the function may change what a field holds: a list or dict."""
    tree: Node | None = None
    name: str = ""
    _loops: dict[Any, Compiled | None] = field(default_factory=dict)
    """Loops over decoded records, by the records' attributes."""

    def values(self, batch: ColumnBatch, known: KnownValues | None = None) -> list[list[Any]]:
        """The Python values of the columns that it reads. `known`: of some columns."""
        return [self._values_of(place, batch, known) for place in self.places]

    def _values_of(self, place: int, batch: ColumnBatch, known: KnownValues | None) -> list[Any]:
        assert self.fields is not None
        decoded = None if known is None else known.get(place)
        if decoded is None and isinstance(batch, DecodedColumns):
            decoded = batch.values_of(place)
        if decoded is None:
            codec, name = self.fields.codecs[place], batch.schema.names[place]
            decoded = column_values(batch.column(place), codec, name)
        return decoded

    def add_doubtful(self, batch: ColumnBatch, known: dict[int, list[Any]]) -> None:
        """Add the values of the columns that it reads and whose values Python may not have. Raises: NoPythonValue."""
        for place in self.places:
            if may_lack_values(batch.schema.types[place]):
                known[place] = self._values_of(place, batch, known)

    def results(self, batch: ColumnBatch, known: KnownValues | None = None) -> list[Any]:
        """What the function returns for each record. Raises: what one of its operations raises, for some record."""
        loop = self._loop_over(batch) if isinstance(batch, DecodedColumns) else None
        if loop is not None:
            assert isinstance(batch, DecodedColumns)
            made = loop(len(batch), batch.records)
        else:
            assert self.run is not None
            made = self.run(len(batch), *self.values(batch, known))
        return make_rows(self.made_names, made, len(made)) if self.makes_rows else made

    def _loop_over(self, batch: DecodedColumns) -> Compiled | None:
        """The loop over decoded records with these attributes; None: they lack a field."""
        key = tuple(batch.attributes.items())
        if key not in self._loops:
            self._loops[key] = self._made_loop(batch.attributes)
        return self._loops[key]

    def _made_loop(self, attributes: Mapping[int, str]) -> Compiled | None:
        if self.tree is None or not attributes.keys() >= set(self.places):
            return None
        try:
            return compiled(self.tree, (), self.name, attributes)
        except TooLarge:  # Attributes have longer names than columns.
            return None

    def records(self, batch: ColumnBatch, known: KnownValues | None = None) -> Iterator[Any]:
        """A tuple or named tuple for each record, of the fields that the function reads. One that reads none gets any tuples, all different.
        `known`: as in `values`.
        """
        assert self.fields is not None
        assert self.view is not None
        if self.view.is_whole:
            read = dict(zip(self.places, self.values(batch, known), strict=True))
            unread: list[Any] = [None] * len(batch)
            columns = [read.get(place, unread) for place in range(len(self.fields.codecs))]
        elif isinstance(batch, DecodedColumns) and self._has_as_named(batch.attributes):
            return iter(batch.records)
        else:
            columns = self.values(batch, known) or [list(range(len(batch)))]
        made = zip(*columns, strict=True)
        if self.view.named is None:
            return made
        return map(tuple.__new__, repeat(self.view.named), made)

    def _has_as_named(self, attributes: Mapping[int, str]) -> bool:
        """Whether the function finds the fields that it reads at decoded records, too."""
        names: tuple[str, ...] = getattr(self.fields, "names", None) or ()
        return all(attributes.get(place) == names[place] for place in self.places)

    def holds(self) -> bool:
        """Whether the variables outside of the function have the values with which the plan was made."""
        return hold(self.guards)


def as_written(why_not: str) -> Plan:
    return Plan(Strategy.RECORDS, why_not)


def plan_of(call: Callable[..., Any], schema: pa.Schema, type_info: TypeInformation | None) -> Plan:
    """How a function runs on such columns. Its own code does not run."""
    if not READS_BYTECODE:
        return as_written("the bytecode of this Python version is not known")
    function, place = function_of(call)
    if function is None:
        return as_written(f"{type(call).__name__} is no function of Python")
    try:
        fields = fields_of_columns(schema, type_info)
    except Refused as refused:
        return as_written(str(refused))
    try:
        return _as_columns(function, place, fields)
    except (Refused, TooLarge) as refused:
        why_not = str(refused)
    except RecursionError:
        why_not = "it is nested too deeply"
    try:
        return plan_as_fields(function, place, fields, why_not)
    except Refused:
        return as_written(why_not)


def filter_plan_of(
    call: Callable[..., Any], schema: pa.Schema, type_info: TypeInformation | None
) -> Plan:
    """`plan_of` of a filter, whose records go on: what it changes in a field must be changed in the record."""
    plan = plan_of(call, schema, type_info)
    if plan.strategy is Strategy.FIELDS and plan.reads_changeable:
        return as_written("it may change a list or dict of a record that is emitted")
    return plan


def fields_plan_of(
    call: Callable[..., Any], schema: pa.Schema, type_info: TypeInformation | None
) -> Plan:
    """The plan of a function that is always called: with records, or with their fields. Its own code does not run."""
    function, place = function_of(call) if READS_BYTECODE else (None, 0)
    if function is None:
        return as_written("its bytecode is not known")
    try:
        return plan_as_fields(function, place, fields_of_columns(schema, type_info), "it has state")
    except Refused as refused:
        return as_written(str(refused))


def function_of(call: object) -> tuple[FunctionType | None, int]:
    """The Python function of a callable, and the place of the record among its arguments."""
    if isinstance(call, MethodType) and isinstance(call.__func__, FunctionType):
        return call.__func__, 1
    return (call, 0) if isinstance(call, FunctionType) else (None, 0)


def tree_of(call: object, arguments: Sequence[Node]) -> tuple[Node, tuple[Guard, ...]]:
    """What a function of these arguments returns, and what has to hold. Its own code does not run. Raises: Refused."""
    function, place = function_of(call) if READS_BYTECODE else (None, 0)
    if function is None:
        raise Refused("it is no function of Python whose bytecode is known")
    reader = Reader(function)
    try:
        tree = reader.tree({place + index: node for index, node in enumerate(arguments)})
    except RecursionError as error:
        raise Refused("it is nested too deeply") from error
    return tree, tuple(reader.guards)


def record_of(fields: Fields) -> Node:
    """The node of the record that a function is given. Raises: Refused."""
    if fields.is_record and fields.names is not None:
        return Node(Kind.RECORD, value=_field_reader(fields))
    columns = tuple(map(fields.node, range(len(fields.codecs))))
    if not fields.is_record:
        return columns[0]
    changeable = any(one.is_changeable for one in columns)
    return Node(Kind.TUPLE, columns, is_changeable=changeable)


def _as_columns(function: FunctionType, place: int, fields: Fields) -> Plan:
    """The plan of a function that only computes. Raises: Refused, TooLarge."""
    reader = Reader(function)
    tree = reader.tree({place: record_of(fields)})
    plan = Plan(Strategy.COLUMNS, "", fields, guards=tuple(reader.guards), tree=tree)
    plan.is_shared = tree.is_changeable and _may_be_shared(tree)
    rows = list(results_of(tree))
    if any(one.kind is Kind.ROW for one in rows):
        shapes = {(one.value, len(one.args)) for one in rows if one.kind is Kind.ROW}
        if len(shapes) > 1 or any(one.kind is not Kind.ROW for one in rows):
            raise Refused("it returns Rows of several shapes")
        plan.makes_rows, plan.made_names = True, rows[0].value
    read = {one.value for one in nodes_of(tree) if one.kind is Kind.COLUMN}
    plan.places = tuple(sorted(read))
    plan.name = function.__qualname__
    plan.run = compiled(tree, plan.places, plan.name)
    return plan


def _field_reader(fields: Fields) -> Callable[[int | str], Node]:
    """Gives the node of a field of a Row, the same each time. It raises Refused."""
    columns: dict[int, Node] = {}

    def field_of(field: int | str) -> Node:
        place = fields.place_of(field)
        if place not in columns:
            columns[place] = fields.node(place)
        return columns[place]

    return field_of


def _may_be_shared(tree: Node) -> bool:
    """Whether a list or dict in a result may be known elsewhere, or be there twice. What comes from a column is made for its record."""
    seen: set[int] = set()
    holders = [node for node in nodes_of(tree) if node.is_changeable]
    for node in holders:
        for one in node.args:
            if one.is_changeable and (one.kind is Kind.KNOWN or id(one) in seen):
                return True
            seen.add(id(one))
    return tree.kind is Kind.KNOWN


def plan_as_fields(function: FunctionType, place: int, fields: Fields, why_not: str) -> Plan:
    if fields.names is None:
        raise Refused("the records are no Rows")
    read = fields_read(function.__code__, place)
    if read.counts - {len(fields.names)}:
        raise Refused("it unpacks another number of fields than the record has")
    whole = range(len(fields.names)) if read.counts else ()
    places = tuple(sorted({*map(fields.place_of, read.names | read.indexes), *whole}))
    nodes = list(map(fields.node, places))
    guard = Guard(lambda: function.__code__, function.__code__)
    is_whole, named = bool(read.indexes or read.counts), None
    if read.names:
        names = fields.names if is_whole else [fields.names[one] for one in places]
        if any(map(_cannot_be_named, names)):
            raise Refused("a field has a name that named tuples do not take")
        # The names are known only now.
        make: Any = namedtuple  # ruff: ignore[collections-named-tuple]
        named = make("Row", names)
    plan = Plan(
        Strategy.FIELDS, why_not, fields, places, (guard,), view=RecordView(named, is_whole)
    )
    plan.reads_changeable = any(one.is_changeable for one in nodes)
    return plan


def _cannot_be_named(name: str) -> bool:
    return name.startswith("_") or keyword.iskeyword(name) or not name.isidentifier()
