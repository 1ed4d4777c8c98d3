"""RowFunction: one function of an operator on batches of columns. Chooses batch by batch how it runs.

Only a function that changes nothing runs as a comprehension. So a batch at which it raises is run again by the function itself, which
raises at the same record with its own traceback. Does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.convert import to_rows, to_shown_rows
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.row_functions.known_code import is_watched
from penstock.engine.runtime.row_functions.plans import (
    Plan,
    Strategy,
    as_written,
    fields_plan_of,
    filter_plan_of,
    plan_of,
)

_LEAST_FAILED: Final = 8
_TOLERATED: Final = 4
"""Off, if more than one batch in this many has a record at which the function raises: these batches run twice."""
_MOST_PLANS: Final = 16
TURNED_OFF: Final = "penstock.task.functions-as-columns is false"


class ColumnRows(RowBatch):
    """The rows of a batch of columns. They are made when somebody asks for them. `known`: values of some columns."""

    __slots__ = ("batch", "known", "plan", "type_info")

    def __init__(self, batch: ColumnBatch, type_info: TypeInformation | None, plan: Plan) -> None:
        super().__init__([], batch.timestamps)
        self.batch = batch
        self.type_info = type_info
        self.plan = plan
        self.known: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.batch)

    def decode_doubtful(self) -> None:
        """Decode what the function reads and Python may not have. Raises: NoPythonValue, which names the column."""
        self.plan.add_doubtful(self.batch, self.known)

    def made(self) -> RowBatch:
        """The records for the function: a field that it does not read is Arrow's text where Python does not have the value. Raises: as
        `decode_doubtful`.
        """
        self.decode_doubtful()
        return to_shown_rows(self.batch, self.type_info)

    def record_at(self, index: int) -> Any:
        """The record as the function expects it."""
        return to_shown_rows(self.batch.slice(index, index + 1), self.type_info).values[0]


class RowFunction:
    """How one function runs."""

    def __init__(self, call: Callable[..., Any], is_on: bool) -> None:
        self.call = call
        self._off = None if is_on else as_written(TURNED_OFF)
        self._plans: list[tuple[pa.Schema, TypeInformation | None, Plan]] = []
        self._batches = self._failed = 0

    def rows(self, batch: ColumnBatch, type_info: TypeInformation | None) -> RowBatch:
        """The rows of a batch, made at once if the function is called with records. Raises: TypeError: as `to_rows`."""
        plan = self.plan(batch, type_info)
        is_written = plan.strategy is Strategy.RECORDS or not plan.holds()
        if is_written or (plan.strategy is Strategy.COLUMNS and is_watched()):
            return to_rows(batch, type_info)
        return ColumnRows(batch, type_info, plan)

    def plan(self, batch: ColumnBatch, type_info: TypeInformation | None) -> Plan:
        """How the function runs on such columns."""
        return self.plan_for(batch.schema, type_info)

    def plan_for(self, schema: pa.Schema, type_info: TypeInformation | None) -> Plan:
        """`plan` for batches with these columns, before one has come."""
        if self._off is not None:
            return self._off
        for known, kind, plan in self._plans:
            if kind is type_info and known.equals(schema):
                return plan
        if len(self._plans) >= _MOST_PLANS:
            return as_written("its columns change too often")
        try:
            plan = type(self).plan_of(self.call, schema, type_info)
        except Exception as error:
            # The function itself needs no plan.
            plan = as_written(f"it could not be read: {type(error).__name__}")
        self._plans.append((schema, type_info, plan))
        return plan

    plan_of = staticmethod(plan_of)
    """How a function runs on columns of a schema."""

    def results(self, rows: ColumnRows) -> list[Any] | None:
        """What the function returns for each record; None: the function has to be called."""
        self._batches += 1
        try:
            return rows.plan.results(rows.batch, rows.known)
        except Exception:  # The function is called instead, and raises it again.
            self._note_failure()
            return None

    def _note_failure(self) -> None:
        self._failed += 1
        if self._failed >= _LEAST_FAILED and self._failed * _TOLERATED > self._batches:
            self._off = as_written("it raised errors in more than a quarter of its batches")


class FieldsFunction(RowFunction):
    """A function that has state or timers. It is always called, with the fields of its records where it cannot distinguish them from records."""

    plan_of = staticmethod(fields_plan_of)


class FilterFunction(RowFunction):
    """The function of a filter."""

    plan_of = staticmethod(filter_plan_of)
