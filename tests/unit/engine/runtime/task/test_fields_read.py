"""Which fields of its records a source is told to read: those of the functions behind it, if nobody else gets the records."""

from dataclasses import replace

import pytest

from penstock.common import WatermarkStrategy
from penstock.common.typeinfo import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.operators import FilterOperator, FlatMapOperator, MapOperator
from penstock.engine.runtime.operators.sinks import SinkOperator
from penstock.engine.runtime.sink import Sink
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.fields_read import fields_read
from penstock.engine.runtime.watermarks.strategy import ColumnTimestamps
from tests.tools.runtime.task_parts import context_for, output, spec_of

KIND = Types.ROW_NAMED(
    ["a", "b", "c", "d"], [Types.LONG(), Types.DOUBLE(), Types.STRING(), Types.LONG()]
)
ALL = ("a", "b", "c", "d")


class Source:
    def __init__(self, kind) -> None:
        self.produced_type = kind


def map_of(function):
    return MapOperator(UserFunction(function))


def filter_of(function):
    return FilterOperator(UserFunction(function))


def with_loop(row):
    total = 0
    for _ in range(row.a):
        total += len(row.c)
    return [total]


class RowSink(Sink):
    def create_writer(self, context):
        return self


def read(*operators, kind=KIND, strategy=None, types=None, all_fields=False, **spec):
    given = Source(kind)
    given.reads_all_fields = all_fields
    source = SourceOperator(given, strategy or WatermarkStrategy.no_watermarks())
    chain = OperatorChain(typed(spec_of([source, *operators], **spec), types or kind), lambda: 0)
    chain.open(context_for)
    return fields_read(chain.nodes)


def typed(spec, kind):
    """The records of the source have this type, and so have those that filters let pass."""
    chained = [
        replace(one, targets=tuple(replace(to, element_type=kind) for to in one.targets))
        if isinstance(one.operator, SourceOperator | FilterOperator)
        else one
        for one in spec.operators
    ]
    return replace(spec, operators=tuple(chained))


CASES = {
    "one that only computes": ([map_of(lambda row: row.a + row["d"])], ("a", "d")),
    "by position": ([map_of(lambda row: row[1])], ("b",)),
    "one that calls": ([FlatMapOperator(UserFunction(with_loop))], ("a", "c")),
    "one that reads nothing": ([map_of(lambda row: 1)], ()),
    "one that takes the record": ([map_of(lambda row: row)], ALL),
    "a filter and what follows": (
        [filter_of(lambda row: row.a), map_of(lambda row: row.c)],
        ("a", "c"),
    ),
    "what follows a map": ([map_of(lambda row: row.a), map_of(lambda value: value)], ("a",)),
    "a sink": ([SinkOperator(RowSink())], ALL),
}


@pytest.mark.parametrize("name", CASES)
def test_the_fields_that_the_functions_read_are_told(name):
    operators, expected = CASES[name]
    assert read(*operators) == expected


def test_all_consumers_count():
    two = [map_of(lambda row: row.a), map_of(lambda row: row.b)]
    targets = [[(None, 1), (None, 2)], [], []]
    assert read(*two, targets=targets, outputs=[output(1), output(2)]) == ("a", "b")


@pytest.mark.parametrize("place", [0, 1])
def test_records_that_leave_the_task_leave_as_columns(place):
    kept = [filter_of(lambda row: row.a), map_of(lambda row: row.b)]
    assert read(*kept, outputs=[output(place), output(2)]) is None


def test_an_assigner_that_takes_rows_reads_all_and_one_that_takes_a_column_needs_columns():
    function = map_of(lambda row: row.a)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    rows = strategy.with_timestamp_assigner(Assigner())
    assert read(function, strategy=rows) == ALL
    columns = strategy.with_timestamp_assigner(ColumnTimestamps("a"))
    assert read(map_of(lambda row: row.a), strategy=columns) is None


class Assigner:
    def extract_timestamp(self, value, record_timestamp):
        return value.d


def test_nothing_is_told_where_types_are_not_declared_or_differ():
    assert read(map_of(lambda row: row.a), kind=None) is None
    other = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
    assert read(map_of(lambda row: row.a), types=other) is None


def test_all_fields_are_told_if_they_are_to_be_checked():
    assert read(map_of(lambda row: row.a), all_fields=True) == ALL


def test_functions_that_are_called_with_records_read_all():
    function = map_of(lambda row: row.a)
    function.functions_as_columns = False
    assert read(function) == ALL
