"""Chooses the window operator: the fast one for event-time grids with their default trigger, else
the general one; and window joins.

The operators do not know this module. Source: Flink WindowOperatorBuilder; differs: Flink has one
operator for all windows without an evictor.

Window join and co-group are two streams in one window operator, each record marked with its stream.
Source: Flink CoGroupedStreams, JoinedStreams (docs/spec/windows.md#window-joins); differs: the two
inputs of the operator keep the streams separate. So both streams keep their own type on the wire,
and no map before the window has to tag records. Does not know the API: the user's functions come as
callables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Emitted
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.operators.two_input import TwoInputs
from penstock.engine.runtime.operators.windowed.base import WindowOperator
from penstock.engine.runtime.operators.windowed.functions import WindowContents
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.windowing.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from penstock.engine.runtime.windowing.triggers import EventTimeTrigger, Trigger


def window_operator(
    *,
    assigner: WindowAssigner,
    contents: WindowContents,
    trigger: Trigger | None = None,
    **others: Any,
) -> WindowOperator:
    """The operator for one input. `others`: the further arguments of `WindowOperator`."""
    is_fast = _is_fast(assigner, contents, trigger)
    engine = GridWindowOperator if is_fast else RecordWindowOperator
    return engine(assigner=assigner, contents=contents, trigger=trigger, **others)


def window_join_operator(
    *,
    side_keys: tuple[KeySelection, KeySelection],
    assigner: WindowAssigner,
    contents: WindowContents,
    trigger: Trigger | None = None,
    **others: Any,
) -> WindowJoinOperator:
    """The operator for a join. `side_keys`: the keys of the first and of the second input. `others`: the further arguments of
    `WindowOperator`, without `keys`.
    """
    is_fast = _is_fast(assigner, contents, trigger)
    engine = GridWindowJoinOperator if is_fast else RecordWindowJoinOperator
    return engine(
        side_keys=side_keys, assigner=assigner, contents=contents, trigger=trigger, **others
    )


def _is_fast(assigner: WindowAssigner, contents: WindowContents, trigger: Trigger | None) -> bool:
    """Whether all keys of a window fire at once, and nothing needs single records."""
    is_grid = type(assigner) in {TumblingEventTimeWindows, SlidingEventTimeWindows}
    is_default = trigger is None or type(trigger) is EventTimeTrigger
    return is_grid and is_default and contents.evictor is None


class TaggedUnion(NamedTuple):
    """A record of one of two streams, as assigners, triggers and evictors of a window join see it."""

    side: int
    value: Any

    def is_one(self) -> bool:
        """Whether it is of the first stream."""
        return self.side == 0

    def is_two(self) -> bool:
        return self.side == 1

    def get_one(self) -> Any:
        """The record; None if it is of the second stream."""
        return self.value if self.side == 0 else None

    def get_two(self) -> Any:
        return self.value if self.side == 1 else None


class CoGroupWindowFunction:
    """A window function `apply(key, window, elements)` of tagged records.

    `function`: is called with `(values of the first stream, values of the second)` and returns an iterable or None.
    """

    def __init__(self, function: UserFunction) -> None:
        self._function = function

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def apply(self, _key: Any, _window: Any, elements: Iterable[TaggedUnion]) -> Any:
        """Called with at least one record, of either side."""
        sides: tuple[list[Any], list[Any]] = ([], [])
        for side, value in elements:
            sides[side].append(value)
        return self._function.call(*sides)


class JoinWindowFunction(CoGroupWindowFunction):
    """Joins every pair of records of the two streams. `is_flat`: the call returns an iterable (or None), not one result."""

    def __init__(self, function: UserFunction, *, is_flat: bool = False) -> None:
        super().__init__(function)
        self._is_flat = is_flat

    def apply(self, _key: Any, _window: Any, elements: Iterable[TaggedUnion]) -> Any:
        """A generator, because a cross product may be large."""
        sides: tuple[list[Any], list[Any]] = ([], [])
        for side, value in elements:
            sides[side].append(value)
        pairs = ((one, two) for one in sides[0] for two in sides[1])
        return (_flat if self._is_flat else _single)(self._function.call, pairs)


def _single(call: Callable[..., Any], pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    for one, two in pairs:
        yield call(one, two)


def _flat(call: Callable[..., Any], pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    for one, two in pairs:
        results = call(one, two)
        if results is not None:
            yield from results


class _ValueKey:
    """The key of a tagged record is the key of the record in it."""

    def __init__(self, keys: KeySelection) -> None:
        self._keys = keys
        self._select = keys.row_selector()

    def __call__(self, tagged: TaggedUnion) -> Any:
        return self._select(tagged[1])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._keys,)


class WindowJoinOperator(TwoInputs, WindowOperator):
    """Both inputs share the windows. `window_join_operator` chooses which of the two subclasses is made.

    `side_keys`: the keys of the first and of the second input. All else as in WindowOperator.
    """

    def __init__(self, *, side_keys: tuple[KeySelection, KeySelection], **kwargs: Any) -> None:
        self.side_keys = (_of_tagged(side_keys[0]), _of_tagged(side_keys[1]))
        super().__init__(keys=self.side_keys[0], **kwargs)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        self.keys = self.side_keys[input_index]
        tagged = list(map(TaggedUnion, repeat(input_index), rows.values))
        return super().process(RowBatch(tagged, rows.timestamps), 0)


class GridWindowJoinOperator(WindowJoinOperator, GridWindowOperator):
    """Tumbling and sliding event-time windows with the default trigger."""


class RecordWindowJoinOperator(WindowJoinOperator, RecordWindowOperator):
    """Any assigner, trigger and evictor."""


def _of_tagged(keys: KeySelection) -> KeySelection:
    return KeySelection(_ValueKey(keys), keys.key_type)
