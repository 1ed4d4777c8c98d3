"""The base of sinks that stage records for a committer if they write exactly once, and otherwise write them directly.

Does not know any target system. Source: Flink KafkaSink, PulsarSink, JdbcSink.
"""

from __future__ import annotations

from abc import abstractmethod

from penstock.connectors.api.base import Committer, Sink, SinkWriter, WriterContext


class StagingSink(Sink):
    """A subclass says whether it stages, and makes the writers and the committer."""

    @property
    @abstractmethod
    def is_exactly_once(self) -> bool: ...

    @abstractmethod
    def staging_writer(self, context: WriterContext) -> SinkWriter: ...

    @abstractmethod
    def direct_writer(self, context: WriterContext) -> SinkWriter: ...

    @abstractmethod
    def committer(self) -> Committer:
        """The committer of the staged records."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return self.staging_writer(context) if self.is_exactly_once else self.direct_writer(context)

    def create_committer(self) -> Committer | None:
        return self.committer() if self.is_exactly_once else None
