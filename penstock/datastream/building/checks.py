"""Checks of user functions and column names while a program is built.

They find functions that take another number of arguments than the engine gives them, and columns and fields that a
declared type does not have. Does not know any operator.

Source: Flink's validation of field expressions (FieldAccessor) and of functions (TypeExtractor); differs: Python
functions are checked too, which PyFlink does only when the job runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.common.typeinfo import BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.datastream.building.program import caller_location
from penstock.datastream.functions import Function
from penstock.engine.model.errors import GraphError
from penstock.engine.model.texts.amounts import counted
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar


def built(operator: str) -> str:
    """For error texts: the operator and the program's line, as in `Map, built at my_job.py:12`."""
    return f"{operator}, built at {caller_location()}"


def check_together(operator: str, *streams: Any) -> None:
    """Raises: GraphError: the streams are not all of one environment."""
    if len({id(one.plumbing.environment) for one in streams}) > 1:
        raise GraphError(
            f"{built(operator)}: the streams belong to different environments. Build all streams "
            "in one environment."
        )


def check_call(func: Callable[..., Any], arguments: int, operator: str) -> None:
    """Checks that `func` can be called with this number of arguments. A function without a signature (in C) passes.

    Raises: TypeError: it cannot.
    """
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        name = getattr(func, "__qualname__", type(func).__qualname__)
        raise TypeError(
            f"{built(operator)}: {name}{signature} is called with "
            f"{counted(arguments, 'argument')}, but cannot take them: {error}. Change its "
            "parameters."
        ) from error


def check_methods(func: Function, kind: type[Function], operator: str) -> None:
    """Checks that every method that `kind` declares takes the arguments that the engine gives it. Raises: TypeError."""
    for name, declared in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            check_call(
                getattr(func, name), len(inspect.signature(declared).parameters) - 1, operator
            )


def check_gives_result(func: Callable[..., Any], operator: str) -> None:
    """Checks that a call of `func` returns its one result. Raises: TypeError: it would give a generator or a coroutine."""
    name = getattr(func, "__qualname__", type(func).__qualname__)
    if not inspect.isroutine(func) and not isinstance(func, partial):
        func = type(func).__call__
    if inspect.isgeneratorfunction(func):
        raise TypeError(
            f"{built(operator)}: {name} yields, but each call must return one result. Write "
            "return, or use flat_map for any number of results."
        )
    if inspect.iscoroutinefunction(func):
        raise TypeError(
            f"{built(operator)}: {name} is async, but each call must return one result. Make it "
            "the async_invoke() of an AsyncFunction, and use AsyncDataStream.unordered_wait or "
            "ordered_wait."
        )


def arguments_of(kind: type[Function], method: str) -> int:
    """The number of arguments that the engine gives this method."""
    return len(inspect.signature(getattr(kind, method)).parameters) - 1


def check_is_object(func: object, kind: type, operator: str) -> None:
    """Raises: TypeError: the program passed the class instead of an object of it."""
    if isinstance(func, type) and issubclass(func, Function):
        raise TypeError(
            f"The input must be a {kind.__name__}, got the class {func.__name__} itself: write {func.__name__}(...). "
            f"{built(operator)}."
        )


def check_columns(
    names: Iterable[str | None], element_type: TypeInformation | None, operator: str
) -> None:
    """Checks that the declared type has these columns. An undeclared type is not checked. Raises: GraphError."""
    if element_type is None or not is_columnar(element_type):
        return
    there = arrow_schema(element_type).names
    for name in names:
        if name is not None and name not in there:
            raise GraphError(
                f"{built(operator)}: column {name!r} is not in this stream. Its type "
                f"{element_type} has the columns {', '.join(there)}."
            )


def checked_field(
    field: int | str, element_type: TypeInformation | None, operator: str
) -> int | str:
    """The position or name, which the declared type has. A position below 0 counts from the end, and is made one from the start.

    Raises: GraphError, TypeError: the type does not have it.
    """
    if isinstance(element_type, BasicTypeInfo) and field != 0:
        raise TypeError(
            f"{built(operator)}: the {field!r} field selected on a basic type. A field expression on a basic type can only "
            "select the 0th field (which means selecting the entire basic type)."
        )
    if isinstance(element_type, RowTypeInfo):
        names: list[str] = element_type.get_field_names()
    elif isinstance(element_type, TupleTypeInfo):
        names = []
    else:
        return field
    count = len(element_type.get_field_types())
    if isinstance(field, int) and -count <= field < count:
        return field % count
    if field not in names:
        raise GraphError(
            f"{built(operator)}: {element_type} has no field {field!r}. Use a position in [0, "
            f"{count - 1}]{' or one of ' + ', '.join(names) if names else ''}."
        )
    return field
