"""RowFunction: one function of an operator on batches of columns. Decides batch by batch how it runs.

Only a function that changes nothing runs as a comprehension. So a batch at which it raises is run again by the function itself, which
raises at the same record with its own traceback. Does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.model.types import TypeInformation
from penstock.runtime.codecs.convert import to_rows
from penstock.runtime.elements import ColumnBatch, Int64s, RowBatch
from penstock.runtime.row_functions.interpreters import is_watched
from penstock.runtime.row_functions.plans import (
    Plan,
    Stage,
    Way,
    add_flat,
    as_written,
    fields_plan_of,
    filter_plan_of,
    fused_plan,
    plan_of,
)
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.rendering import TooLarge

_LEAST_FAILED: Final = 8
_TOLERATED: Final = 4
"""Off, if more than one batch in so many has a record at which the function raises: these batches run twice."""
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

    def made(self) -> RowBatch:
        return to_rows(self.batch, self.type_info)

    def record_at(self, index: int) -> Any:
        """The record as the function expects it."""
        return to_rows(self.batch.slice(index, index + 1), self.type_info).values[0]


class OnObjects(Protocol):
    """A function on Python objects, without a call for each of them. `is_changeable`: somebody else may change what it returns."""

    is_changeable: bool

    def results(self, values: list[Any]) -> list[Any] | None:
        """What it returns for each record; None: it has to be called."""


class RowFunction:
    """How one function runs. `name`: its operator."""

    def __init__(self, call: Callable[..., Any], name: str, is_on: bool) -> None:
        self.call = call
        self._name = name
        self._off = None if is_on else as_written(TURNED_OFF)
        self._plans: list[tuple[pa.Schema, TypeInformation | None, Plan]] = []
        self._batches = self._failed = 0
        self.latest: Plan | None = None
        self.on_objects: OnObjects | None = None

    def rows(self, batch: ColumnBatch, type_info: TypeInformation | None) -> RowBatch:
        """The rows of a batch, made at once if the function is called with records. Raises: TypeError: as `to_rows`."""
        plan = self.plan(batch, type_info)
        self.latest = plan
        is_written = plan.way is Way.RECORDS or not plan.holds()
        if is_written or (plan.way is Way.COLUMNS and is_watched()):
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
            plan = self._made_plan(schema, type_info)
        except Exception as error:
            # The function itself needs no plan.
            plan = as_written(f"it could not be read: {type(error).__name__}")
        self._plans.append((schema, type_info, plan))
        return plan

    plan_of = staticmethod(plan_of)
    """How a function runs on columns of a schema."""

    def _made_plan(self, schema: pa.Schema, type_info: TypeInformation | None) -> Plan:
        return type(self).plan_of(self.call, schema, type_info)

    def results(self, rows: ColumnRows) -> list[Any] | None:
        """What the function returns for each record; None: the function has to be called."""
        self._batches += 1
        try:
            return self._run(rows)
        except Exception:  # The function is called instead, and raises it again.
            self._note_failure()
            return None

    def _run(self, rows: ColumnRows) -> list[Any]:
        return rows.plan.results(rows.batch)

    def _note_failure(self) -> None:
        self._failed += 1
        if self._failed >= _LEAST_FAILED and self._failed * _TOLERATED > self._batches:
            self._off = as_written("it raised errors in more than a quarter of its batches")


class FieldsFunction(RowFunction):
    """A function that has state or timers. It is always called, with the fields of its records where it cannot tell them from records."""

    plan_of = staticmethod(fields_plan_of)


class FilterFunction(RowFunction):
    """The function of a filter."""

    plan_of = staticmethod(filter_plan_of)


class FlatFunction(RowFunction):
    """The function of a flat map. Where no record has a timestamp, only the items of the lists that it returns are made."""

    @staticmethod
    def is_flat(rows: ColumnRows) -> bool:
        """Whether `results` gives items, and not lists of them."""
        return rows.timestamps is None and rows.plan.run_flat is not None

    def _made_plan(self, schema: pa.Schema, type_info: TypeInformation | None) -> Plan:
        plan = super()._made_plan(schema, type_info)
        try:
            add_flat(plan, self._name)
        except TooLarge:
            plan.run_flat = None
        return plan

    def _run(self, rows: ColumnRows) -> list[Any]:
        return rows.plan.items(rows.batch) if self.is_flat(rows) else super()._run(rows)


class FusedRows(RowBatch):
    """What came out of the last of some operators that run as one. `counts`: of the results of each of them."""

    __slots__ = ("counts",)

    def __init__(self, made: list[Any], stamps: Int64s | None, counts: tuple[int, ...]) -> None:
        super().__init__(made, stamps)
        self.counts = counts

    def plain(self) -> RowBatch:
        return RowBatch(self.values, self.timestamps)


class FusedColumns(ColumnBatch):
    """As `FusedRows`, where the results are columns."""

    __slots__ = ("counts",)

    def __init__(self, made: ColumnBatch, counts: tuple[int, ...]) -> None:
        super().__init__(made.data, made.timestamps)
        self.counts = counts

    def plain(self) -> ColumnBatch:
        return ColumnBatch(self.data, self.timestamps)


class InKernels(Protocol):
    """Functions on whole columns, where the results are wanted as columns."""

    def run(self, rows: ColumnRows, plan: Plan) -> ColumnBatch | None:
        """The results; None: there are none for this batch."""


class FusedFunctions(RowFunction):
    """Functions of operators that follow each other in a chain, run as one. At most one of them is a filter."""

    kernels: InKernels | None = None

    def __init__(self, stages: Sequence[Stage], name: str) -> None:
        super().__init__(stages[0].call, name, is_on=True)
        self.stages = stages

    def run_in_kernels(self, kernels: InKernels) -> None:
        """From now on they run on whole columns, where they can."""
        self.kernels = kernels

    def run(self, rows: ColumnRows) -> FusedRows | FusedColumns | None:
        """What comes out of the last of them; None: they run one by one."""
        plan = self.plan(rows.batch, rows.type_info)
        if plan.way is Way.RECORDS or not plan.holds():
            return None
        columns = None if self.kernels is None else self.kernels.run(rows, plan)
        if columns is not None:
            return FusedColumns(columns, self._counts(len(rows), len(columns)))
        if rows.timestamps is not None and any(one.keeps for one in self.stages):
            return None  # It would not be known whose timestamps are left.
        made = self.results(ColumnRows(rows.batch, rows.type_info, plan))
        if made is None:
            return None
        return FusedRows(made, rows.timestamps, self._counts(len(rows), len(made)))

    def _counts(self, count: int, kept: int) -> tuple[int, ...]:
        """How many results each of them has."""
        counts = []
        for stage in self.stages:
            count = kept if stage.keeps else count
            counts.append(count)
        return tuple(counts)

    def outcome(self, record: Any) -> tuple[bool, Any]:
        """Whether all of them let a record through, and what comes out."""
        for stage in self.stages:
            result = stage.call(record)
            if not stage.keeps:
                record = result
            elif not result:
                return False, None
        return True, record

    def _made_plan(self, schema: pa.Schema, type_info: TypeInformation | None) -> Plan:
        try:
            plan = fused_plan(self.stages, schema, type_info)
        except (Refused, TooLarge, RecursionError) as refused:
            return as_written(str(refused))
        # Lists that others refer to are for the last operator to look at.
        return as_written("it may give lists that it has not made") if plan.is_shared else plan
