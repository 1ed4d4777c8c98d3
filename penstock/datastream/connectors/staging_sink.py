"""A sink that keeps its records for a committer where it is to write them exactly once, and else writes them as they come.

Knows no system that is written to. Source: Flink KafkaSink, PulsarSink, JdbcSink.
"""

from __future__ import annotations

from abc import abstractmethod

from penstock.datastream.connectors.base import Committer, Sink, SinkWriter, WriterContext


class StagingSink(Sink):
    """A subclass says which of the two it is, and makes the parts."""

    @property
    @abstractmethod
    def is_exactly_once(self) -> bool: ...

    @abstractmethod
    def staging_writer(self, context: WriterContext) -> SinkWriter: ...

    @abstractmethod
    def direct_writer(self, context: WriterContext) -> SinkWriter: ...

    @abstractmethod
    def committer(self) -> Committer:
        """Of what staging writers have kept."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return self.staging_writer(context) if self.is_exactly_once else self.direct_writer(context)

    def create_committer(self) -> Committer | None:
        return self.committer() if self.is_exactly_once else None
