"""Kernels of an operator on its batches: rows that a kernel does not know go through the function, and what does not pay is turned
off. Does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.types import TypeInformation
from penstock.runtime.codecs.convert import arrow_schema, to_columns, to_rows
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.partial_columns import DecodedColumns
from penstock.runtime.row_functions.kernels.kernel import Kernel, Made, filter_of, kernel_of
from penstock.runtime.row_functions.plans import Plan
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.runner import ColumnRows

FILTERED_ROWS: Final = 512
"""A filter takes longer in kernels than in one loop on fewer rows."""
ROWS_PER_STEP: Final = 8
"""So do other functions on fewer rows for each step of the kernel. Their loop makes Python objects, which have to become columns."""
_TOLERATED: Final = 4
"""Off, if more than one row in so many is not known."""
_LEAST_BAD: Final = 1024
GUARDED: Final = "more than a quarter of its rows had values that kernels leave to the function"
OUTCOME = tuple[bool, Any]


class Kernels:
    """The kernels of one operator's function.

    Args: call: whether there is a result for a record, and which. kind: the declared type of the results; None: it is a filter.
        told_as: the function's operator, for lines that `told` takes.
    """

    def __init__(
        self,
        call: Callable[[Any], OUTCOME],
        kind: TypeInformation | None,
        told_as: str,
        told: Callable[[str], None],
    ) -> None:
        self._call = call
        self.kind = kind
        self._told_as, self._told = told_as, told
        self._made: dict[int, tuple[Plan, Kernel | None]] = {}
        self._rows = self._bad = 0
        self.why_not = ""
        """Why they are not used any more, or not for the latest plan."""
        self._is_off = False

    def kernel(self, plan: Plan) -> Kernel | None:
        """The kernel of a plan; None: there is none."""
        known = self._made.get(id(plan))
        if known is None:
            kernel, self.why_not = kernel_of_plan(plan, self.kind)
            known = self._made[id(plan)] = plan, kernel
        return known[1]

    def run(self, rows: ColumnRows, plan: Plan) -> ColumnBatch | None:
        """The results for a batch, or the records that a filter keeps; None: the function has to run otherwise. `plan`: holds."""
        batch = rows.batch
        if self._is_off or isinstance(batch, DecodedColumns):
            return None
        kernel = self.kernel(plan)
        if kernel is None or len(batch) < self._least_rows(kernel):
            return None
        try:
            made = kernel.run(batch)
        except Exception as error:
            self._turn_off(f"they raised {type(error).__name__}")
            return None
        if not self._is_known(made, len(batch)):
            return None
        whole = self._completed(rows, made)
        return None if whole is None else self._batch(batch, whole)

    def _least_rows(self, kernel: Kernel) -> int:
        """The size of a batch from which on the kernel pays."""
        return FILTERED_ROWS if self.kind is None else ROWS_PER_STEP * len(kernel.steps)

    def _is_known(self, made: Made, count: int) -> bool:
        """Whether enough rows of the batch have a result."""
        bad = 0 if made.bad is None else int(np.count_nonzero(made.bad))
        self._rows += count
        self._bad += bad
        if self._bad >= _LEAST_BAD and self._bad * _TOLERATED > self._rows:
            self._turn_off(GUARDED)
            self._told(
                f"{self._told_as}: its function does not run as kernels any more: {GUARDED}."
            )
            return False
        return bad * _TOLERATED <= count

    def _turn_off(self, why_not: str) -> None:
        self._is_off, self.why_not = True, why_not

    def _completed(self, rows: ColumnRows, made: Made) -> Made | None:
        """With the results of the function for rows that the kernel does not know, in their order; None: it raises, or they do not have
        the type.
        """
        if made.bad is None:
            return made
        is_bad = pa.array(made.bad)
        records = to_rows(rows.batch.filter(is_bad), rows.type_info).values
        try:
            outcomes = [self._call(record) for record in records]
            columns = self._columns([value for is_kept, value in outcomes if is_kept])
        except Exception:  # It runs again for the whole batch, and raises it properly.
            return None
        kept, places = made.kept, made.bad
        if kept is not None:
            kept = kept.copy()
            kept[made.bad] = [is_kept for is_kept, _ in outcomes]
            places = made.bad & kept
        if self.kind is None:
            return Made([], kept, None)
        if len(columns) != len(made.columns):
            return None
        is_filled = pa.array(places)
        pairs = zip(made.columns, columns, strict=True)
        return Made([_filled(old, is_filled, new) for old, new in pairs], kept, None)

    def _columns(self, results: list[Any]) -> list[pa.Array]:
        if self.kind is None:
            return []
        return list(to_columns(RowBatch(results), self.kind).data.columns)

    def _batch(self, batch: ColumnBatch, made: Made) -> ColumnBatch:
        if self.kind is None:
            whole = batch
        else:
            data = pa.RecordBatch.from_arrays(made.columns, schema=arrow_schema(self.kind))
            whole = ColumnBatch(data, batch.timestamps)
        if made.kept is None or made.kept.all():
            return whole
        return whole.filter(pa.array(made.kept))


def _filled(old: pa.Array, is_filled: pa.BooleanArray, new: pa.Array) -> pa.Array:
    """The array with new values, in their order, where the mask is true."""
    if not pa.types.is_nested(old.type):
        return pc.replace_with_mask(old, is_filled, new)
    # Arrow cannot replace lists.
    mask = is_filled.to_numpy(zero_copy_only=False)
    places = np.arange(len(old))
    places[mask] = np.arange(len(old), len(old) + len(new))
    return pa.concat_arrays([old, new]).take(pa.array(places))


def kernel_of_plan(plan: Plan, kind: TypeInformation | None) -> tuple[Kernel | None, str]:
    """The kernel of a plan, and why there is none. `kind`: the declared type of the results; None: it is a filter."""
    if plan.tree is None or plan.fields is None:
        return None, plan.why_not
    try:
        if kind is None:
            return filter_of(plan.tree, plan.fields.types), ""
        return kernel_of(plan.tree, plan.fields, kind), ""
    except Refused as refused:
        return None, str(refused)
    except RecursionError:
        return None, "it is nested too deeply"
