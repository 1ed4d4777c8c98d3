"""The operator contract. Source: Flink StreamOperator; differs: a batch at a time, outputs are
returned.

Duties of an operator:
* It is built in the driver, pickled, and opened once per attempt; `__init__` does no work.
* Every method runs on the mailbox thread of its task; it never blocks and never starts a thread.
* A method returns the elements that it emits, in order, as an iterable. A generator may be suspended
  at any `yield` and is resumed later; `yield None` offers a place to stop and emits nothing. While a
  user generator is open (one record that yields very many), set `self.is_in_record` so that timers and
  barriers wait for the record's end.
* An emitted batch holds at most about `MAX_EMIT` rows: cut expansions into several.
* An output batch must not alias a list that the operator keeps and changes.
* User errors are raised as they are; `failing_record` then returns the record's repr. An operator with `handles_poison` first offers
  each to `put_aside`, with the record, and continues after the record. Nothing is rolled back: neither the state that the function
  changed nor the results that it gave before it raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.metrics import Measured, OwnMetric
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import (
    Batch,
    ColumnBatch,
    Element,
    LatencyMarker,
    RowBatch,
    Tagged,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.records.dead_letters import PoisonRecords, note_record
from penstock.engine.runtime.records.output_copies import take
from penstock.engine.runtime.state.contract import MakeKeyedStateBackend
from penstock.engine.runtime.state.snapshot import IN_HAND, ListPart, OperatorSnapshot
from penstock.engine.runtime.user_metrics import MetricGroup

_PREFIX_CHARS: Final = 16
MAX_EMIT: Final = 1024

Emitted: TypeAlias = Iterable[Element | Tagged | None]
Take: TypeAlias = Callable[[list[Any], Iterable[Any]], None]


class Accepts(Enum):
    """The kind of batch that an operator takes. The task converts batches to it."""

    ROWS = "rows"
    COLUMNS = "columns"
    ANY = "any"


class BatchOrder(Enum):
    """How a BATCH job reads the keyed inputs at the head of a chain."""

    AS_IT_COMES = "as it comes"
    BY_TIME = "by time"
    """When all records are there, sorted by timestamp, with the records of many keys mixed."""
    BY_KEY = "by key"
    """When all records are there, one key after the other, each key's records sorted by timestamp."""


class Counter(Protocol):
    """A metric that only grows."""

    def inc(self, count: int = 1) -> None: ...


class ProcessingTimers(Protocol):
    """One physical processing-time timer per operator; setting it replaces the former time. It fires `on_processing_time`."""

    def now_ms(self) -> int: ...
    def schedule(self, at_ms: int) -> None: ...
    def cancel(self) -> None: ...


class AsyncCalls(Protocol):
    """Runs user functions away from the mailbox thread: coroutines on an event loop, plain functions on a pool.

    Call `open` once, then `submit` and `cancel` from the mailbox thread. Outcomes come as one mail for many calls.
    """

    def open(
        self,
        function: Callable[[Any], Any],
        on_outcomes: Callable[[Sequence[Outcome]], None],
        capacity: int,
    ) -> None: ...
    def submit(self, calls: Sequence[tuple[int, Any]]) -> None:
        """Start calls: (number, value) of each."""

    def cancel(self, number: int) -> None:
        """Cancel a call. If an outcome still comes, it is ignored."""

    def close(self) -> None:
        """Cancel all calls, without waiting long for any."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: its results, or the error that it raised."""

    number: int
    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class OperatorServices:
    """What a task provides for one operator.

    `active_ms`: processing time without the time spent waiting for full outputs; None: processing time itself. `keyed_state`: makes its
    keyed state backend; None: the one on the heap.
    """

    async_calls: AsyncCalls | None
    report_committable: Callable[[object], None] | None
    active_ms: Callable[[], int] | None
    keyed_state: MakeKeyedStateBackend | None


NO_SERVICES: Final = OperatorServices(None, None, None, None)


def ignore_line(_line: str) -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator gets when it is opened: from its task, and then from its chain.

    The chain gives `input_types`, `late_records_dropped`, `metrics`, `complain` and `poison`.
    """

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
    services: OperatorServices = NO_SERVICES
    restored_checkpoint_id: int | None = None
    """The checkpoint that the attempt starts from; None: it starts without one."""
    has_final_checkpoint: bool = False
    """Whether one more checkpoint follows the end of the input. Sinks wait for it."""
    is_batch: bool = False
    """Whether the runtime mode is BATCH, in which the only watermark comes at the end of the input."""
    metrics: MetricGroup = field(default_factory=MetricGroup)
    """The metrics of the user's functions. The chain passes a group that the task reports."""
    complain: Callable[[str], None] = ignore_line
    """Logs a line for the people who run the job."""
    poison: PoisonRecords | None = None
    """Takes the records at which a function of the user raises; None: such an error fails the job."""

    @property
    def file_prefix(self) -> str:
        """The names of all files of the job begin with it."""
        return self.job_id[:_PREFIX_CHARS]


@dataclass(frozen=True, slots=True)
class Combining:
    """Two operators that together replace one: `partial` runs before an exchange, `final` after it.

    `keys`: the `KeySelection` for the output of `partial`. `keeps_type`: that output has the type of the input; else it is pickled.
    """

    partial: Operator
    final: Operator
    keys: object
    keeps_type: bool


class Operator:
    """The base of operators. It forwards watermarks and statuses, and holds no state."""

    accepts: Accepts = Accepts.ROWS
    keeps_records: ClassVar[bool] = False
    """Whether it emits input records unchanged, so that their type need not be checked again."""
    calls_function: ClassVar[bool] = False
    """Whether it calls a function of the user with single records. In PyFlink such operators of a chain are one process."""
    records_at_once: ClassVar[int | None] = None
    """How many records of a batch of columns it processes at a time, if it makes Python objects of them. None: the whole batch."""
    batch_order: ClassVar[BatchOrder] = BatchOrder.AS_IT_COMES
    """The order in which a BATCH job reads its input. Keyed operators have another one."""
    is_in_record: bool = False
    reuses_objects: bool = False
    """Whether results are emitted as they are, not as copies. Source: `pipeline.object-reuse`; the driver sets it."""
    takes_input: bool = True
    """False: it gets no input until a timer or a mail makes it true again. Only the head of a chain is asked."""
    is_drained: bool = True
    """False: the input may have ended, but results are still outstanding. Only the head of a chain is asked."""
    poison: PoisonRecords | None = None
    """That of the context: takes the records at which a function of the user raises; None: such an error fails the job."""
    fired_timers: int = 0
    """How many timers have fired."""
    records_read: int = 0
    """Of a source: how many records its reader has read, if the reader counts them."""
    drops_late_records: ClassVar[bool] = False
    """Whether it may drop records because they are late, and counts them."""
    has_put_off: bool = False
    """Whether its timer will try something again. That timer fires after the end of the data too, and the task waits for it."""

    @property
    def state_keys(self) -> KeyType | None:
        """The type of the keys of its state, which snapshots and the job graph carry; None: it has no keyed state."""
        return None

    def in_batch(self) -> Operator:
        """The operator to use in runtime mode BATCH, where the input is complete: it emits only final results.
        Called on the driver.
        """
        return self

    @property
    def take(self) -> Take:
        """Appends results of a user function to a list, as they are at that moment."""
        return list.extend if self.reuses_objects else take

    def before_exchange(self) -> Combining | None:
        """In BATCH, the operators that combine the keyed input before it is shuffled; None: there are none. Called on the driver,
        on the operator that `in_batch` returned.
        """
        return None

    def open(self, context: OperatorContext) -> None:
        """Called once per attempt, before any element; the tail of the chain first. Operators that override it call this one, too."""
        self.poison = context.poison

    def own_metrics(self) -> Sequence[OwnMetric]:
        """The metrics that only this kind of operator has. Asked once it is open; they are read on another thread."""
        return ()

    def measured(self) -> Iterable[Measured]:
        """Metrics whose names are known only while it runs, as those of a split. Called on another thread."""
        return ()

    def rows_from(
        self, batch: ColumnBatch, type_info: TypeInformation | None, input_index: int
    ) -> RowBatch:
        """The rows of a column batch, which will be processed next. Called if it accepts rows. Raises: TypeError:
        they do not have the type.
        """
        return to_rows(batch, type_info)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        """Process one batch of a logical input."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        """Fire the timers that are due, then forward. For an operator with one input the watermark is combined already."""
        return (watermark,)

    def process_status(self, status: WatermarkStatus, input_index: int) -> Emitted:
        """A logical input has become IDLE or ACTIVE."""
        return (status,)

    def process_latency_marker(self, marker: LatencyMarker) -> Emitted:
        """Forward the marker after the records that came before it. Sinks do not forward it."""
        return (marker,)

    def on_processing_time(self, now_ms: int) -> Emitted:
        """The timer set with `context.timers.schedule` is due."""
        return ()

    def end_input(self, input_index: int) -> Emitted:
        """A logical input has no more records (drain)."""
        return ()

    def finish(self) -> Emitted:
        """All inputs have ended (drain): emit what is left. The head comes first."""
        return ()

    def close(self) -> None:
        """Always called once, also after a failure; the tail first."""

    def failing_record(self) -> str | None:
        """Repr of the record at which `process` raised, if the operator knows it."""
        return None

    @property
    def handles_poison(self) -> bool:
        """Whether it calls functions of the user and offers their errors to `put_aside`."""
        return False

    def end_record(self) -> None:
        """The current record gives no more results, because its function raised."""
        self.is_in_record = False

    def put_aside(self, error: BaseException, record: Any, timestamp: int | None = None) -> None:
        """Put aside a record at which a function of the user raised. Raises: the error, if the job is to fail."""
        is_taken = self.poison is not None and self.poison.takes(error)
        if self.poison is None or not isinstance(error, Exception) or not is_taken:
            note_record(error, record)
            raise error
        self.poison.add(error, record, timestamp)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Emitted:
        """Emit what must come before the barrier of this checkpoint. The head comes first."""
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Everything up to this checkpoint is safe: commit. The tail comes first."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not complete."""

    def snapshot(self) -> OperatorSnapshot:
        """The state to keep; empty: stateless. Copy tables, but not the objects in them: the chain freezes those at once."""
        return OperatorSnapshot()

    def add_in_hand(self, state: OperatorSnapshot, in_hand: Sequence[tuple[int, Element]]) -> None:
        """Add (input, element) of elements that were read and not yet processed, as the head of a chain."""
        if in_hand:
            state.lists[IN_HAND] = ListPart(RedistributionMode.SPLIT, list(in_hand))

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Called before `open` with the snapshots of any number of subtasks. Keyed parts hold only this subtask's key groups."""
