"""ObjectFunction: a function of one record, on batches of Python objects of any class, without a call for each record.

Its body is a comprehension over the records, which does the function's own operations in their order. Where it raises, the function itself
has to be called with the records of the batch, so errors are its own. Does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.model.texts.bounded_text import bounded_repr
from penstock.runtime.row_functions.inlining import comprehension, inlined, is_of_python
from penstock.runtime.row_functions.runner import PLEASE_REPORT, Samples, are_same

_LEAST_FAILED: Final = 8
_TOLERATED: Final = 4
"""Off, if more than one batch in so many has a record at which the function raises: these batches run twice."""


class ObjectFunction:
    """How one function runs on objects. `told`: takes a line when something is wrong. `told_as`: the function's operator, for that line.
    `is_filter`: only the truth of its results is wanted.
    """

    def __init__(
        self,
        call: Callable[[Any], Any],
        told_as: str,
        told: Callable[[str], None],
        *,
        is_filter: bool,
    ) -> None:
        self._call = call
        self._is_filter = is_filter
        self._told_as, self._told = told_as, told
        self._samples = Samples()
        self._batches = self._failed = 0
        self._is_read = False
        self._run: Callable[[list[Any]], list[Any]] | None = None

    def results(self, values: list[Any]) -> list[Any] | None:
        """What the function returns for each record; None: it has to be called."""
        if not self._is_read:
            # The function is read when it is first needed: all that is outside of it has its values then.
            self._is_read = True
            self._plan = inlined(self._call)
            self._run = comprehension(self._plan, self._call, is_filter=self._is_filter)
        run = self._run
        if run is None or not self._plan.may_run():
            return None
        self._batches += 1
        try:
            made = run(values)
        except Exception:  # The function is called instead, and raises it again.
            self._failed += 1
            if self._failed >= _LEAST_FAILED and self._failed * _TOLERATED > self._batches:
                self._run = None
            return None
        return made if self._is_as_called(values, made) else None

    def _is_as_called(self, values: list[Any], made: list[Any]) -> bool:
        """Compare some results with those of the function, of records that it cannot change. If they differ, it is called from now on."""
        for index in self._samples.of(len(values)):
            record = values[index]
            if not is_of_python(record):
                continue
            try:
                expected = self._call(record)
                if self._is_filter:
                    expected = bool(expected)
            except Exception as error:
                expected = error
            if not are_same(made[index], expected):
                self._run = None
                self._told(
                    f"{self._told_as}: for the record {bounded_repr(record)} its function returns "
                    f"{bounded_repr(expected)}, but its body within the loop gives "
                    f"{bounded_repr(made[index])}. The function is called from now on. "
                    f"{PLEASE_REPORT}"
                )
                return False
        return True
