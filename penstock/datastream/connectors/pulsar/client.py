"""The client library pulsar-client (C++): makes clients from options, and looks up topics and places in them.

Optional: `pip install 'penstock[pulsar]'` on the driver and on every executor. Does not know sources or sinks.
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
"""How long a consumer waits to fill a batch. It is short, because a subtask's consumers wait one after the other."""

RETRY_S: Final = 0.01


class ConsumerIsBusy(ExternalError):
    """Another consumer has the subscription: of another job, or one that is about to close."""


def import_pulsar(where: str) -> Any:
    """The client's module. Raises: ConfigurationError naming what to install where."""
    return extra("pulsar", "pulsar", where)


def make_client(options: Options, where: str) -> Any:
    """Makes a client, which connects later.

    Raises: ConfigurationError: the client library is missing, or refuses an option.
    """
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
            f"{where}: the client refuses the service URL {options[SERVICE_URL]!r} or its options: "
            f"{error}. Expected a URL such as pulsar://host:6650, or pulsar+ssl://host:6651 with "
            "TLS."
        ) from error


@contextmanager
def pulsar_errors(pulsar: Any, what: str) -> Generator[None]:
    """Turns the client's error into an ExternalError, with the client's error as the cause."""
    try:
        yield
    except pulsar.TopicNotFound as error:
        raise UnknownTopic(
            f"{what}: there is no such topic. Check its name and this client's permission to see "
            "it, and create it before the job starts."
        ) from error
    except pulsar.ConsumerBusy as error:
        raise ConsumerIsBusy(
            f"{what}: the subscription is exclusive and has a consumer already. Check whether "
            "another job uses its name."
        ) from error
    except pulsar.Timeout as error:
        raise ExternalError(
            f"{what}: no answer in time. Check that a broker is there, and that it accepts this "
            "client's authentication."
        ) from error
    except pulsar.PulsarException as error:
        raise ExternalError(f"{what}: {text_of(error)}.") from error


def close_client(client: Any, pulsar: Any) -> None:
    """Closes a client with its consumers and producers. Requests under way are given up, and errors are ignored.

    It does not call the client's `shutdown`. That call waits ten seconds for threads that it keeps out of Python
    meanwhile.
    """
    with suppress(pulsar.PulsarException):
        client.close()


def text_of(error: object) -> str:
    return str(error).removeprefix("Pulsar error: ")


def open_consumer(
    client: Any, partition: TopicPartition, options: Options, where: str, *, at_end: bool = False
) -> Any:
    """Opens a consumer of the job's subscription. A missing one is made at the first message, or after the last one.

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
    """Looks up topics, partitions and places of a cluster, for the driver, on one thread.

    A request waits at most `pulsar.client.operationTimeoutMs` (30 s).
    """

    def __init__(self, options: Options, where: str) -> None:
        self._options = options
        self._where = where
        self._pulsar = import_pulsar(where)
        self._client = make_client(options, where)

    def topics(self, namespace: str) -> list[str]:
        """The full names of the topics that this client may see. Partitions of a topic count as one topic."""
        names = topics_of_namespace(self._options, namespace, self._where)
        return sorted({TopicPartition.of(name).topic for name in names})

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic. Raises: UnknownTopic; ExternalError."""
        what = f"{self._where}: cannot look up the topic {topic!r} at {self._options[SERVICE_URL]}"
        with pulsar_errors(self._pulsar, what):
            return sorted(map(TopicPartition.of, self._client.get_topic_partitions(topic)))

    def begin(self, partition: TopicPartition, start: Start, stop: Stop | None) -> PulsarSplit:
        """The split of a new partition. Makes the subscription too, so that no message is removed before it is read."""
        at_end = start.kind is StartKind.LATEST
        keeps_place = stop is None and (at_end or start.kind is StartKind.EARLIEST)
        consumer = self._consumer(partition, at_end=at_end)
        if keeps_place and not flag_of(self._options, RESET_SUBSCRIPTION, default=False):
            consumer.close()
            return PulsarSplit(partition, Start(StartKind.SUBSCRIPTION))
        what = f"{self._where}: cannot look up where to start and stop reading {partition}"
        with pulsar_errors(self._pulsar, what):
            try:
                return self._split(consumer, partition, start, stop)
            finally:
                consumer.close()

    def close(self) -> None:
        close_client(self._client, self._pulsar)

    def _consumer(self, partition: TopicPartition, *, at_end: bool) -> Any:
        """Opens a consumer. A reader of an earlier attempt may still hold the subscription for a moment."""
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
        """The publish time of the last message, in epoch ms."""
        assert last is not None, "the last message is known"
        consumer.seek(message_id(self._pulsar, last))
        while True:
            message = consumer.receive(int(operation_timeout_s(self._options) * 1000))
            if place_of(message.message_id()) >= last:
                return int(message.publish_timestamp())


def message_id(pulsar: Any, place: Place) -> Any:
    """The place as the client's message id."""
    ledger, entry, index = place
    return pulsar.MessageId(-1, ledger, entry, index)


def _ends_at_once(start: Start, stop: Stop | None) -> bool:
    """Whether nothing is to be read, as far as the places alone tell."""
    if stop is None or stop.kind is not StopKind.PLACE or start.place is None:
        return False
    assert isinstance(stop.goal, tuple), "the goal is a place"
    if start.kind is StartKind.BEHIND:
        return start.place >= stop.goal
    return start.place > stop.goal or (start.place == stop.goal and not stop.is_inclusive)
