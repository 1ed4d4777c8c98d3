"""DeadLetter: a record for which a user function raised, with the error. PoisonRecords: gathers
these in an operator.

Does not know operators or tasks: the caller reports errors, and asks for the letters to emit.
Source: none in Flink; dead letter queues are known from message brokers and from Kafka Connect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any, Final, TypeVar

import numpy as np

from penstock.engine.model.errors import CancelSignal, EngineBug, ExternalError, UserCodeError
from penstock.engine.model.graph.stream_graph import ErrorRule
from penstock.engine.model.own_places import is_ours_here, is_pythons
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.texts.bounded_text import bounded_repr, bounded_str, cut_lines
from penstock.engine.model.texts.error_text import traceback_of
from penstock.engine.model.types import RowTypeInfo, Types
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, RowBatch, Tagged
from penstock.engine.runtime.records.output_copies import own_copy

POISON_METRIC: Final = "numPoisonRecords"
MOST_OF_ERROR_TEXT: Final = 4000
MOST_OF_TRACEBACK: Final = 8000
MOST_OF_RECORD_TEXT: Final = 1 << 20
LOG_EVERY_MS: Final = 10_000
_FRAME: Final = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_OTHERS: Final = (ExternalError, EngineBug)
"""No record is the cause of these."""


@dataclass(frozen=True, slots=True)
class FiredTimer:
    """The record of a dead letter whose error came from `on_timer`.

    `timestamp`: epoch ms. `domain`: "EVENT_TIME" or "PROCESSING_TIME".
    """

    key: Any
    timestamp: int
    domain: str


@dataclass(frozen=True, slots=True)
class FiredWindow:
    """The record of a dead letter whose error came from a window function, a trigger or an
    evictor."""

    key: Any
    window: Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that an operator could not process, with the error. Not in PyFlink.

    Attributes:
        record: the record as the function left it; for a timer a FiredTimer, for a window a FiredWindow, for an interval join the
            pair. A record that cannot be pickled is replaced by its repr.
        error_class: the class of the exception, with its module unless it is built in.
        error_text: the exception's text, cut to 4,000 characters.
        traceback: the traceback without Penstock's frames, cut to 8,000 characters.
        operator: the operator's name.
        subtask: the index of the subtask, from 0.
        timestamp: the record's event time in epoch ms; None: it has none.
        processing_time: when it happened, in epoch ms.
    """

    record: Any
    error_class: str
    error_text: str
    traceback: str
    operator: str
    subtask: int
    timestamp: int | None
    processing_time: int

    def __str__(self) -> str:
        """One line, as `print()` shows it: the record, the error, and where. `repr` has all fields."""
        users = [
            f"{file}:{line} in {function}"
            for file, line, function in _FRAME.findall(self.traceback)
            if not (is_pythons(file) or is_ours_here(file))
        ]
        error = " ".join(f"{self.error_class}: {self.error_text}".split())
        places = ", ".join([f"{self.operator} [{self.subtask}]", *users[-1:]])
        record = bounded_repr(self.record)
        # The text of a malformed line's error has the line, and a quoted text is found there for sure.
        is_said = isinstance(self.record, str | bytes) and record in error
        return f"{error} ({places})" if is_said else f"{record}: {error} ({places})"

    def as_row(self) -> Row:
        """Return the letter as a Row of `DEAD_LETTER_TYPE`, for sinks that need a type.

        A record that is a string stays as it is, and bytes become a string, with escapes for what is not UTF-8. Of anything else the
        row has the repr, cut to 1,048,576 characters.
        """
        values = (_text_of(self.record), *(getattr(self, name) for name in _FIELDS[1:]))
        return make_row(_FIELDS, values)


_FIELDS: Final = tuple(DeadLetter.__slots__)
DEAD_LETTER_TYPE: Final[RowTypeInfo] = Types.ROW_NAMED(
    list(_FIELDS),
    [
        *[Types.STRING()] * 5,
        Types.INT(),
        Types.LONG(),
        Types.LONG(),
    ],
)
"""The ROW type of `DeadLetter.as_row`: the fields of a DeadLetter in order, `record` as a
string."""


@dataclass(frozen=True, slots=True)
class PoisonPlace:
    """Where records are put aside. `complain`: logs a line. `dumps`: pickles a record."""

    operator: str
    defined_at: str
    subtask: int
    now_ms: Callable[[], int]
    complain: Callable[[str], None]
    dumps: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Stands in a `MarkedRows` for a record that a reader could not decode.

    `raw`: what could not be decoded. `error`: why. `failure`: the error that says also where it was, which fails a job without a rule.
    """

    raw: Any
    error: Exception
    failure: Exception


class MarkedRows(RowBatch):
    """Rows of a reader among which are some `Malformed`. They count as rows in the positions of
    readers."""

    __slots__ = ()

    def slice(self, start: int, stop: int) -> MarkedRows:
        part = super().slice(start, stop)
        return MarkedRows(part.values, part.timestamps)


def checked(batch: Batch) -> Batch:
    """The batch. Raises: the failure of its first `Malformed`."""
    if isinstance(batch, MarkedRows):
        for value in batch.values:
            if isinstance(value, Malformed):
                raise value.failure from value.error
    return batch


def decoded(
    raw: Sequence[Any], decode: Callable[[Any], Any], failure: Callable[[int, Exception], Exception]
) -> tuple[list[Any], bool]:
    """The decoded values, with a `Malformed` for each that cannot be decoded; and whether there is any.

    Args: failure: (position, error) to the error that says where it was.
    """
    values: list[Any] = []
    has_marks = False
    decoding = map(decode, raw)
    while len(values) < len(raw):
        try:
            values.extend(decoding)
        except _OTHERS:
            raise
        except Exception as error:
            met: Exception = error
        else:
            # `map` ends without an error when the function raises StopIteration.
            met = RuntimeError("the function that decodes raised StopIteration")
        if len(values) < len(raw):
            place = len(values)
            values.append(Malformed(raw[place], met, failure(place, met)))
            has_marks = True
    return values, has_marks


class PoisonRecords:
    """The records that one operator puts aside. Counts them, logs a sample, and keeps dead
    letters until the chain takes them."""

    def __init__(self, rule: ErrorRule, place: PoisonPlace, counter: Any) -> None:
        """`counter`: a `user_metrics.Counter`, which this room does not know."""
        self.counter = counter
        self._rule = rule
        self._place = place
        self._letters: list[DeadLetter] = []
        self._next_log_ms = 0
        self._logged = 0

    @property
    def count(self) -> int:
        """How many records were put aside."""
        counted: int = self.counter.get_count()
        return counted

    def takes(self, error: BaseException) -> bool:
        """Whether a record with this error is put aside. Only exceptions of user functions are."""
        return isinstance(_own(error), self._rule.only) and not isinstance(error, _OTHERS)

    def add(self, error: Exception, record: Any, timestamp: int | None = None) -> None:
        """Put a record aside. Raises: the error itself, if the rule does not take it."""
        if not self.takes(error):
            raise error
        self._add(error, record, timestamp, error)

    def without_marks(self, batch: Batch) -> Batch:
        """The rows that a reader could decode; the others are put aside. Raises: the failure of one whose error the rule does not
        take.
        """
        if not isinstance(batch, MarkedRows):
            return batch
        stamps = batch.timestamps
        kept: list[int] = []
        for place, value in enumerate(batch.values):
            if not isinstance(value, Malformed):
                kept.append(place)
            elif self.takes(value.error):
                stamp = None if stamps is None else int(stamps[place])
                self._add(value.error, value.raw, stamp, value.failure)
            else:
                raise value.failure from value.error
        values = [batch.values[place] for place in kept]
        return RowBatch(values, None if stamps is None else stamps[kept])

    def _add(self, error: Exception, record: Any, timestamp: int | None, shown: Exception) -> None:
        self.counter.inc()
        if self._rule.tag is not None:
            self._letters.append(self._letter(error, record, timestamp, shown))
        now_ms = self._place.now_ms()
        if now_ms >= self._next_log_ms:
            self._next_log_ms = now_ms + LOG_EVERY_MS
            self._log(error, record, shown)

    def take(self) -> Tagged | None:
        """Remove and return the dead letters; None: there are none."""
        if not self._letters:
            return None
        letters, self._letters = self._letters, []
        stamps = [NO_TIMESTAMP if one.timestamp is None else one.timestamp for one in letters]
        has_times = any(one.timestamp is not None for one in letters)
        assert self._rule.tag is not None, "letters are kept for a side output only"
        batch = RowBatch(list(letters), np.array(stamps, np.int64) if has_times else None)
        return Tagged(self._rule.tag, batch)

    def close(self) -> None:
        """Log how many records no line has mentioned."""
        unlogged = self.count - self._logged
        if unlogged > 0:
            place = self._place
            place.complain(
                f"operator='{place.operator}' subtask={place.subtask} poison_records={self.count} "
                f"since_last_line={unlogged}"
            )

    def _letter(
        self, error: Exception, record: Any, timestamp: int | None, shown: Exception
    ) -> DeadLetter:
        kind = type(_own(error))
        is_builtin = kind.__module__ == "builtins"
        return DeadLetter(
            record=self._sendable(record),
            error_class=kind.__qualname__
            if is_builtin
            else f"{kind.__module__}.{kind.__qualname__}",
            error_text=bounded_str(shown, MOST_OF_ERROR_TEXT),
            traceback=cut_lines(traceback_of(error, of_user=True), MOST_OF_TRACEBACK),
            operator=self._place.operator,
            subtask=self._place.subtask,
            timestamp=None if timestamp == NO_TIMESTAMP else timestamp,
            processing_time=self._place.now_ms(),
        )

    def _sendable(self, record: Any) -> Any:
        """The record, if it can leave this process, else its repr."""
        try:
            self._place.dumps(record)
            return own_copy(record)
        except CancelSignal:
            raise
        except BaseException:
            # The record's own code may raise anything.
            return bounded_repr(record, MOST_OF_RECORD_TEXT)

    def _log(self, error: Exception, record: Any, shown: Exception) -> None:
        place = self._place
        count = self.count
        since, self._logged = count - self._logged, count
        text = " ".join(bounded_str(shown, 500).split())
        place.complain(
            f"operator='{place.operator}' subtask={place.subtask} poison_records={count} "
            f"since_last_line={since} "
            f"built_at={place.defined_at} error={type(error).__name__}: {text} "
            f"record={bounded_repr(record)}"
        )


def _own(error: BaseException) -> BaseException:
    """Return the error itself, or its cause if it is a wrapper of ours."""
    cause = error.__cause__
    return cause if isinstance(error, UserCodeError) and cause is not None else error


def _text_of(record: Any) -> str:
    if isinstance(record, str):
        return record
    if isinstance(record, bytes | bytearray):
        return bytes(record).decode("utf-8", "backslashreplace")
    return bounded_repr(record, MOST_OF_RECORD_TEXT)


T = TypeVar("T")
_KINDS: Final = {FiredTimer: "timer", FiredWindow: "window"}
_NOTE: Final = "_penstock_failed_at"
_NOTHING: Final = object()
_ATTRIBUTES_OF: Final[Any] = BaseException.__dict__["__dict__"].__get__
"""Past what the class of an error makes of its attributes."""


def note_record(error: BaseException, record: Any, selected_at: str = "") -> None:
    """The record at which a function of the user failed, kept with its error until that becomes text.

    For functions that an operator's `failing_record` does not follow: key selectors, partitioners, timestamp assigners,
    timers and windows. Does not know operators. Source: none in Flink, whose functions get single records.

    Keep a record with the error that it led to. `selected_at`: the line that built the function, where that is not the
    operator's.
    """
    _ATTRIBUTES_OF(error)[_NOTE] = record, selected_at


def take_note(error: BaseException) -> list[str]:
    """Return lines that show the record that was kept, if there is one. The error does not hold the
    record any more.
    """
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
    """Whether a list iterator was asked for more items than it has; it then pickles without its
    list.

    Its length hint does not show this: it is 0 as soon as the last record was handed out.
    """
    return len(position.__reduce__()) < 3
