"""The part that sources of all brokers share: they check their topics before the job starts, and assign partitions.

Source: Flink KafkaSource, PulsarSource.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Boundedness, EnumeratorContext, Source, SplitEnumerator
from penstock.engine.model.errors import ConfigurationError, ExternalError

# ---------------------------------------------------------------------- splits
# Assigns the partitions of a topic to subtasks. Plain functions.
#
# Source: Flink KafkaSourceEnumerator.getSplitOwner, SplitAssignerBase of Pulsar's connector.


def owner_of(topic: str, partition: int, parallelism: int) -> int:
    """The subtask that reads the partition. A topic's name decides who reads partition 0; the others follow in turn."""
    start = (_java_hash(topic) * 31 & 0x7FFFFFFF) % parallelism
    return (start + partition) % parallelism


def _java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 code units. It is unsigned here; the caller masks the sign anyway."""
    units = text.encode("utf-16-be")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found


# ---------------------------------------------------------------------- topics
# Checks of topics before a job starts. Does not know any client.


class UnknownTopic(ExternalError):
    """The topic does not exist, or this client may not see it."""


Partition_co = TypeVar("Partition_co", covariant=True)


class HasPartitions(Protocol[Partition_co]):
    def partitions(self, topic: str) -> Sequence[Partition_co]: ...


def partitions_seen(cluster: HasPartitions[Partition_co], topic: str) -> Sequence[Partition_co]:
    """The partitions of a topic; none if it was deleted since it was listed."""
    try:
        return cluster.partitions(topic)
    except UnknownTopic:
        return ()


@contextmanager
def topics_of_settings(advertised: str) -> Generator[None]:
    """Turns errors of a lookup into errors of the settings, because the program has set the topics.

    `advertised`: the setting with which brokers advertise their addresses. Raises: ConfigurationError.
    """
    try:
        yield
    except UnknownTopic as error:
        raise ConfigurationError(str(error)) from error
    except ExternalError as error:
        raise ConfigurationError(
            f"{error} The driver and all executors must reach the brokers at the addresses that "
            f"the brokers advertise ({advertised})."
        ) from error


# ---------------------------------------------------------------------- enumerator


_LOG = logging.getLogger(__name__)


class Closeable(Protocol):
    def close(self) -> None: ...


ClusterT = TypeVar("ClusterT", bound=Closeable)
StartT = TypeVar("StartT")
StopT = TypeVar("StopT")


class Subscription(Protocol):
    """The topics or partitions to read."""

    def find(self, cluster: Any) -> Sequence[Any]:
        """The partitions that exist now, in order, as hashable plain data. Raises: UnknownTopic; ExternalError."""


@dataclass(frozen=True, slots=True)
class ReadingPlan(Generic[StartT, StopT]):
    """Says what is read, and from where to where.

    `discovery_interval_ms` below 1: partitions are looked for only once. `stop` None: partitions have no end.
    """

    subscription: Subscription
    start: StartT
    stop: StopT | None
    is_bounded: bool
    discovery_interval_ms: int


class PartitionEnumerator(SplitEnumerator, Generic[ClusterT]):
    """Each partition belongs to one subtask, which gets it as soon as it has registered."""

    def __init__(
        self,
        context: EnumeratorContext,
        plan: ReadingPlan[Any, Any],
        connect: Callable[[], ClusterT],
    ) -> None:
        """`connect`: called once, on the coordinator's thread."""
        self._context = context
        self._plan = plan
        self._connect = connect
        self._cluster: ClusterT | None = None
        self._known: set[Any] = set()
        self._waiting: list[Any] = []
        self._has_begun = False

    source_name: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.source_name} of {self._plan.subscription}"

    @abstractmethod
    def splits_of(self, partitions: Sequence[Any], cluster: ClusterT) -> Sequence[Any]:
        """The splits of new partitions; `has_begun` tells whether a first round came before.

        Raises: ExternalError.
        """

    @abstractmethod
    def owner(self, split: Any, parallelism: int) -> int:
        """The subtask that reads the split."""

    def forgotten(self, known: Collection[Any], found: Sequence[Any]) -> Collection[Any]:
        """The known partitions that are new ones if they are ever found again; none by default."""
        return ()

    @property
    def has_begun(self) -> bool:
        """Whether a first round of discovery was made, here or before the restored checkpoint."""
        return self._has_begun

    def start(self) -> None:
        self._cluster = self._connect()
        interval_ms = self._plan.discovery_interval_ms
        if interval_ms > 0:
            self._context.call_periodically(interval_ms, self._look_again)
        if interval_ms > 0 or not self._has_begun:
            self._discover()

    def handle_split_request(self, subtask: int, host: str) -> None:
        self._assign()
        if self._plan.is_bounded and self._plan.discovery_interval_ms < 1:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        self._waiting.extend(splits)
        self._assign()

    def unassigned_splits(self) -> int:
        return len(self._waiting)

    def snapshot_state(self) -> Any:
        """The partitions that were found, the splits that no reader has yet, and whether a first round was made."""
        return sorted(self._known), list(self._waiting), self._has_begun

    def restore_state(self, state: Any) -> None:
        known, waiting, self._has_begun = state
        self._known = set(known)
        self._waiting = list(waiting)

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _look_again(self) -> None:
        try:
            self._discover()
        except ExternalError as error:
            if not self._has_begun:
                raise
            _LOG.warning("enumerator=%s discovery=FAILED cause=%s", self, error)

    def _discover(self) -> None:
        assert self._cluster is not None, "partitions are looked for after the start"
        found = self._plan.subscription.find(self._cluster)
        self._known.difference_update(self.forgotten(self._known, found))
        new = [one for one in found if one not in self._known]
        self._waiting.extend(self.splits_of(new, self._cluster))
        self._known.update(new)
        self._has_begun = True
        self._assign()

    def _assign(self) -> None:
        """Gives waiting splits to the readers that are registered. A split is given once."""
        there = set(self._context.registered_readers())
        parallelism = self._context.parallelism()
        waiting, self._waiting = self._waiting, []
        by_owner: dict[int, list[Any]] = {}
        for split in waiting:
            by_owner.setdefault(self.owner(split, parallelism), []).append(split)
        for subtask, splits in by_owner.items():
            if subtask in there:
                self._context.assign_splits(subtask, splits)
            else:
                self._waiting.extend(splits)


# ---------------------------------------------------------------------- source


class ProducesValues(Protocol):
    """A schema of whatever a broker's messages are."""

    @property
    def produced_type(self) -> TypeInformation: ...
    def reading(self, names: Sequence[str]) -> Self:
        """See `DeserializationSchema.reading`."""


class MessageSourceSettings(Protocol):
    """The settings that builders of all message sources collect."""

    @property
    def subscription(self) -> Subscription | None: ...
    @property
    def is_bounded(self) -> bool: ...
    @property
    def schema(self) -> ProducesValues | None: ...


class MessageSource(Source):
    """A source of messages. `enumerator`: its enumerator's class.

    `advertised`: the setting with which brokers advertise their addresses, for errors.
    """

    enumerator: ClassVar[Callable[..., PartitionEnumerator[Any]]]
    advertised: ClassVar[str]
    _settings: MessageSourceSettings

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self._settings.is_bounded)

    @property
    def produced_type(self) -> TypeInformation | None:
        schema = self._settings.schema
        return None if schema is None else schema.produced_type

    @property
    def parses_fields(self) -> bool:
        schema = self._settings.schema
        return schema is not None and schema.reading(()) is not schema

    def validate(self) -> None:
        """Looks up the topics. Raises: ConfigurationError: a topic does not exist, or the cluster does not answer."""
        with closing(self._connect()) as cluster, topics_of_settings(self.advertised):
            self._subscription.find(cluster)

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return self.enumerator(context, self._plan(), self._connect)

    @property
    def _subscription(self) -> Subscription:
        subscription = self._settings.subscription
        assert subscription is not None, "the settings were checked when the source was made"
        return subscription

    @property
    def _schema(self) -> Any:
        schema = self._settings.schema
        assert schema is not None, "the settings were checked when the source was made"
        return schema

    @abstractmethod
    def _connect(self) -> Any:
        """Connects the driver to the cluster."""

    @abstractmethod
    def _plan(self) -> ReadingPlan[Any, Any]: ...
