"""Records that go to more than one consumer: each consumer gets its own, so that none sees what another changes in place.

Does not know operators. Source: Flink CopyingBroadcastingOutputCollector, CopyingChainingOutput (object reuse off); differs: a batch at
a time, only where a record goes to several consumers, and only if it can be changed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat

from penstock.model.graph.chain import ChainSpec, ChainTarget
from penstock.model.row import make_rows
from penstock.model.type_information import TypeInformation
from penstock.runtime.codecs.convert import is_columnar
from penstock.runtime.elements import Element, Int64s, RowBatch
from penstock.runtime.records.emissions import own_copy
from penstock.runtime.records.frozen import Column, Dumps, FrozenRows, Pickled, frozen


class RecordSharing:
    """Decides which consumers in a chain get copies of records."""

    def __init__(self, spec: ChainSpec, dumps: Dumps) -> None:
        self._dumps = dumps
        self._as_columns = frozenset(
            place
            for place, output in enumerate(spec.outputs)
            if output.data_set_id is not None
            and isinstance(output.element_type, TypeInformation)
            and is_columnar(output.element_type)
        )
        """Outputs that keep no record, because records are written as columns at once."""

    def copies(
        self, element: Element, outputs: Sequence[int], targets: Sequence[ChainTarget]
    ) -> Iterator[Element]:
        """The element for each output and then for each target of an operator."""
        if len(targets) <= 1 and self._as_columns.issuperset(outputs):
            return repeat(element)
        return shared(element, len(outputs) + len(targets), self._dumps)


def shared(element: Element, consumers: int, dumps: Dumps) -> Iterator[Element]:
    """The element for each consumer. Copies are made when they are asked for; the last consumer gets the element itself."""
    copy = _copier(element, dumps) if consumers > 1 else None
    for _ in range(consumers - 1):
        yield element if copy is None else copy()
    if consumers:
        yield element


def _copier(element: Element, dumps: Dumps) -> Callable[[], RowBatch] | None:
    """Makes copies of the records that share nothing changeable with them. None: these are not rows, they cannot be changed,
    or they cannot be pickled.
    """
    if not isinstance(element, RowBatch):
        return None
    try:
        column = frozen(element.values, dumps)
    # The pickling code of a record may raise anything. Such a record could not leave this task
    # anyway.
    except Exception:
        return None
    return None if column is element.values else partial(_batch_of, column, element.timestamps)


def _batch_of(column: Column, timestamps: Int64s | None) -> RowBatch:
    if isinstance(column, FrozenRows):
        count = len(column.values)
        values = make_rows(column.fields, column.values, count, repeat(column.row_kind))
    elif isinstance(column, Pickled):
        values = [value for chunk in column.chunks for value in pickle.loads(chunk)]
    else:
        values = list(map(own_copy, column))
    return RowBatch(values, timestamps)
