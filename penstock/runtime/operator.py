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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from penstock.model.types import TypeInformation
from penstock.runtime.codecs.convert import to_rows
from penstock.runtime.elements import (
    Batch,
    ColumnBatch,
    Element,
    LatencyMarker,
    RowBatch,
    Tagged,
    Watermark,
    WatermarkStatus,
)
from penstock.runtime.state.contract import MakeKeyedStateBackend
from penstock.runtime.state.snapshot import OperatorSnapshot
from penstock.runtime.user_metrics import MetricGroup

MAX_EMIT: Final = 1024

Emitted: TypeAlias = Iterable[Element | Tagged | None]


class Accepts(Enum):
    """The kind of batch that an operator takes; the task converts batches to it."""

    ROWS = "rows"
    COLUMNS = "columns"
    ANY = "any"


class BatchOrder(Enum):
    """How a BATCH job reads what comes to the head of a chain over keyed edges."""

    AS_IT_COMES = "as it comes"
    BY_TIME = "by time"
    """When all is there, in the order of time, the records of many keys together."""
    BY_KEY = "by key"
    """When all is there, one key after the other, each in the order of time."""


class Counter(Protocol):
    """A metric that only grows."""

    def inc(self, count: int = 1) -> None: ...


class ProcessingTimers(Protocol):
    """One physical processing-time timer per operator; setting replaces. Fires `on_processing_time`."""

    def now_ms(self) -> int: ...
    def schedule(self, at_ms: int) -> None: ...
    def cancel(self) -> None: ...


class AsyncCalls(Protocol):
    """Runs user functions away from the mailbox thread: coroutines on a loop, plain functions on a pool.

    `open` once, then `submit` and `cancel` from the mailbox thread; outcomes come as one mail for many calls.
    """

    def open(
        self,
        function: Callable[[Any], Any],
        on_outcomes: Callable[[Sequence[Outcome]], None],
        capacity: int,
    ) -> None: ...
    def submit(self, calls: Sequence[tuple[int, Any]]) -> None:
        """(number, value) of each call to start."""

    def cancel(self, number: int) -> None:
        """Its outcome, if one comes, no longer matters."""

    def close(self) -> None:
        """Cancel all; waits for nobody long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call: its results, or the error that it raised."""

    number: int
    result: Any = None
    error: BaseException | None = None


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
    async_calls: AsyncCalls | None = None
    active_ms: Callable[[], int] | None = None
    """Processing time without what was spent in front of full outputs; None: processing time itself."""
    restored_checkpoint_id: int | None = None
    """The checkpoint that the attempt begins with; None: it begins with nothing."""
    has_final_checkpoint: bool = False
    """After the end of the input there is one more checkpoint: sinks wait for it."""
    is_batch: bool = False
    """Runtime mode BATCH: there is one watermark, at the end of the input."""
    metrics: MetricGroup = field(default_factory=MetricGroup)
    """Of the user's functions. The chain gives one that the task reports."""
    keyed_state: MakeKeyedStateBackend | None = None
    """The kind of keyed state backend; None: on the heap."""


@dataclass(frozen=True, slots=True)
class Combining:
    """`partial` stands at the near end of an exchange, `final` at its far end, for the operator that was asked.

    `keys`: the `KeySelection` of what `partial` emits. `keeps_type`: that is of the type of its input; else it is pickled.
    """

    partial: Operator
    final: Operator
    keys: object
    keeps_type: bool


class Operator:
    """Base with the neutral behaviour: forwards watermarks and statuses, holds no state."""

    accepts: Accepts = Accepts.ROWS
    keeps_records: ClassVar[bool] = False
    """Emits its input's records as they are: their type needs no second check."""
    batch_order: ClassVar[BatchOrder] = BatchOrder.AS_IT_COMES
    """Of a keyed operator another one."""
    is_in_record: bool = False
    takes_input: bool = True
    """False: nothing is fed until a timer or a mail has made it true again. Asked of the head of a chain only."""
    is_drained: bool = True
    """False: the input may have ended, but results are still outstanding. Asked of the head of a chain only."""
    has_put_off: bool = False
    """Something is to be tried again by its timer, which fires at the end of the data too: the task waits for that."""

    def in_batch(self) -> Operator:
        """What stands for it in runtime mode BATCH, where all its input is there: only final results. Asked on the driver."""
        return self

    def before_exchange(self) -> Combining | None:
        """In BATCH, what makes fewer records of this one's keyed input before they are shuffled; None: nothing. Asked on the driver,
        of what `in_batch` gave.
        """
        return None

    def open(self, context: OperatorContext) -> None:
        """Once per attempt, before any element; tail of the chain first."""

    def rows_from(
        self, batch: ColumnBatch, type_info: TypeInformation | None, input_index: int
    ) -> RowBatch:
        """Columns as the rows that are processed next. Asked where it accepts rows. Raises: TypeError: they are not of the type."""
        return to_rows(batch, type_info)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        """One batch of a logical input."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        """Fire what is due, then forward. `input_index` already combined for one-input operators."""
        return (watermark,)

    def process_status(self, status: WatermarkStatus, input_index: int) -> Emitted:
        """IDLE or ACTIVE of a logical input."""
        return (status,)

    def process_latency_marker(self, marker: LatencyMarker) -> Emitted:
        """Forward it behind the records that came before it; sinks do not."""
        return (marker,)

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

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Emitted:
        """Before the barrier of a checkpoint goes out: emit what must not be behind it. Head first."""
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Everything up to this checkpoint is safe: commit. Tail first."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not complete."""

    def snapshot(self) -> OperatorSnapshot:
        """State to keep; empty: stateless. Tables copied, objects in them not: the chain freezes those at once."""
        return OperatorSnapshot()

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Before `open`: what snapshots gave, of any number of subtasks; keyed parts with this one's key groups."""
