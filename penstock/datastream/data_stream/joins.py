"""Joins of two streams: in windows (join, co_group) and by distance in time (interval_join).

Source: Flink JoinedStreams, CoGroupedStreams, KeyedStream.IntervalJoin, in Python style (PyFlink has none of them);
differs: `side_output_late_data` exists for window joins too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import check_together
from penstock.datastream.building.program import as_given, caller_location
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.data_stream.keyed_stream import KeyedStream
from penstock.datastream.data_stream.windowed_stream import WindowSettings
from penstock.datastream.functions import Function, KeySelector
from penstock.datastream.functions.base import Results
from penstock.datastream.functions.type_variables import IN1, IN2, OUT, T1, T2, K, R
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import Trigger, WindowAssigner
from penstock.engine.model.errors import GraphError
from penstock.engine.model.time import millis_of
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.records.columns import Column
from penstock.engine.runtime.windowing import Evictor

S = TypeVar("S", bound="CoGroupedStreams[Any, Any]")
"""JoinedStreams or CoGroupedStreams: which functions `apply` takes."""
_BothKeyed: TypeAlias = tuple[KeyedStream[Any, Any], KeyedStream[Any, Any]]


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Returns one result for each pair of records with the same key and window."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Return the result for one pair."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Returns any number of results for each pair of records with the same key and window."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Iterable[OUT] | None:
        """Return the results for one pair; None: no result."""


class CoGroupFunction(Function, Generic[T1, T2, OUT]):
    """Gets all records of a key and window at once; one of the two lists may be empty."""

    @abstractmethod
    def co_group(self, first: list[T1], second: list[T2]) -> Iterable[OUT] | None:
        """Return the results for one key and window; None: no result."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Returns results, and side outputs (`yield tag, value`), for each pair of an interval join."""

    class Context(ops.ProcessJoinContext):
        """Gives a pair's three times, in epoch ms.

        They are `get_left_timestamp()`, `get_right_timestamp()` and `get_timestamp()`.
        """

    @abstractmethod
    def process_element(
        self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context
    ) -> Results[OUT]:
        """Return the results for one pair; None: no result."""


class CoGroupedStreams(Generic[T1, T2]):
    """Two streams to be grouped by key and window, as `stream.co_group(other)` returns them.

    Example:
        orders.co_group(payments).where(lambda o: o.id).equal_to(lambda p: p.order_id)
            .window(TumblingEventTimeWindows.of(Duration.of_minutes(5)))
            .apply(lambda orders, payments: [(len(orders), len(payments))])
    """

    def __init__(self, stream1: DataStream[T1], stream2: DataStream[T2]) -> None:
        check_together("join", stream1, stream2)
        self._streams = (stream1, stream2)

    def where(
        self,
        key_selector: Callable[[T1], Any] | KeySelector[T1, Any] | Column,
        key_type: TypeInformation | None = None,
    ) -> Where[Self, T2]:
        """Set the key of the first stream's records: a function, a KeySelector or a column."""
        return Where(self, key_selector, key_type)

    def _window_function(self, function: Any) -> ops.CoGroupWindowFunction:
        return ops.CoGroupWindowFunction(adapt.co_group_function(function, CoGroupFunction))

    def _keyed(
        self, selectors: tuple[Any, Any], key_type: TypeInformation | None
    ) -> tuple[KeyedStream[T1, Any], KeyedStream[T2, Any]]:
        first, second = self._streams
        return first.key_by(selectors[0], key_type), second.key_by(selectors[1], key_type)


class JoinedStreams(CoGroupedStreams[T1, T2]):
    """Two streams to be joined by key and window, as `stream.join(other)` returns them."""

    def _window_function(self, function: Any) -> ops.CoGroupWindowFunction:
        if isinstance(function, FlatJoinFunction):
            return ops.JoinWindowFunction(UserFunction(function.join, function), is_flat=True)
        return ops.JoinWindowFunction(adapt.join_function(function, JoinFunction))


class Where(Generic[S, T2]):
    """A join whose first stream has its key."""

    def __init__(self, streams: S, key_selector: Any, key_type: TypeInformation | None) -> None:
        self._streams = streams
        where = caller_location()
        self._key_selector = as_given(key_selector, "the key selector of where()", where)
        self._key_type = key_type

    def equal_to(
        self,
        key_selector: Callable[[T2], Any] | KeySelector[T2, Any] | Column,
        key_type: TypeInformation | None = None,
    ) -> EqualTo[S]:
        """Set the key of the second stream's records.

        Raises:
            GraphError: its declared type is not that of the first stream's key.
        """
        declared = [kind for kind in (self._key_type, key_type) if kind is not None]
        if declared and declared[0] != declared[-1]:
            raise GraphError(
                f"The types of the keys do not match: where() declares {self._key_type}, equal_to() {key_type}. "
                "Declare one type for both: equal keys of different types would not meet."
            )
        keyed = self._streams._keyed(  # ruff: ignore[private-member-access]
            (self._key_selector, key_selector), declared[0] if declared else None
        )
        return EqualTo(self._streams, keyed)


class EqualTo(Generic[S]):
    """A join whose streams both have their keys."""

    def __init__(self, streams: S, keyed: _BothKeyed) -> None:
        self._streams = streams
        self._keyed = keyed

    def window(self, assigner: WindowAssigner) -> WithWindow[S]:
        """Set the window assigner."""
        return WithWindow(self._streams, self._keyed, assigner)


class WithWindow(WindowSettings, Generic[S]):
    """A join that lacks only its function. Triggers and evictors see `TaggedUnion` records."""

    def __init__(self, streams: S, keyed: _BothKeyed, assigner: WindowAssigner) -> None:
        super().__init__(assigner)
        self._streams = streams
        self._keyed = keyed

    def trigger(self, trigger: Trigger) -> Self:
        """Replace the window assigner's default trigger."""
        self._set_trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Remove records from a window before it is joined."""
        self._set_evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: Any) -> Self:
        """Set how long after a window's end late records still count: ms, Time or Duration."""
        self._set_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Emit records after the allowed lateness with this tag, as `TaggedUnion(side, value)`."""
        self._set_late_tag(output_tag)
        return self

    @overload
    def apply(
        self: WithWindow[JoinedStreams[T1, T2]],
        function: Callable[[T1, T2], R] | JoinFunction[T1, T2, R] | FlatJoinFunction[T1, T2, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    @overload
    def apply(
        self: WithWindow[CoGroupedStreams[T1, T2]],
        function: Callable[[list[T1], list[T2]], Iterable[R] | None] | CoGroupFunction[T1, T2, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]: ...

    def apply(self, function: Any, output_type: TypeInformation | None = None) -> DataStream[Any]:
        """Set the function, and return its results as a stream.

        Args:
            function: for `join` a JoinFunction, a FlatJoinFunction or `(first, second) -> result`;
                for `co_group` a CoGroupFunction or `(list of first, list of second) -> iterable`.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        window_function = self._streams._window_function(function)  # ruff: ignore[private-member-access]
        operator = ops.window_join_operator(
            side_keys=_side_keys(self._keyed),
            assigner=self._assigner,
            trigger=self._trigger,
            allowed_lateness_ms=self._lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            contents=ops.ListContents(evicting=self._evictor),
            function=UserFunction(window_function.apply, window_function),
        )
        return _two_inputs(self._keyed, self._name, operator, output_type)


class IntervalJoin(Generic[T1, T2]):
    """A join in event time without its bounds, as `keyed.interval_join(other_keyed)` returns it."""

    def __init__(self, left: KeyedStream[T1, K], right: KeyedStream[T2, K]) -> None:
        self._keyed = (left, right)

    def between(self, lower_bound: Any, upper_bound: Any) -> IntervalJoined[T1, T2]:
        """Join where `lower_bound <= right timestamp - left timestamp <= upper_bound`.

        Args:
            lower_bound: Time, Duration or timedelta; may be negative.
            upper_bound: Time, Duration or timedelta; may be negative.
        """
        try:
            interval = ops.Interval(millis_of(lower_bound), millis_of(upper_bound))
        except ValueError as error:
            raise GraphError(str(error)) from None
        return IntervalJoined(self._keyed, interval)


class IntervalJoined(Generic[T1, T2]):
    """An interval join that lacks only its function.

    Example:
        clicks.key_by(user).interval_join(buys.key_by(user))
            .between(Duration.of_seconds(0), Duration.of_minutes(30))
            .upper_bound_exclusive().process(ClickedBeforeBuying())
    """

    def __init__(self, keyed: _BothKeyed, interval: ops.Interval) -> None:
        self._keyed = keyed
        self._interval = interval
        self._is_exclusive = (False, False)
        self._late_tags: tuple[str | None, str | None] = (None, None)

    def lower_bound_exclusive(self) -> Self:
        """Leave out pairs whose distance is exactly the lower bound."""
        self._is_exclusive = (True, self._is_exclusive[1])
        return self

    def upper_bound_exclusive(self) -> Self:
        """Leave out pairs whose distance is exactly the upper bound."""
        self._is_exclusive = (self._is_exclusive[0], True)
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Emit late records of the left stream with this tag, instead of dropping them."""
        self._late_tags = (output_tag.tag_id, self._late_tags[1])
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Emit late records of the right stream with this tag, instead of dropping them."""
        self._late_tags = (self._late_tags[0], output_tag.tag_id)
        return self

    def process(
        self,
        process_join_function: ProcessJoinFunction[T1, T2, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call a ProcessJoinFunction for each pair."""
        function = adapt.method_of(
            process_join_function, ProcessJoinFunction, "process_element", "Interval Join"
        )
        operator = ops.IntervalJoinOperator(
            function,
            _side_keys(self._keyed),
            self._interval,
            self._is_exclusive,
            self._late_tags,
        )
        return _two_inputs(self._keyed, "Interval Join", operator, output_type)


def _side_keys(keyed: _BothKeyed) -> tuple[KeySelection, KeySelection]:
    return keyed[0].plumbing.keys, keyed[1].plumbing.keys


def _two_inputs(
    keyed: _BothKeyed,
    name: str,
    operator: Any,
    output_type: TypeInformation | None,
) -> DataStream[Any]:
    first, second = keyed
    plumbing = first.plumbing.add_operator(name, operator, output_type, second.plumbing)
    return DataStream(plumbing)
