"""HybridSource: reads several sources one after the other, as if they were one source.

All subtasks read a source to its end before any subtask begins the next one. `HybridSource.builder(first)` makes it.
Source: pyflink.datastream.connectors.hybrid_source, Flink HybridSource, HybridSourceSplitEnumerator,
HybridSourceReader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from penstock.connectors.api.base import Boundedness, EnumeratorContext, ReaderContext, Source
from penstock.connectors.hybrid.enumerator import BatchEnumerator, HybridEnumerator
from penstock.connectors.hybrid.reader import HybridReader
from penstock.engine.model.errors import ConfigurationError

__all__ = ["HybridSource", "HybridSourceBuilder"]


class HybridSource(Source):
    """Reads several sources one after the other. Build it with `HybridSource.builder`.

    All sources have the same type of records; all but the last are bounded.
    """

    def __init__(self, sources: Sequence[Source], *, is_batch: bool = False) -> None:
        self._sources = tuple(sources)
        self._is_batch = is_batch

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Return a builder whose first source is the given one."""
        return HybridSourceBuilder(first_source)

    @property
    def boundedness(self) -> Boundedness:
        return self._sources[-1].boundedness

    @property
    def produced_type(self) -> Any:
        return self._sources[0].produced_type

    def in_batch(self) -> Source:
        return HybridSource([source.in_batch() for source in self._sources], is_batch=True)

    def validate(self) -> None:
        for source in self._sources:
            source.validate()

    def create_enumerator(self, context: EnumeratorContext) -> HybridEnumerator:
        kind = BatchEnumerator if self._is_batch else HybridEnumerator
        return kind(context, self._sources)

    def create_reader(self, context: ReaderContext) -> HybridReader:
        return HybridReader(context, self._sources)


class HybridSourceBuilder:
    """Builds a HybridSource from sources in the order in which they are read."""

    def __init__(self, first_source: Source) -> None:
        self._sources: list[Source] = []
        self.add_source(first_source)

    def add_source(self, source: Source) -> Self:
        """Add the next source."""
        if not isinstance(source, Source):
            raise TypeError(
                f"HybridSource takes Sources of penstock.datastream.connectors, got {type(source).__name__}."
            )
        if self._sources:
            number, before = len(self._sources), self._sources[-1]
            if before.boundedness is not Boundedness.BOUNDED:
                raise ConfigurationError(
                    f"HybridSource: source {number} ({type(before).__name__}) has no end, so no "
                    "source can follow it. Make it bounded, or add it last."
                )
            if before.produced_type != source.produced_type:
                raise ConfigurationError(
                    f"HybridSource: all sources need the same type of records, but source {number} "
                    f"has {before.produced_type} and source {number + 1} ({type(source).__name__}) "
                    f"has {source.produced_type}."
                )
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Return the source."""
        return HybridSource(self._sources)
