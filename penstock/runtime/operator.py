"""The operator contract. Source: Flink StreamOperator; differs: a batch at a time, outputs are returned.

Duties of an operator:
* It is built in the driver, pickled, and opened once per attempt; `__init__` does no work.
* Every method runs on the mailbox thread of its task; it never blocks and never starts a thread.
* A method returns what it emits, in order, as an iterable of elements. A generator may be suspended
  at any `yield` and is resumed later; `yield None` offers a place to stop and emits nothing. While a
  user generator is open (one record that yields very many), set `self.is_in_record` so that timers and
  barriers wait for the record's end.
* An emitted batch holds at most about `MAX_EMIT` rows: cut expansions into several.
* An output batch must not alias a list that the operator keeps and changes.
* User errors are raised as they are; `failing_record` then returns the record's repr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from penstock.runtime.elements import Batch, Element, Tagged, Watermark, WatermarkStatus

MAX_EMIT: Final = 1024

Emitted: TypeAlias = Iterable[Element | Tagged | None]


class Accepts(Enum):
    """Which kind of batch an operator takes; the task converts before it."""

    ROWS = "rows"
    COLUMNS = "columns"
    ANY = "any"


class Counter(Protocol):
    """A metric that only grows."""

    def inc(self, count: int = 1) -> None: ...


class ProcessingTimers(Protocol):
    """One physical processing-time timer per operator; setting replaces. Fires `on_processing_time`."""

    def now_ms(self) -> int: ...
    def schedule(self, at_ms: int) -> None: ...
    def cancel(self) -> None: ...


@dataclass(slots=True)
class OperatorContext:
    """What an operator is given when it is opened."""

    job_name: str
    task_name: str
    operator_name: str
    operator_id: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    timers: ProcessingTimers
    job_parameters: dict[str, str] = field(default_factory=dict)
    late_records_dropped: Counter | None = None
    input_types: tuple[Any, ...] = ()
    output_type: Any = None
    watermark_interval_ms: int = 200
    job_id: str = ""
    report_committable: Callable[[object], None] | None = None
    file_prefix: str = ""


class Operator:
    """Base with the neutral behaviour: forwards watermarks and statuses, holds no state."""

    accepts: ClassVar[Accepts] = Accepts.ROWS
    keeps_records: ClassVar[bool] = False
    """Emits its input's records as they are: their type needs no second check."""
    is_in_record: bool = False

    def open(self, context: OperatorContext) -> None:
        """Once per attempt, before any element; tail of the chain first."""

    def process(self, batch: Batch, input_index: int) -> Emitted:
        """One batch of a logical input."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        """Fire what is due, then forward. `input_index` already combined for one-input operators."""
        return (watermark,)

    def process_status(self, status: WatermarkStatus, input_index: int) -> Emitted:
        """IDLE or ACTIVE of a logical input."""
        return (status,)

    def on_processing_time(self, now_ms: int) -> Emitted:
        """The timer set with `context.timers.schedule` is due."""
        return ()

    def end_input(self, input_index: int) -> Emitted:
        """No more records on this logical input (drain)."""
        return ()

    def finish(self) -> Emitted:
        """All inputs ended (drain): emit what is left. Head first."""
        return ()

    def close(self) -> None:
        """Always called once, also after a failure; tail first."""

    def failing_record(self) -> str | None:
        """Repr of the record at which `process` raised, if the operator knows it."""
        return None

    def snapshot(self) -> dict[str, Any]:
        """State to keep: plain data, keyed state by key group. Empty: stateless."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Before `open`, what `snapshot` gave (already redistributed)."""
