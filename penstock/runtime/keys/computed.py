"""ComputedKeys: the keys of a batch without a call of the key selector for each record. Does not know operators.

From rows, the selector's body is a comprehension over the records. From columns, it is one over the columns that it reads. Where it
raises, the selector itself is called, so an error names its record and line as always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.model.texts.bounded_text import bounded_repr
from penstock.model.types import TypeInformation
from penstock.runtime.elements import ColumnBatch
from penstock.runtime.row_functions.inlining import comprehension, inlined, is_of_python
from penstock.runtime.row_functions.plans import Way
from penstock.runtime.row_functions.runner import (
    PLEASE_REPORT,
    ColumnRows,
    RowFunction,
    Samples,
    are_same,
)

TOLD_AS: Final = "key_by"


class ComputedKeys:
    """How the keys of one selection are computed. `is_on`: whether they may be. Pickled, it has nothing else."""

    __slots__ = ("_by_columns", "_call", "_is_on", "_plan", "_run", "_samples", "_told")

    def __init__(self, is_on: bool = True) -> None:
        self._is_on = is_on
        self._told: Callable[[str], None] = _to_nobody
        self._call: Any = None

    @property
    def is_on(self) -> bool:
        """Whether keys may be computed; else the selector is called for each record."""
        return self._is_on

    def turn_off(self) -> None:
        """From now on the selector is called for each record."""
        self._is_on = False

    def open(self, told: Callable[[str], None], *, may_compute: bool = True) -> None:
        """Called by its task before it takes keys. `told`: takes a line when something is wrong. `may_compute`: False turns it off."""
        self._told = told
        self._is_on = self._is_on and may_compute

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
            made: list[Any] = run(values)
        except Exception:  # The selector is called instead, and raises it again.
            return None
        return made if self._are_as_called(call, values, made) else None

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
        self._samples = Samples()
        self._by_columns = RowFunction(call, TOLD_AS, self._tell, is_on=True)
        self._plan = inlined(call)
        self._run = comprehension(self._plan, call)

    def _are_as_called(
        self, call: Callable[[Any], Any], values: Sequence[Any], made: Sequence[Any]
    ) -> bool:
        """Compare some keys with those that the selector returns. If they differ, it is called from now on."""
        for index in self._samples.of(len(values)):
            record = values[index]
            if not is_of_python(record):
                continue
            try:
                expected = call(record)
            except Exception as error:
                expected = error
            if not are_same(made[index], expected):
                self._run = None
                self._tell(
                    f"{TOLD_AS}: for the record {bounded_repr(record)} the key selector returns "
                    f"{bounded_repr(expected)}, but computed without a call the key is "
                    f"{bounded_repr(made[index])}. The selector is called from now on. "
                    f"{PLEASE_REPORT}"
                )
                return False
        return True

    def _tell(self, line: str) -> None:
        self._told(line)


def _to_nobody(_line: str) -> None:
    """Does nothing."""
