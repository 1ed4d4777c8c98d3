"""The records of a batch of columns, with those of a key combined to one, for an operator that reduces them. Does not know windows.

Source: combiners of MapReduce (OSDI 2004). See `row_functions.partials` for what is combined.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.model.types import TypeInformation
from penstock.runtime.elements import ColumnBatch, Int64s, RowBatch
from penstock.runtime.keys import KeySelection
from penstock.runtime.row_functions.partials import LEAST_GAIN, Combiner

LEAST_ROWS: Final = 64
_MOST_FRUITLESS: Final = 4
_PAUSE: Final = 256
"""So many batches are not tried after some that had too many keys."""


class CombinedRows(NamedTuple):
    """`keys`: of each row."""

    rows: RowBatch
    keys: list[Any]


class CombiningByKey:
    """Combines the records of an operator's batches by key."""

    def __init__(self, combiner: Combiner, keys: KeySelection) -> None:
        self._combiner = combiner
        self._keys = keys
        self._fruitless = self._pause = 0

    def rows(
        self, batch: ColumnBatch, kind: TypeInformation | None, panes: Int64s | None = None
    ) -> CombinedRows | None:
        """The combined records, those of each pane for themselves; None: the records are needed.

        Args: panes: of each record, shape (len(batch),); None: all are in one. Each row has the timestamp of its first record.
        """
        if kind is None or not self._may_combine(batch, kind, panes):
            return None
        distinct, codes = self._keys.distinct_keys_of(batch)
        if codes is None or len(distinct) * LEAST_GAIN > len(batch):
            self._note_fruitless()
            return None
        groups = codes if panes is None else _groups(codes, len(distinct), panes)
        made = self._combiner.combined(batch, kind, groups)
        if made is None:
            self._note_fruitless()
            return None
        self._fruitless = 0
        stamps = None if batch.timestamps is None else batch.timestamps[made.first]
        keys = [distinct[code] for code in codes[made.first].tolist()]
        return CombinedRows(RowBatch(made.values, stamps), keys)

    def _note_fruitless(self) -> None:
        self._fruitless += 1
        if self._fruitless >= _MOST_FRUITLESS:
            self._fruitless, self._pause = 0, _PAUSE

    def _may_combine(self, batch: ColumnBatch, kind: TypeInformation, panes: Int64s | None) -> bool:
        combining = self._combiner.combining(kind)
        if combining is None or len(batch) < LEAST_ROWS:
            return False
        if self._pause:
            self._pause -= 1
            return False
        places = self._keys.places_in(batch.schema.names, kind)
        if places is None or not all(_is_exact(batch.column(place)) for place in places):
            return False
        is_disordered = panes is not None and bool((panes[1:] < panes[:-1]).any())
        return not (is_disordered and combining.depends_on_order(places))


def _is_exact(array: pa.Array) -> bool:
    """Whether equal values of a key are one value."""
    kind = array.type
    is_kind = pa.types.is_signed_integer(kind) or pa.types.is_string(kind)
    return bool(is_kind and not array.null_count)


def _groups(codes: Int64s, count: int, panes: Int64s) -> Int64s:
    """A number for each key in each pane. `codes`: of the keys, in [0, count)."""
    if panes[0] == panes[-1] and not (panes != panes[0]).any():
        return codes
    _, numbers = np.unique(panes, return_inverse=True)
    found: Int64s = numbers.astype(np.int64) * count + codes
    return found
