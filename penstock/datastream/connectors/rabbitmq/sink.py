"""RMQSink: writes a message to a queue for each record, at least once. Needs pika (`penstock[rabbitmq]`).

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQSink, which guarantees nothing; differs: the broker has
confirmed all messages before a checkpoint's barrier goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.common.serialization import SerializationSchema
from penstock.datastream.connectors.base import Accepts, Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.rabbitmq.checks import (
    checked_config,
    checked_queue,
    checked_schema,
)
from penstock.datastream.connectors.rabbitmq.client import PikaClient, check_login
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.datastream.connectors.rabbitmq.publisher import QueuePublisher
from penstock.runtime.elements import Batch, RowBatch
from penstock.runtime.sink import SendFigures


class RMQSink(Sink):
    """Writes to a queue through the default exchange.

    A missing queue is created, as a durable one.
    """

    accepts = Accepts.ROWS
    is_converting = True

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        serialization_schema: SerializationSchema,
    ) -> None:
        """Check the arguments. Raises ConfigurationError or TypeError.

        Args:
            connection_config: the connection.
            queue_name: the queue.
            serialization_schema: turns a value into a message's body.
        """
        self._config = checked_config("RMQSink", connection_config)
        self._queue = checked_queue("RMQSink", queue_name)
        self._schema = checked_schema("RMQSink", serialization_schema, SerializationSchema)

    def validate(self) -> None:
        """Check client and login. Raises ConfigurationError if pika is missing, or the broker refuses.

        A broker that the driver does not reach is no error: only the subtasks must reach it.
        """
        check_login(self._config, "RMQSink on the driver")

    def create_writer(self, context: WriterContext) -> SinkWriter:
        where = f"RMQSink, subtask {context.subtask} of {context.parallelism}"
        publisher = QueuePublisher(
            PikaClient.of(self._config, where), self._config, self._queue, where
        )
        publisher.start()
        return _QueueWriter(publisher, self._schema)


class _QueueWriter:
    """Writer of one subtask."""

    def __init__(self, publisher: QueuePublisher, schema: SerializationSchema) -> None:
        self._publisher = publisher
        self._schema = schema
        self.sent = SendFigures()

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    def convert(self, batch: Batch) -> list[bytes]:
        assert isinstance(batch, RowBatch), "an RMQSink accepts rows"
        bodies = list(map(self._schema.serialize, batch.values))
        for body, value in zip(bodies, batch.values, strict=True):
            if not isinstance(body, bytes):
                raise TypeError(
                    f"RMQSink: {type(self._schema).__name__} gave {type(body).__name__} for {value!r:.200}; expected bytes"
                )
        return bodies

    def write_converted(self, converted: list[bytes], watermark_ms: int) -> None:
        self._publisher.send(converted)
        self.sent.bytes += sum(map(len, converted))

    def prepare_commit(self) -> Sequence[object]:
        """Called before a barrier, and at the end of the job."""
        self._publisher.flush()
        return ()

    def close(self) -> None:
        self._publisher.close()
