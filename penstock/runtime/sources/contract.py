"""The source contract, open to users. Source: Flink FLIP-27 Source, SplitEnumerator, SourceReader.

A Source makes one *enumerator*, which runs on the JobManager (in the driver) and hands out splits,
and one *reader* per subtask, which reads them on a TaskManager. Splits are any picklable objects.
Readers return whole batches. Knows no task and no wire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from penstock.runtime.elements import Batch


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class EnumeratorContext(Protocol):
    """What an enumerator may do. All calls are made on the coordinator's single thread."""

    def parallelism(self) -> int: ...
    def registered_readers(self) -> Sequence[int]: ...
    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None: ...
    def signal_no_more_splits(self, subtask: int) -> None: ...
    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        """Run `call` on the coordinator's thread every `period_ms` until the job ends."""


class SplitEnumerator(ABC):
    """Finds splits and hands them out. Runs on the JobManager; may do blocking I/O."""

    def start(self) -> None:
        """Once, before any reader registers."""

    @abstractmethod
    def handle_split_request(self, subtask: int, host: str) -> None:
        """A reader is out of work: assign, signal that there is no more, or remember the request."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        """These were assigned to a subtask that starts again: hand them out anew, from their start."""

    def add_reader(self, subtask: int) -> None:
        """A reader registered."""

    def handle_source_event(self, subtask: int, event: object) -> None:
        """What a reader has sent by `send_source_event`; never in a BATCH job."""

    def snapshot_state(self) -> Any:
        """Plain data from which `restore_state` goes on; None: there is nothing to know."""
        return None

    def restore_state(self, state: Any) -> None:
        """What `snapshot_state` gave, before `start`. Splits that readers have are not in it: they bring them along."""
        raise NotImplementedError(
            f"{type(self).__name__} has state in checkpoints (snapshot_state), but cannot go on from it. Define its "
            "restore_state, or restore_enumerator of its source."
        )

    def close(self) -> None:
        """Once, at the job's end."""


class ReaderStatus(Enum):
    """What `poll_next` says besides a batch."""

    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_INPUT = "END_OF_INPUT"


@dataclass(slots=True)
class SplitBatch:
    """A batch of one split, so that watermarks can be kept per split. `split_id`: any hashable. `behind`: the split as it is
    when this was read, for readers on a `SourceReaderBase`; None: its `advanced` tells.
    """

    batch: Batch
    split_id: Any = None
    behind: Any = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one `fetch` brought: batches in order, then the ids of splits that have no more records."""

    batches: Sequence[SplitBatch] = ()
    finished: Sequence[Any] = ()


class SplitReader(ABC):
    """Reads splits on a fetcher's thread, where it may block. Made on the task's thread."""

    @abstractmethod
    def fetch(self) -> Fetched:
        """Wait for records of the splits at hand; may come back with nothing after `wake_up`."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """Splits to read besides those at hand."""

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """As `SourceReader.pause_or_resume_splits`."""
        raise NotImplementedError(f"{type(self).__name__} cannot pause single splits")

    def wake_up(self) -> None:
        """Make a `fetch` that waits come back soon. Any thread."""

    def close(self) -> None:
        """Once, on the fetcher's thread."""


class SplitFetcher(Protocol):
    """A thread with a SplitReader, as its SourceReader sees it. Hands over at most two results ahead."""

    def add_splits(self, splits: Sequence[Any]) -> None: ...
    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None: ...
    def run(self, order: Callable[[], None]) -> None:
        """On the thread, between two fetches. What is ordered right before `close` may not be run."""

    def poll(self) -> Fetched | None:
        """The next result, or None for now. Raises what the SplitReader raised."""

    def close(self) -> None: ...


class ReaderContext(Protocol):
    """What a reader may do."""

    def subtask(self) -> int: ...
    def parallelism(self) -> int: ...
    def now_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def takes_checkpoints(self) -> bool:
        """Whether the job takes checkpoints from time to time: `notify_checkpoint_complete` can be counted on."""

    def send_split_request(self) -> None: ...
    def send_source_event(self, event: object) -> None:
        """To the enumerator's `handle_source_event`, in one order with split requests. `event`: plain data (tuples, numbers,
        texts). In a BATCH job nobody listens: all splits are shared out before the readers start.
        """

    def wake_at(self, monotonic_ms: int) -> None:
        """Poll again at this time at the latest (rate limits)."""

    def wake(self) -> None:
        """Poll again soon; may be called from any thread (a reader's own I/O thread)."""

    def start_fetcher(self, split_reader: SplitReader) -> SplitFetcher:
        """Run a blocking reader on a thread of its own, which ends with `SplitFetcher.close`."""


@dataclass(frozen=True, slots=True)
class SplitFinished:
    """The split has no more records: its watermark no longer holds the others back."""

    split_id: Any


Polled: TypeAlias = SplitBatch | SplitFinished | ReaderStatus


class SourceReader(ABC):
    """Reads its splits on one subtask. `poll_next` must not block for more than a few milliseconds."""

    def start(self) -> None:
        """Once; the usual reader asks for its first split here."""

    @abstractmethod
    def poll_next(self) -> Polled:
        """The next batch, at most about 4,096 rows or 1 MiB; NOTHING_AVAILABLE; or END_OF_INPUT, which may
        come only after `notify_no_more_splits` and when all splits are read."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """Splits for this reader, in the order in which to read them."""

    @abstractmethod
    def notify_no_more_splits(self) -> None:
        """Nothing more will be added."""

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        """Ids of added splits that are read side by side: until its first record each holds the watermark back.

        By default none: a reader that takes one split after the other has its watermark from the one in hand.
        """
        return ()

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """Split ids that run ahead of their alignment group: give none of their records until they are resumed.

        Called for readers that have several splits under way. Raises: NotImplementedError if it cannot.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot pause single splits, but its source takes part in watermark alignment "
            f"and has several splits at once (to pause: {list(to_pause)}). Define pause_or_resume_splits, or "
            "allow it with pipeline.watermark-alignment.allow-unaligned-source-splits: true."
        )

    def before_checkpoint(self, checkpoint_id: int) -> None:
        """The next `snapshot_state` is for this checkpoint."""

    def snapshot_state(self) -> Sequence[Any]:
        """The splits still to be read, each with its position."""
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """What was snapshot for it, and for those before it, is never read again. Some are passed over; must not wait."""

    def close(self) -> None:
        """Always called once; must not wait long."""


class Source(ABC):
    """A source of records: picklable, made in the driver, sent to the TaskManagers."""

    default_parallelism: int | None = None
    """Of a program that sets none for it; None: the environment's."""

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness: ...

    @abstractmethod
    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator: ...

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader: ...

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> SplitEnumerator:
        """A new enumerator that goes on from `SplitEnumerator.snapshot_state`; without state it starts anew."""
        enumerator = self.create_enumerator(context)
        if state is not None:
            enumerator.restore_state(state)
        return enumerator

    def in_batch(self) -> Source:
        """What reads the same in a BATCH job."""
        return self

    def validate(self) -> None:
        """Called at submit: raise `ConfigurationError` for what can be known (a missing file, say)."""

    @property
    def produced_type(self) -> Any:
        """TypeInformation of the records, or None when pickled."""
        return None
