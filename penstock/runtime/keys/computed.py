"""ComputedKeys: the keys of a batch without a call of the key selector for each record. Does not know operators.

From rows, the selector's body is a comprehension over the records. From columns, it is one over the columns that it reads. Where it
raises, the selector itself is called, so an error names its record and line as always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.model.types import TypeInformation
from penstock.runtime.elements import ColumnBatch
from penstock.runtime.row_functions.inlining import comprehension, inlined
from penstock.runtime.row_functions.plans import Way
from penstock.runtime.row_functions.runner import ColumnRows, RowFunction


class ComputedKeys:
    """How the keys of one selection are computed. `is_on`: whether they may be. Pickled, it has nothing else."""

    __slots__ = ("_by_columns", "_call", "_is_on", "_plan", "_run")

    def __init__(self, is_on: bool = True) -> None:
        self._is_on = is_on
        self._call: Any = None

    @property
    def is_on(self) -> bool:
        """Whether keys may be computed; else the selector is called for each record."""
        return self._is_on

    def turn_off(self) -> None:
        """From now on the selector is called for each record."""
        self._is_on = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._is_on,)

    def of_rows(self, call: Callable[[Any], Any], values: list[Any]) -> list[Any] | None:
        """What the selector returns for each record; None: it has to be called."""
        if not self._is_on:
            return None
        self._know(call)
        run = self._run
        if run is None or not self._plan.may_run():
            return None
        try:
            return run(values)
        except Exception:  # The selector is called instead, and raises it again.
            return None

    def of_columns(
        self, call: Callable[[Any], Any], batch: ColumnBatch, type_info: TypeInformation | None
    ) -> list[Any] | None:
        """As `of_rows`, for the records of a batch of columns, which are not made."""
        if not self._is_on:
            return None
        self._know(call)
        plan = self._by_columns.plan(batch, type_info)
        if plan.way is not Way.COLUMNS:
            return None
        rows = self._by_columns.rows(batch, type_info)
        return self._by_columns.results(rows) if isinstance(rows, ColumnRows) else None

    def _know(self, call: Callable[[Any], Any]) -> None:
        if self._call is call:
            return
        self._call = call
        self._by_columns = RowFunction(call, "key_by", is_on=True)
        self._plan = inlined(call)
        self._run = comprehension(self._plan, call)
