"""AsyncDataStream: async functions on streams, ordered or not, with timeout, capacity and retries.

Source: pyflink.datastream.async_data_stream; differs: plain functions run on a pool of threads, `timeout` may be a
Time, Duration or timedelta, and 0 means no timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.building.checks import check_call, check_is_object, check_methods
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.functions import AsyncFunction, AsyncRetryStrategy
from penstock.datastream.functions.type_variables import R, T
from penstock.engine.model.graph.stream_graph import ChainingStrategy
from penstock.engine.model.time import millis_of
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.context import UserFunction

if TYPE_CHECKING:
    from penstock.connectors.sql_lookup import SqlLookup

DEFAULT_CAPACITY = 100
LOOKUP_CAPACITY = 1000
LOOKUP_TIMEOUT = Duration.of_minutes(3)


class AsyncDataStream:
    """Calls other systems for the records of a stream, with many calls at once.

    Example:
        class Lookup(AsyncFunction):
            async def async_invoke(self, value):
                return [(value, await fetch(value))]

        AsyncDataStream.unordered_wait(stream, Lookup(), Time.seconds(5), capacity=200)
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]] | list[R]],
        timeout: Any,
        capacity: int = DEFAULT_CAPACITY,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Emit results as soon as they are ready; their order may change between two watermarks, never across one.

        Args:
            data_stream: the stream.
            async_function: an AsyncFunction, or a coroutine function `value -> list of results`.
            timeout: the longest time of one call: Time, Duration or timedelta.
            capacity: the largest number of calls at once.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        settings = ops.AsyncSettings(millis_of(timeout), capacity, is_ordered=False)
        return _add(data_stream, async_function, settings, None, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]] | list[R]],
        timeout: Any,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = DEFAULT_CAPACITY,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Do the same as `unordered_wait`, and repeat failed calls as the retry strategy says.

        `timeout` is for all attempts of a record together.
        """
        settings = ops.AsyncSettings(millis_of(timeout), capacity, is_ordered=False)
        return _add(data_stream, async_function, settings, async_retry_strategy, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]] | list[R]],
        timeout: Any,
        capacity: int = DEFAULT_CAPACITY,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Emit results in the order of their records; arguments as in `unordered_wait`."""
        settings = ops.AsyncSettings(millis_of(timeout), capacity, is_ordered=True)
        return _add(data_stream, async_function, settings, None, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]] | list[R]],
        timeout: Any,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = DEFAULT_CAPACITY,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Do the same as `ordered_wait`, and repeat failed calls as the retry strategy says.

        `timeout` is for all attempts of a record together.
        """
        settings = ops.AsyncSettings(millis_of(timeout), capacity, is_ordered=True)
        return _add(data_stream, async_function, settings, async_retry_strategy, output_type)

    @staticmethod
    def lookup_join(
        data_stream: DataStream[Any],
        lookup: SqlLookup,
        on: Sequence[str] | str | None = None,
        how: Literal["inner", "left"] = "inner",
        *,
        is_ordered: bool = False,
        timeout: Any = LOOKUP_TIMEOUT,
        capacity: int = LOOKUP_CAPACITY,
    ) -> DataStream[Any]:
        """Join each record with the rows that a table has for its key when the record comes. Not in PyFlink.

        Results are Rows with the fields of the record and the columns that were looked up, one for each row. Changes of the
        table do not change results that were given.

        Args:
            data_stream: a stream of named Rows, whose type is declared.
            lookup: the table.
            on: the fields that are looked up, in the order of the key columns; by default those with their names.
            how: "inner": a record without a row is dropped; "left": its columns are None.
            is_ordered: whether results keep the order of their records.
            timeout: the longest time of a record, tries that failed included; 3 min by default, then the job fails.
            capacity: the largest number of records at once, and with it of keys that a query may ask for.

        Raises:
            ConfigurationError: the table cannot be read, lacks a column, or has keys of a type that no field equals.
            GraphError: the stream lacks a field, or has no declared type.
        """
        if not isinstance(data_stream, DataStream):
            raise TypeError(f"data_stream must be a DataStream, got {type(data_stream).__name__}.")
        function, output_type = lookup.joined(data_stream.plumbing.element_type, on, how)
        settings = ops.AsyncSettings(millis_of(timeout), capacity, is_ordered=is_ordered)
        return _add(data_stream, function, settings, None, output_type)


def _add(
    data_stream: DataStream[Any],
    async_function: Any,
    settings: ops.AsyncSettings,
    retry: AsyncRetryStrategy | None,
    output_type: TypeInformation | None,
) -> DataStream[Any]:
    if not isinstance(data_stream, DataStream):
        raise TypeError(f"data_stream must be a DataStream, got {type(data_stream).__name__}.")
    if retry is not None and not isinstance(retry, AsyncRetryStrategy):
        raise TypeError(
            f"async_retry_strategy must be an AsyncRetryStrategy, got {type(retry).__name__}."
        )
    operator = ops.AsyncWaitOperator(_function(async_function), settings, retry)
    # Only the head of a chain can refuse input. Refusing input is how a full queue holds its stream
    # back.
    awaited = data_stream.plumbing.add_operator(
        "async wait operator", operator, output_type, chaining_strategy=ChainingStrategy.HEAD
    )
    return DataStream(awaited)


def _function(async_function: Any) -> UserFunction:
    check_is_object(async_function, AsyncFunction, "async wait operator")
    if isinstance(async_function, AsyncFunction):
        check_methods(async_function, AsyncFunction, "async wait operator")
        return UserFunction(async_function.async_invoke, async_function)
    if callable(async_function):
        check_call(async_function, 1, "async wait operator")
        return UserFunction(async_function)
    raise TypeError(
        f"The input must be an AsyncFunction or a callable function, got {type(async_function).__name__}."
    )
