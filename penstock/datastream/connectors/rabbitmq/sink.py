"""RMQSink: writes a message to a queue or an exchange for each record, at least once. Needs pika (`penstock[rabbitmq]`).

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQSink, which guarantees nothing; differs: the broker has
confirmed all messages before a checkpoint's barrier goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.common.serialization import SerializationSchema
from penstock.datastream.connectors.base import Accepts, Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.rabbitmq.checks import (
    checked_config,
    checked_listener,
    checked_options,
    checked_queue,
    checked_schema,
)
from penstock.datastream.connectors.rabbitmq.client import (
    PikaClient,
    check_login,
    look_for_exchange,
)
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.datastream.connectors.rabbitmq.messages import Message, MessageMaker
from penstock.datastream.connectors.rabbitmq.publisher import MessagePublisher
from penstock.datastream.connectors.rabbitmq.publishing import (
    ReturnListener,
    RMQSinkPublishOptions,
)
from penstock.runtime.elements import Batch, RowBatch
from penstock.runtime.sink import SendFigures


class RMQSink(Sink):
    """Writes to a queue through the default exchange, or to exchanges.

    A missing queue is created, as a durable one; exchanges must be there.
    """

    accepts = Accepts.ROWS
    is_converting = True
    # Of sinks that an earlier release has pickled.
    _options: RMQSinkPublishOptions | None = None
    _listener: ReturnListener | None = None

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str | None,
        serialization_schema: SerializationSchema,
        *,
        publish_options: RMQSinkPublishOptions | None = None,
        return_listener: ReturnListener | None = None,
    ) -> None:
        """Check the arguments. Raises ConfigurationError or TypeError.

        Args:
            connection_config: the connection.
            queue_name: the queue; None with `publish_options`.
            serialization_schema: turns a value into a message's body.
            publish_options: exchange, routing key and properties for each record, instead of a queue. Not in PyFlink.
            return_listener: a function that gets each mandatory message that no queue takes, before the next
                checkpoint's barrier goes on; without it such a message is an error. Not in PyFlink.
        """
        self._config = checked_config("RMQSink", connection_config)
        self._queue = None
        self._options = checked_options(publish_options, queue_name)
        self._listener = checked_listener(return_listener, publish_options)
        if publish_options is None:
            self._queue = checked_queue("RMQSink", queue_name)
        self._schema = checked_schema("RMQSink", serialization_schema, SerializationSchema)

    def validate(self) -> None:
        """Check client, login and, if there is only one, the exchange.

        A broker that the driver does not reach is no error: only the subtasks must reach it.

        Raises ConfigurationError if pika is missing, or the broker refuses.
        """
        where = "RMQSink on the driver"
        exchange = None if self._options is None else self._options.fixed_exchange
        look = None if exchange is None else partial(look_for_exchange, exchange, where)
        check_login(self._config, where, look)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        where = f"RMQSink, subtask {context.subtask} of {context.parallelism}"
        publisher = MessagePublisher(
            PikaClient.of(self._config, where), self._config, self._queue, where, self._listener
        )
        maker = MessageMaker(self._schema, self._queue, self._options, self._config.frame_max)
        publisher.start()
        return _MessageWriter(publisher, maker)


class _MessageWriter:
    """Writer of one subtask."""

    def __init__(self, publisher: MessagePublisher, maker: MessageMaker) -> None:
        self._publisher = publisher
        self._maker = maker
        self.sent = SendFigures()

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self.write_converted(self.convert(batch), watermark_ms)

    def convert(self, batch: Batch) -> list[Message]:
        assert isinstance(batch, RowBatch), "an RMQSink accepts rows"
        return self._maker.messages(batch.values)

    def write_converted(self, converted: list[Message], watermark_ms: int) -> None:
        self._publisher.send(converted)
        self.sent.bytes += sum(len(one.body) for one in converted)

    def prepare_commit(self) -> Sequence[object]:
        """Called before a barrier, and at the end of the job."""
        self._publisher.flush()
        return ()

    def close(self) -> None:
        self._publisher.close()
