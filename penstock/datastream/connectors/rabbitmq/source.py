"""RMQSource: messages of a queue. Needs pika (`penstock[rabbitmq]`).

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQSource.
"""

from __future__ import annotations

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import (
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.datastream.connectors.rabbitmq.checks import (
    checked_config,
    checked_queue,
    checked_schema,
)
from penstock.datastream.connectors.rabbitmq.client import import_pika
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.datastream.connectors.rabbitmq.reader import RMQReader, RMQReaderSettings
from penstock.model.errors import ConfigurationError


class RMQSource(Source):
    """Reads a queue, which is made durable where there is none. Takes part with one subtask unless its parallelism is set.

    With checkpoints a message is acknowledged when the checkpoint behind it is complete: each is read at least once, and with
    correlation ids and one subtask exactly once. Without checkpoints it counts as acknowledged when it is sent: what is under way
    at a failure is lost.
    """

    default_parallelism = 1

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema,
    ) -> None:
        """`use_correlation_id`: each message has an id of its own in its property correlation_id, by which one that comes again
        is known; looked at with checkpoints only. Raises: ConfigurationError; TypeError.
        """
        if not isinstance(use_correlation_id, bool):
            raise ConfigurationError(
                f"RMQSource: use_correlation_id is True or False, got {use_correlation_id!r}."
            )
        self._settings = RMQReaderSettings(
            checked_config("RMQSource", connection_config),
            checked_queue("RMQSource", queue_name),
            use_correlation_id,
            checked_schema("RMQSource", deserialization_schema, DeserializationSchema),
        )

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._settings.schema.produced_type

    def validate(self) -> None:
        """Raises: ConfigurationError: pika is missing. The broker is asked by the subtasks, which alone must reach it."""
        import_pika("RMQSource on the driver")

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return QueueEnumerator(context, (), is_final=False)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return RMQReader(context, self._settings)
