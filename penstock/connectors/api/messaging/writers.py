"""Writers of sinks that send records to a broker: at once, or after their checkpoint.

Source: Flink KafkaWriter, ExactlyOnceKafkaWriter, PulsarWriter; differs: exactly-once records wait in the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock.connectors.api.messaging.staging import ProducedRecords, StagedRecords
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.sink import SendFigures


class DirectMessageWriter(ABC):
    """Sends as records come; all are delivered before a checkpoint's barrier goes on."""

    def __init__(self) -> None:
        self.sent = SendFigures()

    @abstractmethod
    def flush(self) -> None:
        """Waits until all sent records are delivered. Raises: ExternalError."""

    def prepare_commit(self) -> Sequence[object]:
        """Called at the end of the job."""
        self.flush()
        return ()

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        self.flush()
        return ()


class StagingMessageWriter(ABC):
    """Keeps records until their checkpoint; a committer writes them when it is complete."""

    def __init__(self, staged: StagedRecords) -> None:
        self._staged = staged
        self._number = 0
        self.sent = SendFigures()

    @abstractmethod
    def records(self, batch: Batch) -> ProducedRecords: ...

    @abstractmethod
    def committable(self, number: int, pieces: tuple[bytes, ...]) -> object:
        """What the committer gets. `number`: counts this writer's stagings, from 1."""

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.records(batch), watermark_ms)

    def convert(self, batch: Batch) -> ProducedRecords:
        """Raises: whatever a record is refused with, also that it is too large: then the policy for errors has it."""
        records = self.records(batch)
        self._staged.checked(records)
        return records

    def write_converted(self, converted: ProducedRecords, watermark_ms: int) -> None:
        self._staged.add(converted)
        self.sent.bytes = self._staged.bytes

    def prepare_commit(self) -> Sequence[object]:
        """At most one committable, so that its records are written together."""
        pieces = self._staged.take()
        if not pieces:
            return ()
        self._number += 1
        return (self.committable(self._number, pieces),)
