"""CombiningWindows: base of windows that add many records at once. A reduce runs within the loop, and one that is a sum or the like combines
the records of columns first. Does not know tables or firing.
"""

from __future__ import annotations

from penstock.model.types import TypeInformation
from penstock.runtime.elements import NO_TIMESTAMP, ColumnBatch, RowBatch
from penstock.runtime.operators.combined_rows import CombinedRows, CombiningByKey
from penstock.runtime.operators.windowed.base import WindowOperator
from penstock.runtime.state.window_tables import Fold
from penstock.runtime.windowing.assigners import _TimeGrid


class CombiningWindows(WindowOperator):
    """Its assigner is a grid of event time."""

    _combining: CombiningByKey | None = None

    def made_fold(self) -> Fold:
        """What adds values to a table of accumulators. Call it once, when the operator is opened."""
        contents = self.contents
        if not self.functions_as_columns:
            return contents.fold()
        name = str(self.windows.owner)
        combiner = contents.combiner(name, self.complain)
        if combiner is not None and len(self.selections) == 1:
            self._combining = CombiningByKey(combiner, self.keys)
        return contents.fold_in_loop(name, self.complain)

    def rows_from(
        self, batch: ColumnBatch, type_info: TypeInformation | None, input_index: int
    ) -> RowBatch:
        """The records; where the reduce is a sum or the like, one for those of each key in each pane, with the time of one of them."""
        combined = self._combined_rows(batch, type_info)
        if combined is None:
            return super().rows_from(batch, type_info, input_index)
        self._found = combined.rows.values, combined.keys
        return combined.rows

    def _combined_rows(
        self, batch: ColumnBatch, type_info: TypeInformation | None
    ) -> CombinedRows | None:
        stamps, combining, grid = batch.timestamps, self._combining, self.assigner
        if combining is None or stamps is None or not len(stamps) or self.key_timers is not None:
            return None
        assert isinstance(grid, _TimeGrid)
        least = int(stamps.min())
        if least == NO_TIMESTAMP:
            return None
        # Late records are counted, and fire their windows, one by one.
        last_of = grid.last_ms
        if any(last_of(one) <= self.timers.current_watermark for one in grid.starts_at(least)):
            return None
        return combining.rows(batch, type_info, grid.panes_of(stamps))
