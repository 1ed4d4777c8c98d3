"""The record at which a function of the user failed, kept with its error until that becomes text.

For functions that an operator's `failing_record` does not follow: key selectors, partitioners, timestamp assigners, timers and windows.
Does not know operators. Source: none in Flink, whose functions get single records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any, Final, TypeVar

from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.records.dead_letters import FiredTimer, FiredWindow

T = TypeVar("T")
_KINDS: Final = {FiredTimer: "timer", FiredWindow: "window"}
_NOTE: Final = "_penstock_failed_at"
_NOTHING: Final = object()
_ATTRIBUTES_OF: Final[Any] = BaseException.__dict__["__dict__"].__get__
"""Past what the class of an error makes of its attributes."""


def note_record(error: BaseException, record: Any, selected_at: str = "") -> None:
    """Keep a record with the error that it led to. `selected_at`: the line that built the function, where that is not the operator's."""
    _ATTRIBUTES_OF(error)[_NOTE] = record, selected_at


def take_note(error: BaseException) -> list[str]:
    """Return lines that tell the record that was kept, if there is one. The error does not hold the record any more."""
    record, selected_at = _ATTRIBUTES_OF(error).pop(_NOTE, (_NOTHING, ""))
    if record is _NOTHING:
        return []
    kind = _KINDS.get(type(record), "record")
    lines = [f"  at {f'{kind}:':<9} {bounded_repr(record)}"]
    return [*lines, f"  key_by at:   {selected_at}"] if selected_at else lines


def each(function: Callable[[Any], T], values: Sequence[Any], selected_at: str = "") -> list[T]:
    """Return the function's results, in order. An iteration that StopIteration has ended gives fewer.

    Raises: what the function raises, with the record noted.
    """
    left = iter(values)
    try:
        return list(map(function, left))
    except BaseException as error:
        note_record(error, values[len(values) - length_hint(left) - 1], selected_at)
        raise


def ended_at(index: int) -> RuntimeError:
    """The error for a function that raised StopIteration at this record of its batch."""
    return RuntimeError(
        f"the function raised StopIteration at record {index} of its batch (a next() on an "
        "exhausted iterator?): give next() a default, or catch it"
    )


def is_exhausted(position: Iterator[Any]) -> bool:
    """Whether a list iterator was asked for more items than it has; it then pickles without its list.

    Its length hint cannot tell this: it is 0 as soon as the last record was handed out.
    """
    return len(position.__reduce__()) < 3
