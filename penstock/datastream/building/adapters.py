"""Adapters that turn user callables and Function objects into the engine's UserFunction and KeySelection.

This is the one module that knows both the API's functions and the engine's. Source: pyflink's FunctionWrapper classes;
differs: functions are not wrapped, the engine calls the method itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from penstock.datastream.building.checks import (
    arguments_of,
    built,
    check_call,
    check_columns,
    check_gives_result,
    check_is_object,
    check_methods,
)
from penstock.datastream.building.program import as_given, caller_location
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
)
from penstock.engine.model.errors import GraphError
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.types import is_pickled
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.records.columns import Column, ColumnAggregate, col

_KEYED_INSTEAD: Final[dict[type[Function], type[Function]]] = {
    ProcessFunction: KeyedProcessFunction,
    CoProcessFunction: KeyedCoProcessFunction,
    BroadcastProcessFunction: KeyedBroadcastProcessFunction,
}
_GIVE_ONE_RESULT: Final = frozenset({"map", "filter", "reduce"})


def declared_type(
    output_type: TypeInformation | list[TypeInformation] | None, where: str
) -> TypeInformation | None:
    """An `output_type` as the graph stores it: a list becomes a ROW of its types, and an undeclared type is None."""
    given = checked_type(output_type, where)
    return None if is_pickled(given) else given


def checked_type(
    given: TypeInformation | list[TypeInformation] | None, where: str, argument: str = "output_type"
) -> TypeInformation | None:
    """The type that a program declares; a list becomes a ROW of its types.

    Raises: TypeError: `given` is neither a type, nor a list, nor None.
    """
    if isinstance(given, list):
        return RowTypeInfo(given)
    if given is not None and not isinstance(given, TypeInformation):
        raise TypeError(
            f"{built(where)}: {argument} must be None, a TypeInformation such as Types.INT(), or a list of them, got "
            f"{given!r}."
        )
    return given


def map_function(
    func: Callable[..., Any] | MapFunction[Any, Any], operator: str = "Map"
) -> UserFunction:
    return _user_function(func, MapFunction, "map", operator)


def projection(
    type_info: TypeInformation, indexes: tuple[int, ...]
) -> tuple[UserFunction, TypeInformation]:
    """A function that picks these positions of a tuple, and the type of its results.

    Raises: GraphError: the stream's type is no tuple, or the tuple has no such position.
    """
    if not isinstance(type_info, TupleTypeInfo):
        raise GraphError(
            f"Only tuple types can be projected, got {type_info}. Use map(), or declare "
            f"Types.TUPLE(...) as output type of the operator before. {built('Projection')}."
        )
    types = type_info.get_field_types()
    for index in indexes:
        if not 0 <= index < len(types):
            raise GraphError(
                f"{built('Projection')}: position {index} is not in [0, {len(types) - 1}] of {type_info}."
            )
    return map_function(Projection(indexes)), Types.TUPLE([types[index] for index in indexes])


def flat_map_function(func: Callable[..., Any] | FlatMapFunction[Any, Any]) -> UserFunction:
    return _user_function(func, FlatMapFunction, "flat_map", "FlatMap")


def filter_function(func: Callable[..., Any] | FilterFunction[Any]) -> UserFunction:
    return _user_function(func, FilterFunction, "filter", "Filter")


def reduce_function(
    func: Callable[..., Any] | ReduceFunction[Any], operator: str = "Reduce"
) -> UserFunction:
    return _user_function(func, ReduceFunction, "reduce", operator)


def has_open(func: object) -> bool:
    """Whether this is a Function with an `open` of its own, in which it may ask for state."""
    return isinstance(func, Function) and type(func).open is not Function.open


def join_function(func: Callable[..., Any] | Function, kind: type[Function]) -> UserFunction:
    return _user_function(func, kind, "join", "join")


def co_group_function(func: Callable[..., Any] | Function, kind: type[Function]) -> UserFunction:
    return _user_function(func, kind, "co_group", "co_group")


def method_of(func: object, kind: type[Function], method: str, operator: str) -> UserFunction:
    """The `method` of a Function object of this `kind`; a plain callable is refused. `operator`: its name, for errors."""
    check_is_object(func, kind, operator)
    if not isinstance(func, kind):
        instead = f"Make a class that extends {kind.__name__} and defines {method}()"
        keyed = _KEYED_INSTEAD.get(kind)
        if keyed is not None and isinstance(func, keyed):
            instead = f"Call key_by first: a {keyed.__name__} is for streams with keys"
        got = type(func).__name__
        raise TypeError(
            f"The input must be a {kind.__name__}, got {got}. {instead}. {built(operator)}."
        )
    check_methods(func, kind, operator)
    if kind is CoMapFunction:
        for each in ("map1", "map2"):
            check_gives_result(getattr(func, each), operator)
    return UserFunction(getattr(func, method), func)


def keyed_co_process_function(func: object, operator: str) -> UserFunction:
    """The function of a `process` on two connected keyed streams.

    A CoProcessFunction has keys, state and timers there too, and also `on_timer` if it defines that method.
    """
    if not isinstance(func, CoProcessFunction):
        return method_of(func, KeyedCoProcessFunction, "process_element1", operator)
    if hasattr(func, "on_timer"):
        check_call(func.on_timer, arguments_of(KeyedCoProcessFunction, "on_timer"), operator)
    return method_of(func, CoProcessFunction, "process_element1", operator)


def keys_of(
    key_selector: object,
    key_type: object,
    more_columns: tuple[object, ...],
    input_type: TypeInformation | None,
) -> KeySelection:
    """The keys of a stream: by a function of the value, or by columns."""
    if isinstance(key_selector, Column):
        columns = (key_selector, *(c for c in (key_type, *more_columns) if c is not None))
        names = _column_names(columns)
        check_columns(names, input_type, "key_by")
        return KeySelection(names, None, input_type)
    if key_type is not None and not isinstance(key_type, TypeInformation):
        raise TypeError(
            f"key_by: key_type must be a TypeInformation, got {type(key_type).__name__}."
        )
    check_is_object(key_selector, KeySelector, "key_by")
    if isinstance(key_selector, KeySelector):
        check_methods(key_selector, KeySelector, "key_by")
        get_key = _opened(key_selector, key_selector.get_key)
    elif callable(key_selector):
        check_call(key_selector, 1, "key_by")
        get_key = key_selector
    else:
        raise _no_selector(key_selector)
    where = caller_location()
    return KeySelection(as_given(get_key, "the key selector", where), key_type, input_type, where)


def _no_selector(key_selector: object) -> TypeError:
    hint = ""
    if isinstance(key_selector, str):
        hint = f" For a column of a column stream write key_by(col({key_selector!r}))."
    elif isinstance(key_selector, int):
        hint = f" For position {key_selector} write key_by(lambda value: value[{key_selector}]);"
        hint += " for a column of a column stream write key_by(col('name'))."
    return TypeError(
        "Parameter key_selector should be type of KeySelector or a callable function, got "
        f"{type(key_selector).__name__}.{hint} {built('key_by')}."
    )


def selections(
    columns: tuple[object, ...], named: dict[str, Column], input_type: TypeInformation | None
) -> tuple[Column, ...]:
    """The arguments of `select`: each becomes an expression with a name."""
    chosen = [col(column) if isinstance(column, str) else column for column in columns]
    for column in (*chosen, *named.values()):
        if not isinstance(column, Column):
            raise TypeError(
                f"{built('Select')}: select takes column names and expressions such as col('x') * "
                f"2, got {column!r}."
            )
    expressions = [column for column in chosen if isinstance(column, Column)]
    expressions.extend(column.alias(name) for name, column in named.items())
    names = [column.output_name for column in expressions]
    if not names or len(set(names)) < len(names):
        raise GraphError(
            f"{built('Select')}: got the result columns {names}; expected at least one, and each "
            "name once. Rename with .alias('name')."
        )
    for column in expressions:
        check_columns(column.columns_read(), input_type, "Select")
    return tuple(expressions)


def is_column_aggregate(value: object) -> bool:
    return isinstance(value, ColumnAggregate)


def partitioner_function(
    partitioner: Callable[[Any, int], int] | Partitioner[Any],
) -> Callable[[Any, int], int]:
    check_is_object(partitioner, Partitioner, "partition_custom")
    if isinstance(partitioner, Partitioner):
        check_methods(partitioner, Partitioner, "partition_custom")
        partition = _opened(partitioner, partitioner.partition)
    elif callable(partitioner):
        check_call(partitioner, 2, "partition_custom")
        partition = partitioner
    else:
        raise TypeError(
            "Parameter partitioner should be a type of Partitioner or a callable function, got "
            f"{type(partitioner).__name__}. {built('partition_custom')}."
        )
    return as_given(partition, "the partitioner", caller_location())


def without_key(function: UserFunction) -> UserFunction:
    """Adapts a window function of a whole stream to the engine's keyed interface, by leaving the key out."""
    if function.method("process") is not None:
        processing = _WholeStreamProcess(function.owner)
        return UserFunction(processing.process, processing)
    applying = _WholeStreamApply(function.owner)
    return UserFunction(applying.apply, applying)


def _opened(function: Function, method: Callable[..., Any]) -> Callable[..., Any]:
    return _OpenedFirst(function, method) if has_open(function) else method


class _OpenedFirst:
    """Calls the `open` of a KeySelector or Partitioner before its first record, in each task that uses it.

    It never calls `close`: code that computes keys outside of an operator gets no notice when the task ends.
    """

    def __init__(self, function: Function, method: Callable[..., Any]) -> None:
        self._function = function
        self._method = method
        self._is_open = False

    def __call__(self, *values: Any) -> Any:
        if not self._is_open:
            self._function.open(_NoRuntimeContext())  # type: ignore[arg-type]  # it only says that it is none
            self._is_open = True
        return self._method(*values)


class _NoRuntimeContext:
    """The context that the `open` of a key selector or partitioner gets. Every access raises an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"{name} is not known to a key selector or partitioner, because it also runs outside "
            "of operators. Ask for it in a map before, and put what the key needs into the record."
        )


class _WholeStream:
    """Opens and closes the user's window function."""

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


def _user_function(func: Any, kind: type[Function], method: str, operator: str) -> UserFunction:
    check_is_object(func, kind, operator)
    called = getattr(func, method, None) if isinstance(func, kind) else func
    if method in _GIVE_ONE_RESULT and callable(called):
        check_gives_result(called, operator)
    if isinstance(func, kind):
        check_methods(func, kind, operator)
        return UserFunction(getattr(func, method), func)
    if callable(func):
        check_call(func, arguments_of(kind, method), operator)
        return UserFunction(func, None)
    raise TypeError(
        f"The input must be a {kind.__name__} or a callable function, got {type(func).__name__}. {built(operator)}."
    )


def _column_names(columns: tuple[object, ...]) -> tuple[str, ...]:
    """The names of the columns. Only plain column references can be keys: an expression has to be made a column first."""
    names = []
    for column in columns:
        name = getattr(column, "column_name", None)
        if not isinstance(column, Column) or name is None:
            raise TypeError(
                f"{built('key_by')}: got {column!r}, but the keys of a column stream are plain "
                "columns. Write key_by(col('name'), ...), and make computed keys a column with "
                "select(...) first."
            )
        names.append(name)
    return tuple(names)


class Renaming:
    """Gives the fields of rows other names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, row: Row) -> Row:
        return make_row(self._names, row, row.get_row_kind())


class Projection:
    """Picks positions of a tuple, and returns them as a tuple."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(value[index] for index in self._indexes)
