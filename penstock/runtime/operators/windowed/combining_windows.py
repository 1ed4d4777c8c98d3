"""CombiningWindows: base of windows that add many records at once. A reduce runs within the loop, and one that is a sum or the like combines
the records of columns first. An aggregate may get the fields that it reads. Does not know tables or firing.
"""

from __future__ import annotations

from typing import Any

from penstock.model.types import TypeInformation
from penstock.runtime.elements import NO_TIMESTAMP, ColumnBatch, RowBatch
from penstock.runtime.operators.combined_rows import CombinedRows, CombiningByKey
from penstock.runtime.operators.windowed.base import WindowOperator
from penstock.runtime.operators.windowed.functions import AggregateContents
from penstock.runtime.row_functions.additions import Additions
from penstock.runtime.row_functions.runner import ColumnRows
from penstock.runtime.state.window_tables import Fold, Sums
from penstock.runtime.windowing.assigners import _TimeGrid


class CombiningWindows(WindowOperator):
    """Its assigner is a grid of event time."""

    _combining: CombiningByKey | None = None
    _additions: Additions | None = None
    _lent_values: tuple[ColumnRows, list[Any]] | None = None
    """The batch that is being added, if the aggregate gets fields, and what it gets for each record."""

    def made_fold(self) -> Fold:
        """What adds values to a table of accumulators. Call it once, when the operator is opened."""
        contents = self.contents
        if not self.functions_as_columns:
            return contents.fold()
        # A record that is put aside has to be whole.
        self.may_get_fields = self.poison is None and self.is_given_fields()
        if self.poison is None:
            self._additions = contents.additions()
        combiner = contents.combiner()
        if combiner is not None and len(self.selections) == 1:
            self._combining = CombiningByKey(combiner, self.keys)
        return contents.fold_in_loop()

    def is_given_fields(self) -> bool:
        """Whether it has an aggregate, and nothing that needs whole records, as late ones of a side output."""
        return isinstance(self.contents, AggregateContents) and self.late_tag is None

    def values_of(self, rows: RowBatch) -> list[Any]:
        """What is added for each record."""
        self._lent_values = None
        if not isinstance(rows, ColumnRows):
            return rows.values
        values = list(rows.plan.records(rows.batch, rows.known))
        self._lent_values = rows, values
        return values

    def waits(self, start: int) -> bool:
        """Whether a window has not fired."""
        grid = self.assigner
        assert isinstance(grid, _TimeGrid)
        return grid.last_ms(start) > self.timers.current_watermark

    def sums_of(self, skeys: list[Any], values: list[Any], starts: list[int]) -> Sums | None:
        """What these records add to each of these windows that has not fired; None: they are added one by one."""
        if self._additions is None:
            return None
        windows, are_lent = sum(map(self.waits, starts)), self._lent_values is not None
        return self._additions.sums(skeys, values, windows, are_lent=are_lent)

    def give_back_values(self) -> None:
        """All that `values_of` gave was added, so nothing of the batch is kept."""
        self.watched([])
        self._lent_values = None

    def _record_at(self, index: int) -> Any:
        value = super()._record_at(index)
        if self._lent_values is None:
            return value
        rows, values = self._lent_values
        places = (place for place, one in enumerate(values) if one is value)
        place = next(places, None)
        return value if place is None else rows.record_at(place)

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
