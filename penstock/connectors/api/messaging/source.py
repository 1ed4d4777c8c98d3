"""The part that sources of all brokers share: they check their topics before the job starts, and assign partitions.

Source: Flink KafkaSource, PulsarSource.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ClassVar, Protocol, Self

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Boundedness, EnumeratorContext, Source, SplitEnumerator
from penstock.connectors.api.messaging.enumerator import (
    PartitionEnumerator,
    ReadingPlan,
    Subscription,
)
from penstock.connectors.api.messaging.topics import topics_of_settings


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
        if self._settings.is_bounded:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

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
