"""User callables and Function objects as the engine's UserFunction and KeySelection.

The one place that knows both faces. Source: pyflink's FunctionWrapper classes; differs: nothing is
wrapped, the method itself is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeySelector,
    MapFunction,
    Partitioner,
    ReduceFunction,
)
from penstock.model.errors import GraphError
from penstock.runtime.columns import Column, ColumnAggregate, col
from penstock.runtime.context import UserFunction
from penstock.runtime.keys import KeySelection


def map_function(func: Callable[..., Any] | MapFunction) -> UserFunction:
    return _user_function(func, MapFunction, "map")


def projection(
    type_info: TypeInformation, indexes: tuple[int, ...]
) -> tuple[UserFunction, TypeInformation]:
    """These positions of a tuple, and their type. Raises: GraphError: it is no tuple, or has no such position."""
    if not isinstance(type_info, TupleTypeInfo):
        raise GraphError(
            f"Only tuple types can be projected, got {type_info}. Use map(), or declare "
            "Types.TUPLE(...) as output type of the operator before."
        )
    types = type_info.get_field_types()
    for index in indexes:
        if not 0 <= index < len(types):
            raise GraphError(
                f"project: position {index} is not in [0, {len(types) - 1}] of {type_info}."
            )
    return map_function(_Projection(indexes)), Types.TUPLE([types[index] for index in indexes])


def flat_map_function(func: Callable[..., Any] | FlatMapFunction) -> UserFunction:
    return _user_function(func, FlatMapFunction, "flat_map")


def filter_function(func: Callable[..., Any] | FilterFunction) -> UserFunction:
    return _user_function(func, FilterFunction, "filter")


def reduce_function(func: Callable[..., Any] | ReduceFunction) -> UserFunction:
    return _user_function(func, ReduceFunction, "reduce")


def join_function(func: Callable[..., Any] | Function, kind: type[Function]) -> UserFunction:
    return _user_function(func, kind, "join")


def co_group_function(func: Callable[..., Any] | Function, kind: type[Function]) -> UserFunction:
    return _user_function(func, kind, "co_group")


def method_of(func: object, kind: type[Function], method: str) -> UserFunction:
    """`method` of a Function object of this kind; a plain callable does not do."""
    if not isinstance(func, kind):
        raise TypeError(
            f"The input must be a {kind.__name__}, got {type(func).__name__}. "
            f"Make a class that extends {kind.__name__} and defines {method}()."
        )
    return UserFunction(getattr(func, method), func)


def keys_of(
    key_selector: object,
    key_type: object,
    more_columns: tuple[object, ...],
    input_type: TypeInformation | None,
) -> KeySelection:
    """Keys by a function of the value, or by columns."""
    if isinstance(key_selector, Column):
        columns = (key_selector, *(c for c in (key_type, *more_columns) if c is not None))
        return KeySelection(_column_names(columns), None, input_type)
    if key_type is not None and not isinstance(key_type, TypeInformation):
        raise TypeError(
            f"key_by: key_type must be a TypeInformation, got {type(key_type).__name__}."
        )
    if isinstance(key_selector, KeySelector):
        return KeySelection(key_selector.get_key, key_type, input_type)
    if callable(key_selector):
        return KeySelection(key_selector, key_type, input_type)
    hint = ""
    if isinstance(key_selector, str):
        hint = f" For a column of a column stream write key_by(col({key_selector!r}))."
    elif isinstance(key_selector, int):
        hint = f" For position {key_selector} write key_by(lambda value: value[{key_selector}]);"
        hint += " for a column of a column stream write key_by(col('name'))."
    raise TypeError(
        "Parameter key_selector should be type of KeySelector or a callable function, got "
        f"{type(key_selector).__name__}.{hint}"
    )


def selections(columns: tuple[object, ...], named: dict[str, Column]) -> tuple[Column, ...]:
    """Names and expressions of `select`, each as an expression that has a name."""
    chosen = [col(column) if isinstance(column, str) else column for column in columns]
    for column in (*chosen, *named.values()):
        if not isinstance(column, Column):
            raise TypeError(
                f"select takes column names and expressions such as col('x') * 2, got {column!r}."
            )
    expressions = [column for column in chosen if isinstance(column, Column)]
    expressions.extend(column.alias(name) for name, column in named.items())
    names = [column.output_name for column in expressions]
    if not names or len(set(names)) < len(names):
        raise GraphError(
            f"select: got the result columns {names}; expected at least one, and each name once. "
            "Rename with .alias('name')."
        )
    return tuple(expressions)


def is_column_aggregate(value: object) -> bool:
    return isinstance(value, ColumnAggregate)


def partitioner_function(
    partitioner: Callable[[Any, int], int] | Partitioner,
) -> Callable[[Any, int], int]:
    if isinstance(partitioner, Partitioner):
        return partitioner.partition
    if callable(partitioner):
        return partitioner
    raise TypeError(
        "Parameter partitioner should be a type of Partitioner or a callable function, got "
        f"{type(partitioner).__name__}."
    )


def without_key(function: UserFunction) -> UserFunction:
    """A window function of a whole stream as one of a keyed stream: the key is left out."""
    if function.method("process") is not None:
        processing = _WholeStreamProcess(function.owner)
        return UserFunction(processing.process, processing)
    applying = _WholeStreamApply(function.owner)
    return UserFunction(applying.apply, applying)


class _WholeStream:
    """Opens and closes the user's function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, runtime_context: Any) -> None:
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


class _WholeStreamApply(_WholeStream):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return self.function.apply(window, inputs)


class _WholeStreamProcess(_WholeStream):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return self.function.process(context, elements)

    def clear(self, context: Any) -> None:
        self.function.clear(context)


def _user_function(func: Any, kind: type[Function], method: str) -> UserFunction:
    if isinstance(func, kind):
        return UserFunction(getattr(func, method), func)
    if callable(func):
        return UserFunction(func, None)
    raise TypeError(
        f"The input must be a {kind.__name__} or a callable function, got {type(func).__name__}."
    )


def _column_names(columns: tuple[object, ...]) -> tuple[str, ...]:
    """Plain column references only: an expression must be a column before it can be a key."""
    names = []
    for column in columns:
        name = getattr(column, "column_name", None)
        if not isinstance(column, Column) or name is None:
            raise TypeError(
                f"key_by got {column!r}: keys of a column stream are plain columns. Write "
                "key_by(col('name'), ...), and make computed keys a column with select(...) first."
            )
        names.append(name)
    return tuple(names)


class _Projection:
    """Positions of a tuple, as a tuple."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(value[index] for index in self._indexes)
