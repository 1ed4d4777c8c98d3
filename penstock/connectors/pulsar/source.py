"""PulsarSource: reads messages of topics between places, each exactly once. Needs pulsar-client (`penstock[pulsar]`).

Reading positions are kept in checkpoints. Messages are also acknowledged: the broker may then remove them, and others
see how far the job has read. Source: pyflink.datastream.connectors.pulsar, Flink's PulsarSource.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.base import (
    CommittingSplitReader,
    Fetched,
    ReaderContext,
    SourceReader,
    SplitBatch,
)
from penstock.connectors.api.builder import (
    MISSING,
    MessageSourceBuilder,
    checked_topic_pattern,
    checked_topics,
)
from penstock.connectors.api.messaging.properties import flag_of, int_of
from penstock.connectors.api.messaging.records import NO_RECORDS, stamps_of
from penstock.connectors.api.messaging.records import batch_of as batch_of_values
from penstock.connectors.api.messaging.source import (
    MessageReader,
    MessageSource,
    PartitionEnumerator,
    Subscription,
    owner_of,
    partitions_seen,
)
from penstock.connectors.pulsar.client import (
    ConsumerIsBusy,
    PulsarCluster,
    close_client,
    import_pulsar,
    make_client,
    message_id,
    open_consumer,
    place_of,
    pulsar_errors,
    text_of,
)
from penstock.connectors.pulsar.cursors import (
    Place,
    PulsarSplit,
    RangeGenerator,
    Start,
    StartCursor,
    StartKind,
    Stop,
    StopCursor,
    StopKind,
    TopicPartition,
)
from penstock.connectors.pulsar.options import (
    AUTO_ACKNOWLEDGE,
    AUTO_ACKNOWLEDGE_DEFAULT_MS,
    AUTO_ACKNOWLEDGE_MS,
    CLIENT,
    CONSUMER,
    CONSUMER_NAME,
    DISCOVERY_INTERVAL_DEFAULT_MS,
    DISCOVERY_INTERVAL_MS,
    FAILS,
    SERVICE_URL,
    SUBSCRIPTION,
    VERIFY_START,
    WARNS,
    Options,
    PulsarBuilder,
    arguments_of,
    operation_timeout_s,
    parameters_of,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import Batch

# ---------------------------------------------------------------------- records
# Turns Pulsar's messages into batches of records: selects the messages to read, with their values
# and event times.
#
# Does not know any client: a message is an object with data(), event_timestamp(),
# publish_timestamp(), partition_key(), ordering_key(), message_id().


def not_yet_read(messages: Sequence[Any], start: Start) -> Sequence[Any]:
    """The messages that were not read yet.

    A consumer that reconnects gets whole batches again from the last acknowledged message on.
    """
    if start.place is None or not messages:
        return messages
    place, is_after = start.place, start.kind is StartKind.AFTER
    first = place_of(messages[0].message_id())
    if first > place or (first == place and not is_after):
        return messages
    places = [place_of(message.message_id()) for message in messages]
    return [
        message
        for message, at in zip(messages, places, strict=True)
        if at > place or (at == place and not is_after)
    ]


def up_to(messages: Sequence[Any], stop: Stop | None) -> tuple[Sequence[Any], bool]:
    """The messages before the stop, and whether it is reached. Source: Flink StopCursor.StopCondition.compare."""
    if stop is None or not messages:
        return messages, False
    goal: Any = stop.goal
    if stop.kind is StopKind.PLACE and place_of(messages[-1].message_id()) < goal:
        return messages, False
    for count, message in enumerate(messages):
        match stop.kind:
            case StopKind.EVENT_TIME:
                at = message.event_timestamp()
            case StopKind.PUBLISH_TIME:
                at = message.publish_timestamp()
            case _:
                at = place_of(message.message_id())
        if at >= goal:
            return messages[: count + (at == goal and stop.is_inclusive)], True
    return messages, False


def with_keys(messages: Sequence[Any], keys: RangeGenerator) -> Sequence[Any]:
    if keys.keys is None:
        return messages
    return [one for one in messages if keys.wants(one.partition_key(), one.ordering_key())]


def batch_of(
    messages: Sequence[Any], schema: DeserializationSchema, partition: TopicPartition
) -> Batch | None:
    """The batch of these messages, in order, with event times; None: no message gives a record.

    A message without event time has no timestamp.
    Raises: ValueError: the schema refuses a message; the text names topic, partition and message id.
    """
    if not messages:
        return None

    def place(number: int) -> str:
        ledger, entry, index = place_of(messages[number].message_id())
        batch = f", {index} of its batch" if index >= 0 else ""
        return f"Pulsar message {ledger}:{entry}{batch}, of {partition},"

    stamps = np.fromiter((one.event_timestamp() for one in messages), np.int64, len(messages))
    values = [message.data() for message in messages]
    return batch_of_values(values, stamps_of(stamps, 1), schema, place)


# ---------------------------------------------------------------------- reader


WAIT_S: Final = 0.1
PAUSE_S: Final = 0.005
"""The pause after a turn in which no partition had messages."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PulsarSourceSettings:
    """The settings that the builder collected."""

    options: Options = field(default_factory=dict)
    subscription: Subscription = MISSING
    start: StartCursor = field(default_factory=StartCursor.default_start_cursor)
    stop: StopCursor = field(default_factory=StopCursor.default_stop_cursor)
    is_bounded: bool = False
    schema: DeserializationSchema = MISSING
    keys: RangeGenerator = field(default_factory=RangeGenerator.full)

    @property
    def discovery_interval_ms(self) -> int:
        return int_of(self.options, DISCOVERY_INTERVAL_MS, DISCOVERY_INTERVAL_DEFAULT_MS)

    @property
    def acknowledges_by_itself(self) -> bool:
        return flag_of(self.options, AUTO_ACKNOWLEDGE, default=False)


@dataclass(slots=True)
class ReadBatch(SplitBatch):
    """A batch of a split. `last_id`: the client's id of its last message.

    It is the client's object, because only that knows how much of the message's batch is acknowledged.
    """

    last_id: Any = None


@dataclass(slots=True)
class _Open:
    """A split with its consumer. `expected`: the first message that should come.

    `to_acknowledge`: the next message to acknowledge, if acknowledgements do not wait for checkpoints.
    """

    split: PulsarSplit
    consumer: Any
    expected: Place | None
    is_over: bool = False
    to_acknowledge: Any = None


class PulsarReader(MessageReader):
    """Message ids are acknowledged, cumulatively, when the checkpoint that covers them is complete."""

    def __init__(self, context: ReaderContext, settings: PulsarSourceSettings) -> None:
        super().__init__(context, settings, commits=not settings.acknowledges_by_itself)

    def open_split_reader(self) -> PulsarSplitReader:
        return PulsarSplitReader(self.settings, self.context.subtask())

    def split_id(self, split: PulsarSplit) -> TopicPartition:
        return split.partition

    def position_after(self, batch: SplitBatch) -> Any:
        return batch.last_id if isinstance(batch, ReadBatch) else None


class PulsarSplitReader(CommittingSplitReader):
    """Reads partitions. `fetch` opens the consumers, and waits until an earlier consumer of the subscription is closed."""

    def __init__(self, settings: PulsarSourceSettings, subtask: int) -> None:
        self._where = f"PulsarSource, subtask {subtask}"
        self._pulsar = import_pulsar(self._where)
        self.settings = settings
        self._client = make_client(settings.options, self._where)
        self._to_open: list[PulsarSplit] = []
        self._busy_since: float | None = None
        self._open: dict[TopicPartition, _Open] = {}
        self._paused: set[TopicPartition] = set()
        self._over: list[TopicPartition] = []
        self._woken = threading.Event()
        self._interval_s = (
            int_of(settings.options, AUTO_ACKNOWLEDGE_MS, AUTO_ACKNOWLEDGE_DEFAULT_MS) / 1000
        )
        self._acknowledged_at = monotonic()

    # ------------------------------------------------------------------ the fetcher's thread

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._over += [split.partition for split in splits if split.is_over]
        self._to_open += [split for split in splits if not split.is_over]

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """Notes the paused partitions. The queue of a consumer that is not polled fills, and then gets no more
        messages.
        """
        self._paused.update(to_pause)
        self._paused.difference_update(to_resume)

    def wake_up(self) -> None:
        self._woken.set()

    def fetch(self) -> Fetched:
        """Polls all consumers in turn; each waits a little for messages."""
        self._open_consumers()
        batches: list[SplitBatch] = []
        is_idle = True
        for one in self._open.values():
            if one.is_over or one.split.partition in self._paused:
                continue
            is_idle = False
            with pulsar_errors(self._pulsar, f"{self._where}: cannot read {one.split.partition}"):
                messages = one.consumer.batch_receive()
            batches += self._taken(one, messages)
        if self.settings.acknowledges_by_itself:
            self._acknowledge_in_time()
        finished, self._over = self._over, []
        if not batches and not finished:
            self._woken.wait(WAIT_S if is_idle else PAUSE_S)
        self._woken.clear()
        return Fetched(batches, finished)

    def commit(self) -> None:
        """Commits by acknowledging."""
        for partition, last_id in self.not_yet_reported().items():
            self._acknowledge(partition, last_id)

    def close(self) -> None:
        try:
            self.commit()
        finally:
            close_client(self._client, self._pulsar)

    def _open_consumers(self) -> None:
        """Opens the consumers of new splits. If a subscription still has a consumer, it is tried again until the
        timeout.
        """
        waiting, self._to_open = self._to_open, []
        for split in waiting:
            try:
                consumer = open_consumer(
                    self._client, split.partition, self.settings.options, self._where
                )
            except ConsumerIsBusy:
                now = monotonic()
                self._busy_since = self._busy_since or now
                if now - self._busy_since > operation_timeout_s(self.settings.options):
                    raise
                self._to_open.append(split)
                continue
            self._seek(consumer, split)
            self._open[split.partition] = _Open(split, consumer, split.start.place)
        if not self._to_open:
            self._busy_since = None

    def _seek(self, consumer: Any, split: PulsarSplit) -> None:
        start = split.start
        if start.kind is StartKind.SUBSCRIPTION:
            return
        with pulsar_errors(
            self._pulsar, f"{self._where}: cannot go to {start} in {split.partition}"
        ):
            if start.kind is StartKind.EARLIEST:
                consumer.seek(self._pulsar.MessageId.earliest)
            elif start.kind is StartKind.PUBLISH_TIME:
                consumer.seek(start.timestamp_ms)
            else:
                assert start.place is not None, "the driver has looked up the place"
                consumer.seek(message_id(self._pulsar, start.place))

    def _taken(self, one: _Open, messages: Sequence[Any]) -> list[SplitBatch]:
        if messages and one.expected is not None:
            self._verify(one, place_of(messages[0].message_id()))
        messages = not_yet_read(messages, one.split.start)
        if not messages:
            return []
        wanted, is_over = up_to(messages, one.split.stop)
        if is_over:
            one.is_over = True
            self._over.append(one.split.partition)
        if not wanted:
            return []
        last = wanted[-1]
        one.to_acknowledge = last.message_id()
        one.split = one.split.moved_to(place_of(one.to_acknowledge), is_over=is_over)
        partition, settings = one.split.partition, self.settings
        batch = batch_of(with_keys(wanted, settings.keys), settings.schema, partition)
        read = NO_RECORDS if batch is None else batch
        return [ReadBatch(read, partition, one.split, one.to_acknowledge)]

    def _verify(self, one: _Open, first: Place) -> None:
        """Check that the message where reading continues still exists, or was just acknowledged.

        Otherwise it logs a warning. Raises: ExternalError: messages are missing, and the source is
        set to fail then.
        """
        expected, one.expected = one.expected, None
        if expected is None or first[:2] <= expected[:2]:
            return
        ledger, entry, _ = expected
        is_next = first[:2] == (ledger, entry + 1) or (first[0] > ledger and first[1] == 0)
        if one.split.start.kind is StartKind.AFTER and is_next:
            return  # the message was read and acknowledged, so it may have been removed
        text = (
            f"{self._where}: {one.split.partition} has lost the message {ledger}:{entry}, at which "
            f"reading was to go on; the first message now is {first[0]}:{first[1]}. The messages "
            "between them were removed, either by the topic's retention or because they were "
            "acknowledged."
        )
        if self.settings.options.get(VERIFY_START, WARNS) == FAILS:
            raise ExternalError(text)
        _LOG.warning("%s", text)

    def _acknowledge_in_time(self) -> None:
        if monotonic() - self._acknowledged_at < self._interval_s:
            return
        self._acknowledged_at = monotonic()
        for partition, one in self._open.items():
            last_id, one.to_acknowledge = one.to_acknowledge, None
            if last_id is not None:
                self._acknowledge(partition, last_id)

    def _acknowledge(self, partition: TopicPartition, last_id: Any) -> None:
        found = self._open.get(partition)
        try:
            if found is not None:
                found.consumer.acknowledge_cumulative(last_id)
        except self._pulsar.PulsarException as error:
            _LOG.warning(
                "where=%s partition=%s acknowledge=FAILED cause=%s",
                self._where,
                partition,
                text_of(error),
            )


# ---------------------------------------------------------------------- enumerator
# The enumerator of a PulsarSource, on the driver: finds partitions, and where each is read from
# and to.
#
# Source: Flink PulsarSourceEnumerator, TopicListSubscriber, TopicPatternSubscriber; differs: with
# `latest`, partitions that are found later are read from their first message.


DEFAULT_NAMESPACE = "public/default"


@dataclass(frozen=True, slots=True)
class PulsarSubscription:
    """The topics to read: by name, or those of a namespace whose whole name, with the namespace, matches `pattern`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def find(self, cluster: PulsarCluster) -> list[TopicPartition]:
        """The partitions that exist now, in order, each once.

        Raises: UnknownTopic; ExternalError: the cluster does not answer.
        """
        if self.pattern is None:
            found = [one for name in self.topics for one in cluster.partitions(name)]
        else:
            namespace, pattern = split_pattern(self.pattern)
            is_wanted = re.compile(pattern).fullmatch
            found = [
                one
                for name in cluster.topics(namespace)
                if is_wanted(name.partition("://")[2])
                and not name.rpartition("/")[2].startswith("__")  # Pulsar's own
                for one in partitions_seen(cluster, name)
            ]
        return list(dict.fromkeys(found))


def split_pattern(pattern: str) -> tuple[str, str]:
    """The namespace, and a pattern for names that begin with it."""
    text = pattern.partition("://")[2] if "://" in pattern else pattern
    parts = text.split("/", 2)
    if len(parts) < 3:
        return DEFAULT_NAMESPACE, f"{DEFAULT_NAMESPACE}/(?:{text})"
    return f"{parts[0]}/{parts[1]}", f"{parts[0]}/{parts[1]}/(?:{parts[2]})"


class PulsarEnumerator(PartitionEnumerator):
    """Partitions of the first round begin at the source's start.

    Later ones begin at their first message, unless the start is a publish time, which holds for them too.
    """

    source_name = "PulsarSource"
    settings: PulsarSourceSettings

    def splits_of(
        self, partitions: Sequence[TopicPartition], cluster: PulsarCluster
    ) -> Sequence[PulsarSplit]:
        start, stop = self.settings.start.start, self.settings.stop.stop
        if self.has_begun and start.kind is not StartKind.PUBLISH_TIME:
            start = Start(StartKind.EARLIEST)
        return [cluster.begin(one, start, stop) for one in partitions]

    def owner(self, split: PulsarSplit, parallelism: int) -> int:
        return owner_of(split.partition.topic, max(0, split.partition.number), parallelism)


# ---------------------------------------------------------------------- source


NAME: Final = "PulsarSource"
SETTERS: Final = "set_topics and set_topic_pattern"


class PulsarSource(MessageSource):
    """Reads messages from Pulsar. Build it with `PulsarSource.builder()`."""

    enumerator = PulsarEnumerator
    advertised = "advertisedAddress"
    settings: PulsarSourceSettings

    @staticmethod
    def builder() -> PulsarSourceBuilder:
        """Return a builder."""
        return PulsarSourceBuilder()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return PulsarReader(context, self.settings)

    def _connect(self) -> PulsarCluster:
        return PulsarCluster(self.settings.options, f"{NAME} on the driver")

    def _check(self) -> None:
        """As Flink's builder does."""
        settings, options = self.settings, self.settings.options
        for key, setter in (
            (SERVICE_URL, "set_service_url('pulsar://host:6650')"),
            (SUBSCRIPTION, "set_subscription_name('...')"),
        ):
            if not options.get(key):
                raise ConfigurationError(f"{NAME}: the option {key!r} is required: call {setter}.")
        if settings.subscription is None:
            raise ConfigurationError(f"{NAME}: there is nothing to read. Call one of {SETTERS}.")
        if settings.schema is None:
            raise ConfigurationError(
                f"{NAME}: a deserializer is required: call set_deserialization_schema(SimpleStringSchema()), or with another "
                "DeserializationSchema."
            )
        if options.get(VERIFY_START, WARNS) not in {WARNS, FAILS}:
            raise ConfigurationError(
                f"{NAME}: the option {VERIFY_START!r} must be {WARNS} or {FAILS}, got "
                f"{options[VERIFY_START]!r}."
            )
        _ = settings.discovery_interval_ms, settings.acknowledges_by_itself
        parameters_of(options, NAME)
        for table in (CLIENT, CONSUMER):
            arguments_of(options, table)


class PulsarSourceBuilder(PulsarBuilder, MessageSourceBuilder):
    """Builds a PulsarSource. By default reading starts at the first message.

    Service URL, subscription name, topics and deserializer are required.
    """

    begin = PulsarSourceSettings

    def build(self) -> PulsarSource:
        """Return the source. Raises ConfigurationError if something required is missing."""
        return PulsarSource(self.settings)

    def set_subscription_name(self, subscription_name: str) -> Self:
        """Set the subscription for which messages are acknowledged.

        It is exclusive: each source that runs needs its own.
        """
        return self.set_config(SUBSCRIPTION, subscription_name)

    def set_topics(self, topics: str | list[str]) -> Self:
        """Set topics, with all their partitions, or single partitions (`topic-partition-0`)."""
        wanted = PulsarSubscription(topics=checked_topics(topics))
        return self._subscribe("set_topics", wanted, SETTERS)

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Read the topics whose whole name matches a regular expression.

        The form is `persistent://tenant/namespace/<regular expression>`: the namespace is taken
        literally. Topics that appear later are found every
        pulsar.source.partitionDiscoveryIntervalMs.
        """
        wanted = PulsarSubscription(pattern=checked_topic_pattern(topic_pattern))
        if topic_pattern.count("://") > 1:
            raise ConfigurationError(
                f"set_topic_pattern: {topic_pattern!r} names two namespaces. Make a source for "
                "each, and unite them with union()."
            )
        return self._subscribe("set_topic_pattern", wanted, SETTERS)

    def set_consumer_name(self, consumer_name: str) -> Self:
        """Set the consumer's name, as the topic's statistics show it."""
        return self.set_config(CONSUMER_NAME, consumer_name)

    def set_range_generator(self, range_generator: RangeGenerator) -> Self:
        """Set which keys are read; all by default."""
        return self._with_a(RangeGenerator, "set_range_generator", keys=range_generator)

    def set_start_cursor(self, start_cursor: StartCursor) -> Self:
        """Set where reading starts."""
        return self._with_a(StartCursor, "set_start_cursor", start=start_cursor)

    def set_unbounded_stop_cursor(self, stop_cursor: StopCursor) -> Self:
        """Read each partition up to this cursor; the job does not end, as partitions may appear."""
        return self._with_a(
            StopCursor, "set_unbounded_stop_cursor", stop=stop_cursor, is_bounded=False
        )

    def set_bounded_stop_cursor(self, stop_cursor: StopCursor) -> Self:
        """Read each partition up to this cursor, then end."""
        return self._with_a(
            StopCursor, "set_bounded_stop_cursor", stop=stop_cursor, is_bounded=True
        )

    def set_deserialization_schema(self, deserialization_schema: DeserializationSchema) -> Self:
        """Set what deserializes a message's payload."""
        return self._with_a(
            DeserializationSchema, "set_deserialization_schema", schema=deserialization_schema
        )

    def set_config_with_dict(self, config: dict[str, Any]) -> Self:
        """Set several options of the client or the source."""
        return self._set_all(config, "set_config_with_dict")
