"""The part that sources of all brokers share: they check their topics before the job starts, and assign partitions.

Source: Flink KafkaSource, PulsarSource.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    CommittingReader,
    EnumeratorContext,
    ReaderContext,
    Source,
    SplitEnumerator,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

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


def partitions_seen(cluster: Any, topic: str) -> Sequence[Any]:
    """The partitions of a topic; none if it was deleted since it was listed."""
    try:
        found: Sequence[Any] = cluster.partitions(topic)
    except UnknownTopic:
        return ()
    return found


@contextmanager
def topics_of_settings(advertised: str) -> Generator[None]:
    """Turns errors of a lookup into errors of the settings, because the program has set the topics.

    `advertised`: the setting with which brokers advertise their addresses. Raises: ConfigurationError.
    """
    try:
        yield
    except (UnknownTopic, RefusedForGood) as error:
        raise ConfigurationError(str(error)) from error
    except ExternalError as error:
        raise ConfigurationError(
            f"{error} The driver and all executors must reach the brokers at the addresses that "
            f"the brokers advertise ({advertised})."
        ) from error


# ---------------------------------------------------------------------- enumerator


_LOG = logging.getLogger(__name__)


class Subscription(Protocol):
    """The topics or partitions to read."""

    def find(self, cluster: Any) -> Sequence[Any]:
        """The partitions that exist now, in order, as hashable plain data. Raises: UnknownTopic; ExternalError."""


class PartitionEnumerator(SplitEnumerator):
    """Each partition belongs to one subtask, which gets it as soon as it has registered."""

    def __init__(
        self, context: EnumeratorContext, settings: Any, connect: Callable[[], Any]
    ) -> None:
        """`settings`: as of `MessageSource`. `connect`: called once, on the coordinator's thread."""
        self._context = context
        self.settings = settings
        self._interval_ms = 0 if settings.is_bounded else settings.discovery_interval_ms
        self._connect = connect
        self._cluster: Any = None
        self._known: set[Any] = set()
        self._waiting: list[Any] = []
        self._has_begun = False

    source_name: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.source_name} of {self.settings.subscription}"

    @abstractmethod
    def splits_of(self, partitions: Sequence[Any], cluster: Any) -> Sequence[Any]:
        """Return the splits of new partitions; `has_begun`: whether a first round came before.

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
        if self._interval_ms > 0:
            self._context.call_periodically(self._interval_ms, self._look_again)
        if self._interval_ms > 0 or not self._has_begun:
            self._discover()

    def handle_split_request(self, subtask: int, host: str) -> None:
        self._assign()
        if self.settings.is_bounded:
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
        found = self.settings.subscription.find(self._cluster)
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


class MessageReader(CommittingReader):
    """A reader of messages. `settings`: as of `MessageSource`."""

    def __init__(self, context: ReaderContext, settings: Any, *, commits: bool) -> None:
        super().__init__(context, commits=commits)
        self.settings = settings

    def read_fields(self, names: Sequence[str]) -> None:
        self.settings = replace(self.settings, schema=self.settings.schema.reading(names))


class MessageSource(Source):
    """A source of messages. `enumerator`: its enumerator's class.

    `advertised`: the setting with which brokers advertise their addresses, for errors. `settings`: a dataclass that has `subscription`,
    `schema`, `is_bounded` and `discovery_interval_ms`; below 1: partitions are looked for only once.
    """

    enumerator: ClassVar[Callable[..., PartitionEnumerator]]
    advertised: ClassVar[str]

    def __init__(self, settings: Any) -> None:
        """Check the settings.

        Raises ConfigurationError if one is missing or two contradict each other.
        """
        self.settings = settings
        self._check()

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self.settings.is_bounded)

    @property
    def produced_type(self) -> TypeInformation:
        kind: TypeInformation = self.settings.schema.produced_type
        return kind

    @property
    def parses_fields(self) -> bool:
        schema = self.settings.schema
        return schema.reading(()) is not schema

    def validate(self) -> None:
        """Looks up the topics. Raises: ConfigurationError: a topic does not exist, or the cluster does not answer."""
        with closing(self._connect()) as cluster, topics_of_settings(self.advertised):
            self.settings.subscription.find(cluster)

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return self.enumerator(context, self.settings, self._connect)

    @abstractmethod
    def _check(self) -> None:
        """Raises: ConfigurationError: a setting is missing, or two contradict each other."""

    @abstractmethod
    def _connect(self) -> Any:
        """Connects the driver to the cluster."""
