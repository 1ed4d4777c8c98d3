"""Column expressions: `col("price") * 2 > lit(100)`, computed by Arrow, no Python object per record.

An expression is plain data (an operation and its arguments), so it is picklable. Does not know operators.
Source: the column APIs of PySpark and Polars, reduced; differs: the semantics are those of Arrow's compute functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.engine.runtime.codecs.time_columns import epoch_ms


class Column:
    """An expression over the columns of a batch. Operators and methods make larger expressions."""

    __slots__ = ("_name", "args", "operation")

    def __init__(self, operation: str, args: tuple[Any, ...], name: str | None = None) -> None:
        self.operation = operation
        self.args = args
        self._name = name

    @property
    def column_name(self) -> str | None:
        """The column's name if this is a plain reference, else None."""
        return str(self.args[0]) if self.operation == "col" and self._name is None else None

    @property
    def output_name(self) -> str:
        """The name of the result in `select`: alias, column, or the expression's own text."""
        return self._name or self.column_name or str(self)

    def columns_read(self) -> set[str]:
        """Return the names of the columns that the expression reads."""
        if self.operation == "col":
            return {self.args[0]}
        found: set[str] = set()
        for arg in self.args if self.operation != "lit" else ():
            for part in arg if isinstance(arg, tuple | list) else (arg,):
                found |= part.columns_read() if isinstance(part, Column) else set()
        return found

    def alias(self, name: str) -> Column:
        """Return the expression with a name for its result."""
        return Column(self.operation, self.args, name)

    def evaluate(self, data: pa.RecordBatch) -> Any:
        """Return an Arrow array; a scalar if the expression reads no column.

        Raises:
            KeyError: a column does not exist. Types that do not fit raise Arrow's own errors.
        """
        if self.operation == "col":
            name = self.args[0]
            if name not in data.schema.names:
                raise KeyError(
                    f"column {name!r} is not in this stream; its columns are {data.schema.names}"
                )
            return data.column(name)
        if self.operation == "lit":
            return pa.scalar(self.args[0])
        args = [arg.evaluate(data) if isinstance(arg, Column) else arg for arg in self.args]
        return _OPERATIONS[self.operation](*args)

    def array(self, data: pa.RecordBatch) -> pa.Array:
        """Return the result as an array; a scalar is repeated for each row."""
        value = self.evaluate(data)
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, data.num_rows)
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value

    def __add__(self, other: Any) -> Column:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Column:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Column:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Column:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Column:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Column:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Column:
        return _binary("true_divide", self, other)

    def __rtruediv__(self, other: Any) -> Column:
        return _binary("true_divide", other, self)

    def __floordiv__(self, other: Any) -> Column:
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Column:
        return _binary("floor_divide", other, self)

    def __mod__(self, other: Any) -> Column:
        return _binary("modulo", self, other)

    def __rmod__(self, other: Any) -> Column:
        return _binary("modulo", other, self)

    def __neg__(self) -> Column:
        return Column("negate", (self,))

    def __eq__(self, other: object) -> Column:  # type: ignore[override] # an expression, as in PySpark
        return _binary("equal", self, other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any) -> Column:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Column:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Column:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Column:
        return _binary("greater_equal", self, other)

    def __and__(self, other: Any) -> Column:
        return _binary("and", self, other)

    def __rand__(self, other: Any) -> Column:
        return _binary("and", other, self)

    def __or__(self, other: Any) -> Column:
        return _binary("or", self, other)

    def __ror__(self, other: Any) -> Column:
        return _binary("or", other, self)

    def __invert__(self) -> Column:
        return Column("invert", (self,))

    __hash__ = None  # type: ignore[assignment] # == makes an expression

    def __bool__(self) -> bool:
        raise TypeError(
            f"the column expression {self} has no truth value; use &, | and ~ instead of and, or, not"
        )

    def is_null(self) -> Column:
        """Return whether the value is null."""
        return Column("is_null", (self,))

    def is_not_null(self) -> Column:
        """Return whether the value is not null."""
        return Column("is_not_null", (self,))

    def is_in(self, values: Sequence[Any]) -> Column:
        """Return whether the value is one of `values`."""
        # Whether a large number fits depends on the column.
        return Column("is_in", (self, tuple(v if type(v) is int else _constant(v) for v in values)))

    def between(self, low: Any, high: Any) -> Column:
        """Return whether low <= value <= high."""
        return _binary("and", self >= low, self <= high)

    def coalesce(self, *others: Any) -> Column:
        """Return the first value that is not null."""
        return Column("coalesce", (self, *map(_column, others)))

    def if_else(self, then: Any, otherwise: Any) -> Column:
        """Return `then` where this is true, else `otherwise`."""
        return Column("if_else", (self, _column(then), _column(otherwise)))

    def cast(self, to: TypeInformation | pa.DataType) -> Column:
        """Convert to another type; a value that does not fit fails the job."""
        return Column("cast", (self, to))

    def abs(self) -> Column:
        return Column("abs", (self,))

    def round(self, digits: int = 0) -> Column:
        """Round to this number of decimal digits."""
        return Column("round", (self, digits))

    def upper(self) -> Column:
        return Column("upper", (self,))

    def lower(self) -> Column:
        return Column("lower", (self,))

    def strip(self) -> Column:
        return Column("strip", (self,))

    def length(self) -> Column:
        """Return the number of characters."""
        return Column("length", (self,))

    def contains(self, text: str) -> Column:
        return Column("contains", (self, _constant(text)))

    def starts_with(self, text: str) -> Column:
        return Column("starts_with", (self, _constant(text)))

    def ends_with(self, text: str) -> Column:
        return Column("ends_with", (self, _constant(text)))

    def matches(self, pattern: str) -> Column:
        """Return whether the regular expression (RE2) is found in the text."""
        return Column("matches", (self, _constant(pattern)))

    def replace(self, old: str, new: str) -> Column:
        """Replace each occurrence of `old` by `new`."""
        return Column("replace", (self, _constant(old), _constant(new)))

    def substring(self, start: int, length: int | None = None) -> Column:
        """Return `length` characters, or all, from position `start` (from 0)."""
        return Column("substring", (self, start, length))

    def concat(self, *others: Any) -> Column:
        """Return this text and the others joined together."""
        return Column("concat", (self, *map(_column, others)))

    def to_timestamp(self) -> Column:
        """Convert epoch ms to a UTC timestamp."""
        return Column("to_timestamp", (self,))

    def to_epoch_ms(self) -> Column:
        """Convert a timestamp to epoch ms."""
        return Column("to_epoch_ms", (self,))

    def year(self) -> Column:
        return Column("year", (self,))

    def month(self) -> Column:
        return Column("month", (self,))

    def day(self) -> Column:
        return Column("day", (self,))

    def hour(self) -> Column:
        return Column("hour", (self,))

    def minute(self) -> Column:
        return Column("minute", (self,))

    def second(self) -> Column:
        return Column("second", (self,))

    def __repr__(self) -> str:
        if self._name is not None:
            return f"{Column(self.operation, self.args)!r}.alias({self._name!r})"
        if self.operation in {"col", "lit"}:
            return f"{self.operation}({self.args[0]!r})"
        return f"{self.operation}({', '.join(map(repr, self.args))})"


def col(name: str) -> Column:
    """Return the column of that name."""
    if not isinstance(name, str):
        raise TypeError(f"col takes a column's name, got {name!r}")
    return Column("col", (name,))


def lit(value: Any) -> Column:
    """Return a constant. Raises: ValueError: Arrow does not have the value."""
    return Column("lit", (_constant(value),))


def _constant(value: Any) -> Any:
    try:
        pa.scalar(value)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"a column expression cannot compute with {bounded_repr(value, 200)}: {error}. "
            "Expected a value that Arrow has, such as a whole number of 64 bits, a Decimal or a "
            "text without half a surrogate pair."
        ) from error
    return value


@dataclass(frozen=True, slots=True)
class ColumnAggregate:
    """An aggregate over a column of a window's records. `column` None: counts records."""

    kind: str
    column: str | None = None
    name: str | None = None

    @property
    def output_name(self) -> str:
        """The name of the result's column: `count`, `sum_price`, or the alias."""
        if self.name is not None:
            return self.name
        return self.kind if self.column is None else f"{self.kind}_{self.column}"

    def alias(self, name: str) -> ColumnAggregate:
        """Return the aggregate with a name for its result."""
        return replace(self, name=name)


def count() -> ColumnAggregate:
    """Return the aggregate that counts records."""
    return ColumnAggregate("count")


def sum_(column: str | Column) -> ColumnAggregate:
    """Return the aggregate that sums values; nulls are left out."""
    return ColumnAggregate("sum", _plain_name(column))


def min_(column: str | Column) -> ColumnAggregate:
    """Return the aggregate of the smallest value."""
    return ColumnAggregate("min", _plain_name(column))


def max_(column: str | Column) -> ColumnAggregate:
    """Return the aggregate of the largest value."""
    return ColumnAggregate("max", _plain_name(column))


def avg(column: str | Column) -> ColumnAggregate:
    """Return the aggregate of the mean, as a float."""
    return ColumnAggregate("avg", _plain_name(column))


def first(column: str | Column) -> ColumnAggregate:
    """Return the aggregate of the value of the record that came first."""
    return ColumnAggregate("first", _plain_name(column))


def last(column: str | Column) -> ColumnAggregate:
    """Return the aggregate of the value of the record that came last."""
    return ColumnAggregate("last", _plain_name(column))


def _plain_name(column: str | Column) -> str:
    if isinstance(column, str):
        return column
    name = column.column_name if isinstance(column, Column) else None
    if name is None:
        raise TypeError(
            f"an aggregate takes a column's name, got {column!r}; turn an expression into a column "
            "with select(...) first"
        )
    return name


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else lit(value)


def _binary(operation: str, left: Any, right: Any) -> Column:
    return Column(operation, (_column(left), _column(right)))


def _true_divide(left: Any, right: Any) -> Any:
    return pc.divide(pc.cast(left, pa.float64()), pc.cast(right, pa.float64()))


def _is_integer(value: Any) -> bool:
    return bool(pa.types.is_integer(value.type))


def _floor_divide(left: Any, right: Any) -> Any:
    """Divide and round towards minus infinity, as Python does; Arrow's own division rounds towards zero."""
    if not (_is_integer(left) and _is_integer(right)):
        return pc.floor(_true_divide(left, right))
    quotient = pc.divide_checked(left, right)
    rest = pc.subtract(left, pc.multiply(quotient, right))
    zero = pa.scalar(0)
    is_off = pc.and_(pc.not_equal(rest, zero), pc.xor(pc.less(rest, zero), pc.less(right, zero)))
    return pc.subtract(quotient, pc.cast(is_off, pa.int64()))


def _modulo(left: Any, right: Any) -> Any:
    return pc.subtract(left, pc.multiply(_floor_divide(left, right), right))


def _cast(value: Any, to: Any) -> Any:
    kind = arrow_schema(to).field(0).type if isinstance(to, TypeInformation) else to
    return pc.cast(value, kind)


def _substring(value: Any, start: int, length: int | None) -> Any:
    return pc.utf8_slice_codeunits(value, start, None if length is None else start + length)


def _to_epoch_ms(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return _to_epoch_ms(pa.repeat(value, 1))[0]
    array = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    return pa.array(epoch_ms(array), mask=array.is_null().to_numpy(zero_copy_only=False))


_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": pc.add_checked,
    "subtract": pc.subtract_checked,
    "multiply": pc.multiply_checked,
    "true_divide": _true_divide,
    "floor_divide": _floor_divide,
    "modulo": _modulo,
    "negate": pc.negate_checked,
    "abs": pc.abs_checked,
    "round": lambda value, digits: pc.round(value, ndigits=digits),
    "equal": pc.equal,
    "not_equal": pc.not_equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "invert": pc.invert,
    "is_null": pc.is_null,
    "is_not_null": pc.is_valid,
    "is_in": lambda value, values: pc.is_in(value, value_set=pa.array(values, value.type)),
    "coalesce": pc.coalesce,
    "if_else": pc.if_else,
    "cast": _cast,
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "strip": pc.utf8_trim_whitespace,
    "length": pc.utf8_length,
    "contains": pc.match_substring,
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "matches": pc.match_substring_regex,
    "replace": pc.replace_substring,
    "substring": _substring,
    "concat": lambda *values: pc.binary_join_element_wise(*values, ""),
    "to_timestamp": lambda value: pc.cast(pc.cast(value, pa.int64()), pa.timestamp("ms", tz="UTC")),
    "to_epoch_ms": _to_epoch_ms,
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
