"""A source of values that the program holds in memory. Source: Flink fromCollection.

The values travel with the operator's code, once per TaskManager, and are read in one split. Does not know files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
)
from penstock.engine.runtime.codecs.convert import coerce_collection
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.records.output_copies import own_copies

ROWS_PER_BATCH: Final = 4096
ONLY_SPLIT: Final = "collection"
_REFUSALS: Final = (TypeError, ValueError, AssertionError, OverflowError)


class CollectionSource(Source):
    """The source of `env.from_collection`, which programs call."""

    boundedness = Boundedness.BOUNDED
    gives_rows = True

    def __init__(self, values: list[Any], type_info: TypeInformation | None) -> None:
        self._values = values
        self._type_info = type_info

    @classmethod
    def of(cls, values: Iterable[Any], type_info: TypeInformation | None) -> CollectionSource:
        """The values converted to the declared type: tuples become Rows, numbers wrap to its width."""
        if not isinstance(values, Iterable):
            raise TypeError(f"from_collection takes a list of values, got {values!r:.200}.")
        copied = list(values)
        if type_info is not None:
            try:
                copied = list(coerce_collection(copied, type_info))
            except _REFUSALS as error:
                kind = next(kind for kind in _REFUSALS if isinstance(error, kind))
                raise kind(f"from_collection: {error}") from error
        return cls(copied, type_info)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, [ONLY_SPLIT])

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _CollectionReader(context, self._values)


class _CollectionReader(PolledSplitReader):
    counts_records = False

    def __init__(self, context: ReaderContext, values: list[Any]) -> None:
        super().__init__(context)
        self._values = values

    def read(self, split: Any) -> Iterator[Batch]:
        return self.read_from(split, 0)

    def read_from(self, split: Any, rows: int) -> Iterator[Batch]:
        for start in range(rows, len(self._values), ROWS_PER_BATCH):
            yield RowBatch(own_copies(self._values[start : start + ROWS_PER_BATCH]))
