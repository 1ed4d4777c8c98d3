"""The source contract, open to users. Source: Flink FLIP-27 Source, SplitEnumerator, SourceReader.

A Source makes one *enumerator*, which runs on the JobManager (in the driver) and hands out splits,
and one *reader* per subtask, which reads them on a TaskManager. Splits are any picklable objects.
Readers return whole batches. Does not know tasks or the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

from penstock.engine.model.metrics import Measured
from penstock.engine.runtime.elements import Batch


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"

    @staticmethod
    def of(*, is_bounded: bool) -> Boundedness:
        """Return whether a source ends."""
        return Boundedness.BOUNDED if is_bounded else Boundedness.CONTINUOUS_UNBOUNDED


class EnumeratorContext(Protocol):
    """Gives an enumerator its actions. All calls come from the coordinator's single thread."""

    def parallelism(self) -> int:
        """Return the number of readers."""

    def registered_readers(self) -> Sequence[int]:
        """Return the subtasks whose readers are registered."""

    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None:
        """Send splits to the reader of a subtask."""

    def signal_no_more_splits(self, subtask: int) -> None:
        """Notify the reader of a subtask that it gets no further splits."""

    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        """Run `call` on the coordinator's thread every `period_ms` until the job ends."""


class SplitEnumerator(ABC):
    """Finds splits and assigns them. It runs on the JobManager, and may do blocking I/O."""

    def start(self) -> None:
        """Prepare; called once, before any reader registers."""

    @abstractmethod
    def handle_split_request(self, subtask: int, host: str) -> None:
        """Answer a reader without work: assign splits, say there are no more, or remember it."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        """Take back splits of a subtask that starts again; assign them anew, from their start."""

    def add_reader(self, subtask: int) -> None:
        """Note that a reader has registered."""

    def handle_source_event(self, subtask: int, event: object) -> None:
        """Handle what a reader sent with `send_source_event`; never called in a BATCH job."""

    def snapshot_state(self) -> Any:
        """Return plain data for `restore_state`; None: there is no state."""
        return None

    def restore_state(self, state: Any) -> None:
        """Take what `snapshot_state` returned, before `start`; it lacks the readers' splits."""
        raise NotImplementedError(
            f"{type(self).__name__} has state in checkpoints (snapshot_state), but cannot restore it. Define its "
            "restore_state, or restore_enumerator of its source."
        )

    def unassigned_splits(self) -> int | None:
        """Return how many splits wait for a reader, for metrics; None: unknown. Called on any thread."""
        return None

    def close(self) -> None:
        """Release connections; called once, at the end of the job."""


class ReaderStatus(Enum):
    """What `poll_next` returns if it has no batch."""

    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_INPUT = "END_OF_INPUT"


@dataclass(slots=True)
class SplitBatch:
    """A batch of one split, so that watermarks can be kept per split.

    `split_id` is any hashable. `after` is the split as it is after this batch, for readers on a
    `SourceReaderBase`; None: its `advanced` returns that.
    """

    batch: Batch
    split_id: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of one `fetch`: batches in order, then the ids of splits that have no more records."""

    batches: Sequence[SplitBatch] = ()
    finished: Sequence[Any] = ()


class SplitReader(ABC):
    """Reads splits on a fetcher's thread, where it may block. It is made on the task's thread.

    `bytes_read`: as in `SourceReader`.
    """

    bytes_read: int = 0

    @abstractmethod
    def fetch(self) -> Fetched:
        """Wait for records of the current splits; after `wake_up` it may return without any."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """Add splits to read."""

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """Pause and resume splits, as `SourceReader.pause_or_resume_splits` does."""
        raise NotImplementedError(f"{type(self).__name__} cannot pause single splits")

    def measured(self) -> Iterable[Measured]:
        """As `SourceReader.measured`."""
        return ()

    def wake_up(self) -> None:
        """Make a waiting `fetch` return soon. May be called from any thread."""

    def close(self) -> None:
        """Release connections; called once, on the fetcher's thread."""


class SplitFetcher(Protocol):
    """A thread with a SplitReader, as its SourceReader sees it. The thread reads at most two results ahead."""

    def add_splits(self, splits: Sequence[Any]) -> None: ...
    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None: ...
    def run(self, order: Callable[[], None]) -> None:
        """Run a call on the thread, between two fetches. A call ordered right before `close` may not run."""

    def poll(self) -> Fetched | None:
        """Return the next result, or None for now. Raises what the SplitReader raised."""

    def close(self) -> None: ...


class ReaderContext(Protocol):
    """What a reader knows of its subtask, and the actions that it may take."""

    def subtask(self) -> int:
        """Return the index of the subtask."""

    def parallelism(self) -> int:
        """Return the number of readers."""

    def now_ms(self) -> int:
        """Return the time in epoch ms."""

    def monotonic_ms(self) -> int:
        """Return the time of a clock that never goes back, in ms."""

    def takes_checkpoints(self) -> bool:
        """Return whether the job takes checkpoints and calls `notify_checkpoint_complete`."""

    def send_split_request(self) -> None:
        """Ask the enumerator for a split."""

    def send_source_event(self, event: object) -> None:
        """Send plain data to the enumerator's `handle_source_event`, in order with split requests.

        A BATCH job has no enumerator at run time: all splits are assigned before the readers start.
        """

    def wake_at(self, monotonic_ms: int) -> None:
        """Have `poll_next` called at this time (`monotonic_ms`), for example for a rate limit."""

    def wake(self) -> None:
        """Have `poll_next` called soon. May be called from any thread."""

    def start_fetcher(self, split_reader: SplitReader) -> SplitFetcher:
        """Run a blocking reader on a thread of its own, which ends with `SplitFetcher.close`."""


@dataclass(frozen=True, slots=True)
class SplitFinished:
    """Says that a split has no more records; its watermark no longer holds the others back."""

    split_id: Any


Polled: TypeAlias = SplitBatch | SplitFinished | ReaderStatus


class SourceReader(ABC):
    """Reads its splits on one subtask. `poll_next` must not block for more than a few ms.

    `records_read`: how many records `poll_next` has returned, for the metric numRecordsIn; `bytes_read`: how many bytes it got from
    outside, for numBytesIn. 0: it does not count.
    `fetched_at_ms`: when the connector got the records that `poll_next` returned last, in epoch ms; None: unknown.
    """

    records_read: int = 0
    bytes_read: int = 0
    fetched_at_ms: int | None = None

    def read_fields(self, names: Sequence[str]) -> None:
        """Note that the program reads only these fields of the Rows, as Python values, not as columns.

        Called at most once, before `start`. By default nothing changes.
        """

    def start(self) -> None:
        """Prepare; called once. Most readers ask for their first split here."""

    @abstractmethod
    def poll_next(self) -> Polled:
        """Return the next batch, at most about 4,096 rows or 1 MiB, or a ReaderStatus.

        END_OF_INPUT may come only after `notify_no_more_splits`, when all splits are read.
        """

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """Add splits to this reader, in the order in which to read them."""

    @abstractmethod
    def notify_no_more_splits(self) -> None:
        """Note that no further splits are added."""

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        """Return the ids of added splits that are read side by side.

        Until its first record, each of them holds the watermark back. By default there are none: a
        reader that takes one split after the other has the watermark of the current one.
        """
        return ()

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """Return no records of paused splits, which run ahead of their alignment group.

        Called for readers that read several splits at once.

        Raises:
            NotImplementedError: the reader cannot pause a split.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot pause single splits, but its source takes part in watermark alignment "
            f"and has several splits at once (to pause: {list(to_pause)}). Define pause_or_resume_splits, or "
            "allow it with pipeline.watermark-alignment.allow-unaligned-source-splits: true."
        )

    def measured(self) -> Iterable[Measured]:
        """Return the connector's own metrics, such as pendingRecords. Called on another thread."""
        return ()

    def before_checkpoint(self, checkpoint_id: int) -> None:
        """Note that the next `snapshot_state` is for this checkpoint."""

    def snapshot_state(self) -> Sequence[Any]:
        """Return the splits still to be read, each with its position."""
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Note that what was in this checkpoint, and in earlier ones, is never read again.

        Some checkpoints are passed over. The call must not block.
        """

    def close(self) -> None:
        """Release connections; called once in any case. It must not block for long."""


class Source(ABC):
    """Describes where records come from.

    It is made in the driver, and pickled to the TaskManagers.
    """

    gives_rows: ClassVar[bool] = False
    """Whether its records are Python objects, never columns."""
    default_parallelism: int | None = None
    """The parallelism for programs that set none for this source; None: that of the environment."""
    reads_all_fields: bool = False
    """Whether its readers parse fields that no function reads, too: `penstock.task.parse-unread-fields`. The driver sets it."""

    @property
    def parses_fields(self) -> bool:
        """Whether its readers parse only the fields that functions read, where they can: `SourceReader.read_fields`."""
        return False

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether the source ends by itself."""

    @abstractmethod
    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        """Return the enumerator, which runs on the JobManager."""

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader:
        """Return the reader of one subtask."""

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> SplitEnumerator:
        """Return an enumerator that resumes from `SplitEnumerator.snapshot_state`, if any."""
        enumerator = self.create_enumerator(context)
        if state is not None:
            enumerator.restore_state(state)
        return enumerator

    def in_batch(self) -> Source:
        """Return the source to use in a BATCH job."""
        return self

    def validate(self) -> None:
        """Check at submission what can be checked, such as files. Raises ConfigurationError."""

    @property
    def produced_type(self) -> Any:
        """The TypeInformation of the records; None: pickled."""
        return None
