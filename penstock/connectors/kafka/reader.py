"""The reader of a KafkaSource: one consumer per subtask, on a fetcher's thread, with commits to the group.

Source: Flink KafkaSourceReader, KafkaPartitionSplitReader; differs: the consumer hands over at once what it has, many
messages at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from penstock.connectors.api.base import (
    CommittingSplitReader,
    Fetched,
    ReaderContext,
    SplitBatch,
)
from penstock.connectors.api.builder import MISSING
from penstock.connectors.api.messaging.properties import flag_of, int_of
from penstock.connectors.api.messaging.records import NO_RECORDS
from penstock.connectors.api.messaging.source import MessageReader, Subscription, UnknownTopic
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    TopicIds,
    import_kafka,
    kafka_errors,
    make_consumer,
    refusal_of,
)
from penstock.connectors.kafka.offsets import (
    KafkaOffsetsInitializer,
    KafkaSplit,
    KafkaTopicPartition,
)
from penstock.connectors.kafka.properties import (
    API_TIMEOUT_MS,
    CLIENT_ID_PREFIX,
    COMMIT_ON_CHECKPOINT,
    DISCOVERY_INTERVAL_MS,
    GROUP_ID,
)
from penstock.connectors.kafka.record_schema import KafkaSchema, batch_of
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.engine.model.metrics import Groups, Measured, MetricType

# ---------------------------------------------------------------------- topic ids
# Whether topics are still those whose offsets a reader has: a topic that is deleted and made anew
# has another id.
#
# Needs confluent-kafka. Source: KIP-516 (topic identifiers); differs: Flink reads on at the
# former topic's offsets.


_LOG: Final = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 10.0


class TopicWatch:
    """Compares the topics of a reader's splits with the cluster: when they are added, and every `LOOK_EVERY_S` from then on.

    Only the fetcher's thread uses it.
    """

    def __init__(
        self, properties: Mapping[str, str], where: str, deleted: Collection[str] = ()
    ) -> None:
        """`deleted`: topics that were deleted on purpose, if the cluster has them no more."""
        self._deleted = deleted
        self._properties = properties
        self._where = where
        self._ids: TopicIds | None = None
        self._known: dict[str, str] = {}
        self._asked: dict[str, Future[Any]] = {}
        self._looked_at = self._answered_s = monotonic()
        self._is_warned = False

    def add(self, splits: Sequence[KafkaSplit]) -> Sequence[KafkaSplit]:
        """Waits for the answers. Returns the splits that are to be read: not those of topics that were deleted on purpose.

        Raises: RefusedForGood; UnknownTopic; ExternalError: the cluster does not answer.
        """
        with_id = [one for one in splits if one.topic_id]
        answers = self._ask(with_id)
        dropped = {one for one in answers.keys() & self._deleted if self._is_gone(one, answers)}
        for split in with_id:
            self._known.setdefault(split.partition.topic, split.topic_id)
        for topic in sorted(dropped):
            own = [one for one in splits if one.partition.topic == topic]
            _LOG.warning("%s: no longer reads %s", self._where, _places(own))
        left = [one for one in splits if one.partition.topic not in dropped]
        self._compare(left, answers)
        return left

    def look(self, splits: Collection[KafkaSplit]) -> None:
        """Asks, or takes the answers that have come. Raises: as `add`.

        Brokers that do not answer are no error, for what is read waits for them: the first time is a warning.
        """
        if self._asked and all(one.done() for one in self._asked.values()):
            answers, self._asked = self._asked, {}
            self._looked_at = monotonic()
            try:
                self._compare(splits, answers)
            except (UnknownTopic, RefusedForGood):
                raise
            except ExternalError as error:
                self._warn(error)
            else:
                self._answered_s, self._is_warned = monotonic(), False
        elif not self._asked and splits and monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._asked = self._ask(splits)

    def _warn(self, error: ExternalError) -> None:
        if not self._is_warned:
            self._is_warned = True
            _LOG.warning(
                "%s: no answer from %s for %.0f s. The reader waits for it. %s (%s)",
                self._where,
                self._properties.get("bootstrap.servers"),
                monotonic() - self._answered_s,
                HELP,
                error,
            )

    def close(self) -> None:
        self._ids = None
        self._asked = {}

    def _ask(self, splits: Collection[KafkaSplit]) -> dict[str, Future[Any]]:
        topics = {split.partition.topic for split in splits}
        if not topics:
            return {}
        if self._ids is None:
            self._ids = TopicIds(self._properties, self._where)
        return self._ids.ask(topics)

    def _is_gone(self, topic: str, answers: Mapping[str, Future[Any]]) -> bool:
        return self._ids is not None and self._ids.id_in(topic, answers[topic]) is None

    def _compare(self, splits: Iterable[KafkaSplit], answers: Mapping[str, Future[Any]]) -> None:
        assert self._ids is not None or not answers, "whoever was asked is there"
        for topic, answer in answers.items():
            found = self._ids.id_in(topic, answer) if self._ids is not None else ""
            own = [one for one in splits if one.partition.topic == topic]
            if not own:  # read to their ends meanwhile
                continue
            if found is None:
                raise UnknownTopic(_gone(self._where, topic, own))
            for split in own:
                known = split.topic_id or self._known.setdefault(topic, found)
                if found and known and known != found:
                    raise RefusedForGood(_anew(self._where, topic, own, known, found))


def _gone(where: str, topic: str, splits: Iterable[KafkaSplit]) -> str:
    return (
        f"{where}: the topic {topic!r} is gone: it was deleted, or this client may not see it any "
        f"more. Read of it: {_places(splits)}. Give the client the right to describe the topic. "
        f"If it was deleted on purpose, name it: set_deleted_topics({topic!r}) of the source's "
        "builder, and start the job from its last checkpoint or savepoint. All other topics are "
        "read on."
    )


def _anew(where: str, topic: str, splits: Iterable[KafkaSplit], known: str, found: str) -> str:
    return (
        f"{where}: the topic {topic!r} was deleted and made anew: its id is {found}, and was "
        f"{known}. Read of the former topic: {_places(splits)}. Its offsets say nothing of the "
        "new topic's records. To read the new topic from its start, start the job without the "
        "state of this source: give the source another uid, and allow non-restored state."
    )


def _places(splits: Iterable[KafkaSplit]) -> str:
    ordered = sorted(splits, key=lambda one: one.partition)
    return ", ".join(f"{one.partition} up to offset {one.offset}" for one in ordered)


# ---------------------------------------------------------------------- figures
# What is measured of a KafkaSource's reader: offsets, what is still to be read, commits. Written
# by the fetcher's thread, read on any.
#
# Source: Flink KafkaSourceReaderMetrics. `recordsLag` of a partition is what Flink takes from the
# client's own metrics.


EVERY_S: Final = 1.0
_GROUP: Final = ("KafkaSourceReader", None)
Partition = tuple[str, int]


class KafkaFigures:
    """The figures of one reader. A partition is (topic, number)."""

    def __init__(self) -> None:
        self._offsets: Mapping[Partition, int] = {}
        self._ends: Mapping[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._succeeded = 0
        self._failed = 0
        self._removed = 0
        self._measured_at = 0.0

    def measure(
        self, offsets: Mapping[Partition, int], end_of: Callable[[Partition], int | None]
    ) -> None:
        """Note where the reader is; at most once a second. `end_of`: the offset after a partition's
        last record, as far as the client knows it.
        """
        now = monotonic()
        if now - self._measured_at < EVERY_S:
            return
        self._measured_at = now
        ends = ((partition, end_of(partition)) for partition in offsets)
        self._offsets = dict(offsets)
        self._ends = {partition: end for partition, end in ends if end is not None}

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has taken a commit."""
        self._succeeded += 1
        self._committed.update(offsets)

    def commit_failed(self) -> None:
        self._failed += 1

    def removed(self, count: int) -> None:
        """Retention has removed records before they were read."""
        self._removed += count

    def measured(self) -> Iterator[Measured]:
        """The metrics. Any thread."""
        offsets, ends = self._offsets, self._ends
        lags = {one: max(0, end - offsets[one]) for one, end in ends.items() if offsets[one] >= 0}
        if lags:
            yield _gauge("pendingRecords", sum(lags.values()))
        yield Measured("commitsSucceeded", MetricType.COUNTER, self._succeeded, (_GROUP,))
        yield Measured("commitsFailed", MetricType.COUNTER, self._failed, (_GROUP,))
        yield Measured("recordsRemoved", MetricType.COUNTER, self._removed, (_GROUP,))
        for (topic, partition), offset in offsets.items():
            groups: Groups = (_GROUP, ("topic", topic), ("partition", str(partition)))
            committed = self._committed.get((topic, partition), -1)
            yield _gauge("currentOffset", offset - 1 if offset > 0 else -1, groups)
            yield _gauge("committedOffset", committed, groups)
            if (topic, partition) in lags:
                yield _gauge("recordsLag", lags[topic, partition], groups)


def _gauge(name: str, value: int, groups: Groups = ()) -> Measured:
    return Measured(name, MetricType.GAUGE, value, groups)


# ---------------------------------------------------------------------- reader


DISCOVERY_INTERVAL_DEFAULT_MS: Final = 5 * 60 * 1000
MAX_MESSAGES: Final = 4096
MAX_BATCH_BYTES: Final = 1 << 20
WAIT_S: Final = 0.1
MOST_FAILED_FETCHES: Final = 60
"""In a row, of one partition: about 30 s, as the client waits half a second after each."""
RETRIABLE: Final = frozenset({
    -1, 2, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 56, 70, 71, 72, 74, 75, 78, 88, 89, -195, -193,
    -187, -185,
})  # fmt: skip
"""Codes of Kafka's protocol that its Java client retries (Errors.java, RetriableException), and -1,
after which its fetcher continues; negative: librdkafka's for connections. librdkafka itself says so
for producers only. Not 3: a topic is gone.
"""


@dataclass(frozen=True, slots=True)
class KafkaSourceSettings:
    """The settings that the builder collected. `stopping` None: the source never stops."""

    properties: Mapping[str, str] = field(default_factory=dict)
    subscription: Subscription = MISSING
    starting: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stopping: KafkaOffsetsInitializer | None = None
    is_bounded: bool = False
    schema: KafkaSchema = MISSING
    deleted_topics: frozenset[str] = frozenset()

    @property
    def discovery_interval_ms(self) -> int:
        return int_of(self.properties, DISCOVERY_INTERVAL_MS, DISCOVERY_INTERVAL_DEFAULT_MS)


class KafkaReader(MessageReader):
    """A position is the offset after the records that `poll_next` returned.

    It is committed to the group when its checkpoint is complete.
    """

    def __init__(self, context: ReaderContext, settings: KafkaSourceSettings) -> None:
        commits = GROUP_ID in settings.properties and flag_of(
            settings.properties, COMMIT_ON_CHECKPOINT, default=True
        )
        super().__init__(context, settings, commits=commits)

    def open_split_reader(self) -> KafkaSplitReader:
        return KafkaSplitReader(self.settings, self.context.subtask())

    def split_id(self, split: KafkaSplit) -> KafkaTopicPartition:
        return split.partition

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._positions.update((split.partition, split.offset) for split in splits)
        super().add_splits(splits)

    def position_after(self, batch: SplitBatch) -> Any:
        return None if batch.after is None else batch.after.offset


class KafkaSplitReader(CommittingSplitReader):
    """A consumer whose partitions are assigned. It joins no group: its group id is used for commits only.

    Only one thread may use the consumer: a second call, while another waits in it, never returns.
    """

    def __init__(self, settings: KafkaSourceSettings, subtask: int) -> None:
        self._where = f"KafkaSource, subtask {subtask}"
        self._kafka = import_kafka(self._where)
        self._settings = settings
        properties = dict(settings.properties)
        prefix = properties.get(CLIENT_ID_PREFIX, properties.get(GROUP_ID, "penstock"))
        properties.setdefault("client.id", f"{prefix}-{subtask}")
        self._consumer, self._last = make_consumer(
            properties,
            self._where,
            enable__partition__eof="false" if settings.stopping is None else "true",
            on_commit=self._note_commit,
        )
        self._open: dict[tuple[str, int], KafkaSplit] = {}
        self._over: list[KafkaTopicPartition] = []
        self._moved: list[SplitBatch] = []
        self._timeout_s = int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
        self._topics = TopicWatch(properties, self._where, settings.deleted_topics)
        self._count = MAX_MESSAGES
        self._figures = KafkaFigures()
        self._failed_fetches: dict[tuple[str, int], int] = {}

    def measured(self) -> Iterable[Measured]:
        return self._figures.measured()

    # ------------------------------------------------------------------ the fetcher's thread

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._over += [split.partition for split in splits if split.is_over]
        found = [split for split in splits if not split.is_over]
        new = self._topics.add(found)
        self._over += [split.partition for split in found if split not in new]
        self._open.update((_key(split.partition), split) for split in new)
        if new:
            self._consumer.incremental_assign([
                self._place(split.partition, split.offset) for split in new
            ])

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        for partitions, order in (
            (to_pause, self._consumer.pause),
            (to_resume, self._consumer.resume),
        ):
            places = [self._place(one) for one in partitions if _key(one) in self._open]
            if places:
                order(places)

    def fetch(self) -> Fetched:
        messages = self._consumer.consume(self._count, 0)
        if not messages and not self._over:
            messages = self._consumer.consume(1, WAIT_S)  # returns with the first message
            messages += self._consumer.consume(self._count, 0) if messages else []
        if messages:
            self._last.forget()
        elif refusal := self._last.refusal():
            raise RefusedForGood(f"{self._where}: cannot read: {refusal}.")
        by_partition: dict[tuple[str, int], list[Any]] = {}
        ends = []
        for message in messages:
            if message.error() is None:
                by_partition.setdefault((message.topic(), message.partition()), []).append(message)
            elif self._is_end(message):
                ends.append(message)
        batches = [
            batch
            for key, found in by_partition.items()
            if key in self._open
            for batch in self._taken(key, found)
        ]
        for message in ends:  # after the records that came with them
            self._note_end(message)
        self._topics.look(self._open.values())
        batches += self._moved
        self._moved = []
        finished, self._over = self._over, []
        self._figures.measure({key: one.offset for key, one in self._open.items()}, self._end_of)
        return Fetched(batches, finished)

    def commit(self) -> None:
        """Commits to the group."""
        positions = self.not_yet_reported()
        places = [self._place(partition, offset) for partition, offset in positions.items()]
        try:
            if places:
                self._consumer.commit(offsets=places, asynchronous=True)
        except self._kafka.KafkaException as error:
            _LOG.warning("where=%s commit=FAILED cause=%s", self._where, error)

    def close(self) -> None:
        try:
            self.commit()
        finally:
            self._topics.close()
            self._consumer.close()

    def _taken(self, key: tuple[str, int], messages: list[Any]) -> list[SplitBatch]:
        split = self._open[key]
        self._failed_fetches.pop(key, None)
        last = messages[-1].offset()
        if split.stop is not None and last >= split.stop:
            messages = [one for one in messages if one.offset() < split.stop]
        after = split.at(last + 1 if split.stop is None else min(last + 1, split.stop))
        batch = batch_of(messages, self._settings.schema) if messages else None
        self._size_next(messages)
        self._move(key, after)
        return [SplitBatch(NO_RECORDS if batch is None else batch, split.partition, after)]

    def _move(self, key: tuple[str, int], split: KafkaSplit) -> None:
        """Notes that the partition was read up to here."""
        self._open[key] = split
        if split.is_over:
            del self._open[key]
            self._over.append(split.partition)
            self._consumer.incremental_unassign([self._place(split.partition)])

    def _size_next(self, messages: Sequence[Any]) -> None:
        """Sets the number of messages of the next fetch, so that they have about the size of a full batch."""
        total = sum(len(message) for message in messages)
        self.bytes_read += total
        size = total // max(1, len(messages))
        self._count = max(1, min(MAX_MESSAGES, MAX_BATCH_BYTES // max(1, size)))

    def _note_end(self, message: Any) -> None:
        """Ends a split whose last offset no reader sees. A transaction's marker, for example, may be the last before
        the stop.
        """
        key = (message.topic(), message.partition())
        split = self._open.get(key)
        if split is not None and split.stop is not None and message.offset() >= split.stop:
            self._move(key, split.at(split.stop))

    def _is_end(self, message: Any) -> bool:
        """Whether this is the current end of a partition. Raises: ExternalError: it is an error that will not pass."""
        error, kafka = message.error(), self._kafka.KafkaError
        key = (message.topic(), message.partition())
        if error.code() == kafka._PARTITION_EOF:  # ruff: ignore[private-member-access] - its public name
            return True
        if not error.fatal() and (error.retriable() or error.code() in RETRIABLE):
            return self._bear(key, error)
        if error.code() == kafka._AUTO_OFFSET_RESET:  # ruff: ignore[private-member-access] - its public name
            self._begin_again(key, error)
            return False
        has_group = GROUP_ID in self._settings.properties
        if error.name() == "GROUP_AUTHORIZATION_FAILED" and not has_group:
            return False  # of the group that only librdkafka wants: nothing is committed to it
        at = f" of {key[0]}[{key[1]}]" if key[0] else ""
        if refusal := refusal_of(error):
            raise RefusedForGood(f"{self._where}: cannot read{at}: {refusal}.")
        raise ExternalError(f"{self._where}: cannot read{at}: {error.str()} ({error.name()}).")

    def _begin_again(self, key: tuple[str, int], error: Any) -> None:
        """Reads on where the offset reset strategy says. Raises: ExternalError: it says nothing."""
        split = self._open.get(key)
        if split is None:
            return
        self._topics.add([split])  # Offsets of a topic that was made anew say nothing.
        reset = self._settings.starting.auto_offset_reset
        if reset not in {"earliest", "latest"}:
            raise ExternalError(
                f"{self._where}: {split.partition} has no record at offset {split.offset} (any "
                f"more): {error.str()}. The topic's retention removed it, or the topic was cut off "
                "before it. To read on there, set an offset reset strategy of EARLIEST or LATEST."
            )
        place = self._place(split.partition)
        what = f"{self._where}: cannot find the first and last offset of {split.partition}"
        with kafka_errors(self._kafka, what, self._last, self._consumer):
            first, end = self._consumer.get_watermark_offsets(place, timeout=self._timeout_s)
        at = first if reset == "earliest" else end
        removed = max(0, first - split.offset)
        self._figures.removed(removed)
        _LOG.warning(
            "where=%s partition=%s offset=%d OUT_OF_RANGE first=%d end=%d: %s Reading continues at "
            "offset %d, as the offset reset strategy says.",
            self._where, split.partition, split.offset, first, end, _lost(split, first), at,
        )  # fmt: skip
        self._consumer.incremental_unassign([place])
        self._open[key] = after = split.at(at)
        self._moved.append(SplitBatch(NO_RECORDS, split.partition, after))
        if after.is_over:
            del self._open[key]
            self._over.append(split.partition)
        else:
            self._consumer.incremental_assign([self._place(split.partition, at)])

    def _bear(self, key: tuple[str, int], error: Any) -> bool:
        """Lets the client fetch again. Returns False. Raises: ExternalError: that has failed too often in a row."""
        failed = self._failed_fetches[key] = self._failed_fetches.get(key, 0) + 1
        if failed >= MOST_FAILED_FETCHES:
            raise ExternalError(
                f"{self._where}: {failed} fetches of {key[0]}[{key[1]}] in a row have failed, the "
                "last one with "
                f"{error.str()} ({error.name()})."
            )
        if failed == 1:
            _LOG.warning(
                "where=%s partition=%s[%s] fetch=FAILED cause=%s", self._where, *key, error
            )
        return False

    def _place(self, partition: KafkaTopicPartition, offset: int = -1001) -> Any:
        return self._kafka.TopicPartition(partition.topic, partition.partition, offset)

    def _note_commit(self, error: Any, places: Sequence[Any]) -> None:
        if error is not None:
            self._figures.commit_failed()
            _LOG.warning("where=%s commit=FAILED cause=%s", self._where, error)
        else:
            self._figures.committed({(one.topic, one.partition): one.offset for one in places})

    def _end_of(self, key: tuple[str, int]) -> int | None:
        """The end of a partition, as the client has heard of it with the last records."""
        place = self._kafka.TopicPartition(*key)
        _, end = self._consumer.get_watermark_offsets(place, cached=True)
        return int(end) if end >= 0 else None


def _lost(split: KafkaSplit, first: int) -> str:
    if first <= split.offset:
        return "the partition ends before this offset."
    return (
        f"the topic's retention has removed {first - split.offset} offsets that were not read, "
        f"{split.offset} to {first - 1}."
    )


def _key(partition: KafkaTopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition
