"""RMQSource: reads the messages of a queue. Needs pika (`penstock[rabbitmq]`).

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQSource.
"""

from __future__ import annotations

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    QueueEnumerator,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.connectors.rabbitmq.checks import checked_config, checked_queue, checked_schema
from penstock.connectors.rabbitmq.client import check_login
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.reader import RMQReader, RMQReaderSettings
from penstock.engine.model.errors import ConfigurationError


class RMQSource(Source):
    """Reads a queue. A missing queue is created, as a durable one. The default parallelism is 1.

    With checkpoints, messages are acknowledged when the next checkpoint is complete. Each is then
    read at least once; with correlation ids and one subtask, exactly once. Without checkpoints,
    messages are acknowledged as they are sent, so a failure loses those under way.
    """

    default_parallelism = 1

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema,
    ) -> None:
        """Check the arguments. Raises ConfigurationError or TypeError.

        Args:
            connection_config: the connection.
            queue_name: the queue.
            use_correlation_id: each message has a unique correlation_id, by which a message that
                comes again is recognised; with checkpoints only.
            deserialization_schema: turns a message's body into a value.
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

    @property
    def parses_fields(self) -> bool:
        schema = self._settings.schema
        return schema.reading(()) is not schema

    def validate(self) -> None:
        """Check client and login. Raises ConfigurationError if pika is missing, or the broker refuses.

        A broker that the driver does not reach is no error: only the subtasks must reach it.
        """
        check_login(self._settings.config, "RMQSource on the driver")

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return QueueEnumerator(context, (), is_final=False)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return RMQReader(context, self._settings)
