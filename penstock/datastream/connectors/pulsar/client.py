"""Pulsar's client, pulsar-client (C++), as one process sees it: made from options, asked about topics and places in them.

Optional: `pip install 'penstock[pulsar]'` on the driver and on every executor. Knows no source and no sink.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final

from penstock.common.extras import extra
from penstock.datastream.connectors.messaging.properties import flag_of, int_of
from penstock.datastream.connectors.messaging.topics import UnknownTopic
from penstock.datastream.connectors.pulsar.authentication import authentication_of
from penstock.datastream.connectors.pulsar.namespace import topics_of_namespace
from penstock.datastream.connectors.pulsar.options import (
    CLIENT,
    CONSUMER,
    CONSUMER_NAME,
    PROPERTIES,
    RECEIVER_QUEUE,
    RECEIVER_QUEUE_DEFAULT,
    RESET_SUBSCRIPTION,
    SERVICE_URL,
    SUBSCRIPTION,
    Options,
    arguments_of,
    operation_timeout_s,
    properties_of,
)
from penstock.datastream.connectors.pulsar.splits import (
    Place,
    PulsarSplit,
    Start,
    StartKind,
    Stop,
    StopKind,
    TopicPartition,
)
from penstock.model.errors import ConfigurationError, ExternalError

MAX_BATCH_BYTES: Final = 1 << 20
WAIT_MS: Final = 1
"""How long a consumer gathers messages for a batch that is not full: all of a subtask wait one after the other."""

RETRY_S: Final = 0.01


class ConsumerIsBusy(ExternalError):
    """Another consumer has the subscription: one that is about to close, or of another job."""


def import_pulsar(where: str) -> Any:
    """The module. Raises: ConfigurationError naming what to install where."""
    return extra("pulsar", "pulsar", where)


def make_client(options: Options, where: str) -> Any:
    """A client, which connects later. Raises: ConfigurationError: no client library, or an option that it does not take."""
    pulsar = import_pulsar(where)
    try:
        return pulsar.Client(
            options[SERVICE_URL],
            authentication=authentication_of(options, pulsar, where),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            **arguments_of(options, CLIENT),
        )
    except (pulsar.PulsarException, ValueError, RuntimeError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"{where}: the client refuses the service URL {options[SERVICE_URL]!r} or its options: {error}. A URL is "
            "pulsar://host:6650, or pulsar+ssl://host:6651 with TLS."
        ) from error


@contextmanager
def pulsar_errors(pulsar: Any, what: str) -> Generator[None]:
    """The client's error as ours: ExternalError, with its own as the cause."""
    try:
        yield
    except pulsar.TopicNotFound as error:
        raise UnknownTopic(
            f"{what}: there is no such topic. Is its name right, and may this client see it? Create it before the job starts."
        ) from error
    except pulsar.ConsumerBusy as error:
        raise ConsumerIsBusy(
            f"{what}: the subscription has a consumer already; it is exclusive. Does another job use its name?"
        ) from error
    except pulsar.Timeout as error:
        raise ExternalError(
            f"{what}: no answer in time. Is a broker there, and does it accept this client's authentication?"
        ) from error
    except pulsar.PulsarException as error:
        raise ExternalError(f"{what}: {text_of(error)}.") from error


def close_client(client: Any, pulsar: Any) -> None:
    """With its consumers and producers; what is under way is given up. Raises nothing: there is nothing left to lose.

    Its `shutdown` waits for threads of its own while it keeps them out of Python, which takes ten seconds.
    """
    with suppress(pulsar.PulsarException):
        client.close()


def text_of(error: object) -> str:
    return str(error).removeprefix("Pulsar error: ")


def open_consumer(
    client: Any, partition: TopicPartition, options: Options, where: str, *, at_end: bool = False
) -> Any:
    """On the job's subscription, which is made if there is none: at the first message, or behind the last one.

    Raises: UnknownTopic; ConsumerIsBusy; ExternalError.
    """
    pulsar = import_pulsar(where)
    position = pulsar.InitialPosition
    queue = int_of(options, RECEIVER_QUEUE, RECEIVER_QUEUE_DEFAULT)
    policy = pulsar.ConsumerBatchReceivePolicy(max(1, queue // 2), MAX_BATCH_BYTES, WAIT_MS)
    with pulsar_errors(pulsar, f"{where}: cannot subscribe to {partition}"):
        return client.subscribe(
            str(partition),
            options[SUBSCRIPTION],
            consumer_type=pulsar.ConsumerType.Exclusive,
            consumer_name=options.get(CONSUMER_NAME),
            initial_position=position.Latest if at_end else position.Earliest,
            start_message_id_inclusive=True,
            batch_receive_policy=policy,
            properties=properties_of(options, PROPERTIES[1]) or None,
            **arguments_of(options, CONSUMER),
        )


def place_of(message_id: Any) -> Place:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


class PulsarCluster:
    """Topics, partitions and places of a cluster, for the driver. One thread; a request waits at most
    `pulsar.client.operationTimeoutMs` (30 s).
    """

    def __init__(self, options: Options, where: str) -> None:
        self._options = options
        self._where = where
        self._pulsar = import_pulsar(where)
        self._client = make_client(options, where)

    def topics(self, namespace: str) -> list[str]:
        """Whole names of those that this client may see, partitions of one taken together."""
        names = topics_of_namespace(self._options, namespace, self._where)
        return sorted({TopicPartition.of(name).topic for name in names})

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Raises: UnknownTopic; ExternalError."""
        what = f"{self._where}: cannot look up the topic {topic!r} at {self._options[SERVICE_URL]}"
        with pulsar_errors(self._pulsar, what):
            return sorted(map(TopicPartition.of, self._client.get_topic_partitions(topic)))

    def begin(self, partition: TopicPartition, start: Start, stop: Stop | None) -> PulsarSplit:
        """The split of a partition that is new, with its subscription made, so that nothing of it is removed unread."""
        at_end = start.kind is StartKind.LATEST
        keeps_place = stop is None and (at_end or start.kind is StartKind.EARLIEST)
        consumer = self._consumer(partition, at_end=at_end)
        if keeps_place and not flag_of(self._options, RESET_SUBSCRIPTION, default=False):
            consumer.close()
            return PulsarSplit(partition, Start(StartKind.SUBSCRIPTION))
        what = f"{self._where}: cannot find the places to read {partition} from and to"
        with pulsar_errors(self._pulsar, what):
            try:
                return self._split(consumer, partition, start, stop)
            finally:
                consumer.close()

    def close(self) -> None:
        close_client(self._client, self._pulsar)

    def _consumer(self, partition: TopicPartition, *, at_end: bool) -> Any:
        """A reader of a former attempt may hold the subscription for a moment yet."""
        deadline = monotonic() + operation_timeout_s(self._options)
        while True:
            try:
                return open_consumer(
                    self._client, partition, self._options, self._where, at_end=at_end
                )
            except ConsumerIsBusy:
                if monotonic() > deadline:
                    raise
                sleep(RETRY_S)

    def _split(
        self, consumer: Any, partition: TopicPartition, start: Start, stop: Stop | None
    ) -> PulsarSplit:
        needs_last = start.kind is StartKind.LATEST or (stop and stop.kind is StopKind.LATEST)
        last = place_of(consumer.get_last_message_id()) if needs_last else None
        is_empty = last is not None and last[1] < 0
        if start.kind is StartKind.LATEST:
            start = Start(StartKind.EARLIEST) if is_empty else Start(StartKind.BEHIND, last)
        if stop is None or stop.kind is not StopKind.LATEST:
            return PulsarSplit(partition, start, stop, is_over=_ends_at_once(start, stop))
        stop = Stop(StopKind.PLACE, last, stop.is_inclusive)
        is_over = is_empty or _ends_at_once(start, stop)
        if not is_over and start.kind is StartKind.PUBLISH_TIME:
            is_over = self._last_published(consumer, last) < start.timestamp_ms
        return PulsarSplit(partition, start, stop, is_over)

    def _last_published(self, consumer: Any, last: Place | None) -> int:
        """When the last message was. Epoch ms."""
        assert last is not None, "the last message is known"
        consumer.seek(message_id(self._pulsar, last))
        while True:
            message = consumer.receive(int(operation_timeout_s(self._options) * 1000))
            if place_of(message.message_id()) >= last:
                return int(message.publish_timestamp())


def message_id(pulsar: Any, place: Place) -> Any:
    """As the client takes it."""
    ledger, entry, index = place
    return pulsar.MessageId(-1, ledger, entry, index)


def _ends_at_once(start: Start, stop: Stop | None) -> bool:
    """By the places alone."""
    if stop is None or stop.kind is not StopKind.PLACE or start.place is None:
        return False
    assert isinstance(stop.goal, tuple), "a place is the goal"
    if start.kind is StartKind.BEHIND:
        return start.place >= stop.goal
    return start.place > stop.goal or (start.place == stop.goal and not stop.is_inclusive)
