"""Streams divided into windows: per key (WindowedStream) or as a whole (AllWindowedStream).

Source: pyflink.datastream.data_stream.WindowedStream; differs: on column streams `aggregate` takes column aggregates
(`count().alias("n")`), and makes no Python object per record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, overload

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import built, check_columns, check_is_object
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    Function,
    NullByteKeySelector,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.datastream.functions.type_variables import ACC, K, R, T, V
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import MergingWindowAssigner, Trigger, WindowAssigner
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.time import millis_or_number
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.records.columns import ColumnAggregate
from penstock.engine.runtime.windowing import Evictor
from penstock.engine.runtime.windowing.triggers import merges

if TYPE_CHECKING:
    from penstock.datastream.data_stream.keyed_stream import KeyedStream

KeyedFunction: TypeAlias = WindowFunction[T, R, K, Any] | ProcessWindowFunction[T, R, K, Any]
AllFunction: TypeAlias = AllWindowFunction[T, R, Any] | ProcessAllWindowFunction[T, R, Any]
KEYED_FUNCTIONS: Final = (WindowFunction, ProcessWindowFunction)
ALL_FUNCTIONS: Final = (AllWindowFunction, ProcessAllWindowFunction)


class WindowSettings:
    """What all windows may be given: trigger, evictor, lateness and a tag of late records."""

    def __init__(self, window_assigner: WindowAssigner) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(
                f"window takes a WindowAssigner, got {type(window_assigner).__name__}; for example "
                "TumblingEventTimeWindows.of(Duration.of_seconds(10))."
            )
        self._assigner = window_assigner
        self._trigger: Trigger | None = None
        self._evictor: Evictor | None = None
        self._lateness_ms = 0
        self._late_tag: OutputTag | None = None

    @property
    def _name(self) -> str:
        """The operator's name."""
        return type(self._assigner).__name__

    def _set_late_tag(self, output_tag: OutputTag) -> None:
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"side_output_late_data takes an OutputTag, got {output_tag!r}.")
        self._late_tag = output_tag

    def _set_trigger(self, trigger: Trigger) -> None:
        if not isinstance(trigger, Trigger):
            raise TypeError(
                f"trigger takes a Trigger such as CountTrigger.of(10), got {trigger!r}."
            )
        if isinstance(self._assigner, MergingWindowAssigner) and not merges(trigger):
            raise GraphError(
                f"A merging window assigner ({type(self._assigner).__name__}) cannot be used with "
                f"a trigger that does not support merging ({type(trigger).__name__}). Define "
                "on_merge() in it."
            )
        self._trigger = trigger

    def _set_lateness(self, time_ms: Any) -> None:
        """Set the lateness in ms; a Time or Duration also works, as everywhere else."""
        lateness_ms = millis_or_number(time_ms)
        if lateness_ms < 0:
            raise GraphError(f"allowed_lateness: must be 0 ms or more, got {lateness_ms}.")
        self._lateness_ms = lateness_ms

    def _set_evictor(self, evictor: Evictor) -> None:
        if not isinstance(evictor, Evictor):
            raise TypeError(
                f"evictor takes an Evictor such as CountEvictor.of(10), got {type(evictor).__name__}."
            )
        self._evictor = evictor


class _Windowed(WindowSettings, Generic[T]):
    """The base of both kinds: makes the operator."""

    _functions: tuple[type[Function], type[Function]] = KEYED_FUNCTIONS

    def __init__(
        self, stream: DataStream[T], keys: KeySelection, window_assigner: WindowAssigner
    ) -> None:
        super().__init__(window_assigner)
        self._stream = stream
        self._keys = keys

    def get_execution_environment(self) -> Any:
        """Return the StreamExecutionEnvironment in which the stream was built."""
        return self._stream.plumbing.environment

    def get_input_type(self) -> TypeInformation:
        """Return the type of the records in the windows."""
        return self._stream.plumbing.without_key().type_info

    def _operator(self, contents: Any, window_function: UserFunction | None) -> Any:
        if self._evictor is not None:
            if contents.function is not None:  # then it combines all records when the window fires
                folded = ops.FoldedWindow(contents, window_function)
                window_function = UserFunction(folded.process, folded)
            contents = ops.ListContents(evicting=self._evictor)
        environment = self.get_execution_environment()
        operator = ops.window_operator(
            assigner=self._assigner,
            trigger=self._trigger or self._assigner.get_default_trigger(environment),
            allowed_lateness_ms=self._lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            contents=contents,
            function=window_function,
            keys=self._keys,
        )
        operator.has_time_of_firing = True
        return operator

    def _window_function(self, function: Any) -> UserFunction | None:
        if function is None:
            return None
        applied, processed = self._functions
        if isinstance(function, applied):
            return adapt.method_of(function, applied, "apply", self._name)
        if isinstance(function, processed):
            return adapt.method_of(function, processed, "process", self._name)
        check_is_object(function, processed, self._name)
        raise TypeError(
            f"The window function must be a {applied.__name__} or a {processed.__name__}, got "
            f"{type(function).__name__}. {built(self._name)}."
        )

    def _reduced(self, reduce_function: Any, function: Any, output_type: Any) -> DataStream[Any]:
        kind = self.get_input_type()
        names = tuple(kind.get_field_names()) if isinstance(kind, RowTypeInfo) else None
        reduced = adapt.reduce_function(reduce_function, self._name)
        contents = ops.ReduceContents(reduced, names)
        declared = output_type
        if function is None and output_type is None:
            declared = self._stream.plumbing.element_type
        return self._add(self._operator(contents, self._window_function(function)), declared)

    def _aggregated(self, aggregate: Any, function: Any, output_type: Any) -> DataStream[Any]:
        function_of = adapt.method_of(aggregate, AggregateFunction, "add", self._name)
        contents = ops.AggregateContents(function_of)
        return self._add(self._operator(contents, self._window_function(function)), output_type)

    def _listed(self, function: Any, output_type: Any) -> DataStream[Any]:
        window_function = self._window_function(function)
        return self._add(self._operator(ops.ListContents(), window_function), output_type)

    def _add(self, operator: Any, output_type: TypeInformation | None) -> DataStream[Any]:
        return DataStream(self._stream.plumbing.add_operator(self._name, operator, output_type))


class WindowedStream(_Windowed[T], Generic[T, K]):
    """The windows of each key, as `keyed.window(assigner)` returns them."""

    def __init__(self, keyed_stream: KeyedStream[T, K], window_assigner: WindowAssigner) -> None:
        super().__init__(keyed_stream, keyed_stream.plumbing.keys, window_assigner)

    def trigger(self, trigger: Trigger) -> Self:
        """Replace the window assigner's default trigger, which decides when a window fires.

        Raises:
            GraphError: the assigner merges windows, and the trigger cannot.
        """
        self._set_trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Remove records before or after the window function; until then all are kept."""
        self._set_evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Set how long late records still count: ms, Time or Duration (default 0)."""
        self._set_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Emit records after the allowed lateness with this tag; otherwise they are dropped."""
        self._set_late_tag(output_tag)
        return self

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], R],
        window_function: None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: KeyedFunction[T, R, K],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    def reduce(
        self,
        reduce_function: Callable[[T, T], Any] | ReduceFunction[T],
        window_function: KeyedFunction[T, Any, K] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Combine the records of each window into one, as they arrive.

        Args:
            reduce_function: `(value, value) -> value`, or a ReduceFunction.
            window_function: gets the one combined value when the window fires.
            output_type: the type of the results; without window function that of the records.
        """
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, R],
        window_function: None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, V],
        window_function: KeyedFunction[V, R, K],
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self, aggregate_function: ColumnAggregate, *more_aggregates: ColumnAggregate
    ) -> DataStream[Any]: ...

    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Any] | Any,
        window_function: KeyedFunction[Any, Any, K] | Any = None,
        accumulator_type: TypeInformation | Any = None,
        output_type: TypeInformation | Any = None,
        *more_aggregates: Any,
    ) -> DataStream[Any]:
        """Aggregate the records of each window as they arrive.

        Args:
            aggregate_function: an AggregateFunction; on column streams any number of column
                aggregates, such as `count().alias("n"), sum_("price")`.
            window_function: gets the one aggregate when the window fires.
            accumulator_type: accepted as in PyFlink; not needed.
            output_type: the type of the results.
            more_aggregates: further column aggregates.

        Raises:
            GraphError: column aggregates without column keys, or with a trigger, evictor or late
                tag.
        """
        if adapt.is_column_aggregate(aggregate_function):
            places = (aggregate_function, window_function, accumulator_type, output_type)
            aggregates = [place for place in places if place is not None]
            return self._column_aggregates([*aggregates, *more_aggregates])
        return self._aggregated(aggregate_function, window_function, output_type)

    def apply(
        self,
        window_function: WindowFunction[T, R, K, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call a WindowFunction with all records of a window when it fires."""
        return self._listed(window_function, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[T, R, K, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call a ProcessWindowFunction, with context and state, for each window that fires."""
        return self._listed(process_window_function, output_type)

    def _column_aggregates(self, aggregates: list[Any]) -> DataStream[Any]:
        if self._keys.columns is None:
            raise GraphError(
                "column aggregates need column keys: write key_by(col('name')) before window(...)."
            )
        if (self._trigger, self._evictor, self._late_tag) != (None, None, None):
            raise GraphError(
                "column aggregates support no trigger, no evictor and no late side output. Leave "
                "those out, or use an AggregateFunction."
            )
        read = [aggregate.column for aggregate in aggregates]
        check_columns(read, self._stream.plumbing.element_type, self._name)
        operator = ops.ColumnWindowOperator(
            self._assigner, self._keys, tuple(aggregates), self._lateness_ms
        )
        partitioning = Partitioning(
            ShipStrategy.HASH, key_selector=self._keys, columns=operator.input_columns
        )
        pruned = self._stream.plumbing.partitioned(partitioning)
        return DataStream(pruned.add_operator(self._name, operator, None))


class AllWindowedStream(_Windowed[T]):
    """The windows of a whole stream, in one subtask, as `window_all(assigner)` returns them."""

    _functions = ALL_FUNCTIONS

    def __init__(self, data_stream: DataStream[T], window_assigner: WindowAssigner) -> None:
        keys = KeySelection(NullByteKeySelector().get_key)
        super().__init__(data_stream, keys, window_assigner)

    def trigger(self, trigger: Trigger) -> Self:
        """Replace the window assigner's default trigger, which decides when a window fires.

        Raises:
            GraphError: the assigner merges windows, and the trigger cannot.
        """
        self._set_trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Remove records before or after the window function; until then all are kept."""
        self._set_evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Set how long late records still count: ms, Time or Duration (default 0)."""
        self._set_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Emit records after the allowed lateness with this tag; otherwise they are dropped."""
        self._set_late_tag(output_tag)
        return self

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], R],
        window_function: None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: AllFunction[T, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    def reduce(
        self,
        reduce_function: Callable[[T, T], Any] | ReduceFunction[T],
        window_function: AllFunction[T, Any] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Combine each window's records as they arrive; arguments as in WindowedStream."""
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, R],
        window_function: None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, V],
        window_function: AllFunction[V, R],
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Any],
        window_function: AllFunction[Any, Any] | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Aggregate the records of each window as they arrive.

        Args:
            aggregate_function: an AggregateFunction.
            window_function: gets the one aggregate when the window fires.
            accumulator_type: accepted as in PyFlink; not needed.
            output_type: the type of the results.
        """
        return self._aggregated(aggregate_function, window_function, output_type)

    def apply(
        self,
        window_function: AllWindowFunction[T, R, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call an AllWindowFunction with all records of a window when it fires."""
        return self._listed(window_function, output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[T, R, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call a ProcessAllWindowFunction, with context and state, for each window that fires."""
        return self._listed(process_window_function, output_type)

    def _window_function(self, function: Any) -> UserFunction | None:
        """Adapts the function: the operator passes a key, but all-window functions take none."""
        function_or_none = super()._window_function(function)
        return None if function_or_none is None else adapt.without_key(function_or_none)

    def _add(self, operator: Any, output_type: TypeInformation | None) -> DataStream[Any]:
        partitioning = Partitioning(ShipStrategy.GLOBAL)
        to_one = self._stream.plumbing.partitioned(partitioning)
        windowed = to_one.add_operator(
            self._name,
            operator,
            output_type,
            parallelism=1,
            max_parallelism=1,
            is_parallelism_fixed=True,
        )
        return DataStream(windowed)
