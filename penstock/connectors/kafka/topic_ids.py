"""Whether topics are still those whose offsets a reader has: a topic that is deleted and made anew has another id.

Needs confluent-kafka. Source: KIP-516 (topic identifiers); differs: Flink reads on at the former topic's offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final

from penstock.connectors.api.messaging.topics import UnknownTopic
from penstock.connectors.kafka.client import TopicIds
from penstock.connectors.kafka.splits import KafkaSplit
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.model.errors import ExternalError, RefusedForGood

_LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 10.0


class TopicWatch:
    """Compares the topics of a reader's splits with the cluster: when they are added, and every `EVERY_S` from then on.

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
        elif not self._asked and splits and monotonic() - self._looked_at >= EVERY_S:
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
