"""Chooses the window operator: the fast one for event-time grids with their default trigger, else the general one.

The operators do not know this module.
Source: Flink WindowOperatorBuilder; differs: Flink has one operator for all windows without an evictor.
"""

from __future__ import annotations

from typing import Any

from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators.windowed.base import WindowOperator
from penstock.engine.runtime.operators.windowed.functions import WindowContents
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.join import (
    GridWindowJoinOperator,
    RecordWindowJoinOperator,
    WindowJoinOperator,
)
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
