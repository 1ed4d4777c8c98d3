"""Records that go to more than one consumer: each consumer gets its own, so that none sees what another changes in place.

Does not know operators. Source: Flink CopyingBroadcastingOutputCollector, CopyingChainingOutput (object reuse off); differs: a batch at
a time, only where a record goes to several consumers, and only if it can be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import pyarrow as pa

from penstock.engine.model.graph.chain import ChainSpec, ChainTarget
from penstock.engine.model.type_information import TypeInformation
from penstock.engine.runtime.codecs.convert import is_columnar
from penstock.engine.runtime.elements import Element, RowBatch
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.engine.runtime.records.frozen import is_immutable
from penstock.engine.runtime.records.output_copies import own_copy


class RecordSharing:
    """Decides which consumers in a chain get copies of records."""

    def __init__(self, spec: ChainSpec) -> None:
        self._as_columns = frozenset(
            place
            for place, output in enumerate(spec.outputs)
            if output.data_set_id is not None
            and isinstance(output.element_type, TypeInformation)
            and is_columnar(output.element_type)
        )
        """Outputs that keep no record, because records are written as columns at once."""
        self._reuses_objects = any(
            getattr(one.operator, "reuses_objects", False) for one in spec.operators
        )

    def copies(
        self, element: Element, outputs: Sequence[int], targets: Sequence[ChainTarget]
    ) -> Iterator[Element]:
        """The element for each output and then for each target of an operator."""
        if self._reuses_objects or (len(targets) <= 1 and self._as_columns.issuperset(outputs)):
            return repeat(element)
        return shared(element, len(outputs) + len(targets))


def shared(element: Element, consumers: int) -> Iterator[Element]:
    """The element for each consumer. Copies are made when they are asked for; the last consumer gets the element itself.

    Raises: TypeError: a record cannot be copied.
    """
    copy = _copier(element) if consumers > 1 else None
    for _ in range(consumers - 1):
        yield element if copy is None else copy()
    if consumers:
        yield element


def _copier(element: Element) -> Callable[[], Element] | None:
    """Makes copies of the records that share nothing changeable with them. None: they cannot be changed."""
    if isinstance(element, RowBatch) and not is_immutable(element.values):
        return lambda: RowBatch(_copies(element.values), element.timestamps)
    if isinstance(element, DecodedColumns) and any(map(_is_nested, element.schema.types)):
        return lambda: element.with_records(_copies(element.records))
    return None


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _copies(records: list[object]) -> list[object]:
    copies = list(map(own_copy, records))
    for one, copy in zip(records, copies, strict=True):
        if copy is one and isinstance(one, Iterator):
            raise TypeError(
                f"a record of type {type(one).__name__} goes to several consumers, and an iterator "
                "can be read only once: emit a list of its items"
            )
    return copies
