"""Takes the key of each record before the records are distributed by key, so that a record without a key can be put aside.

Where records are distributed and where keyed state is, the key is taken again. Source: none in Flink, where a key selector that fails
fails the job.
"""

from __future__ import annotations

from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.keys.hash_arrays import hash_keys
from penstock.engine.runtime.operator import Emitted, Operator
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.records.parts import in_parts


class KeyCheckOperator(Operator):
    """Passes the records on whose key can be taken, has the declared type, and can be hashed."""

    keeps_records = True

    def __init__(self, keys: KeySelection) -> None:
        self.keys = keys

    @property
    def handles_poison(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        if self.poison is None:
            return (batch,)
        return in_parts(self._with_keys, batch, self.put_aside)

    def _with_keys(self, batch: Batch) -> RowBatch:
        rows = rows_of(batch)
        hash_keys(self.keys.keys_of_rows(rows.values))
        return rows
