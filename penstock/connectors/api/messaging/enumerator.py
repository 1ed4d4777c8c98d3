"""The enumerator of a message source, on the driver: finds partitions and gives each to the subtask that owns it.

Source: Flink KafkaSourceEnumerator, PulsarSourceEnumerator; differs: a round of discovery that fails with a retryable
error is skipped, and the next round finds what it would have found.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from penstock.connectors.api.base import EnumeratorContext, SplitEnumerator
from penstock.engine.model.errors import ExternalError

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
