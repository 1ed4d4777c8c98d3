"""ObjectFunction: a function of one record, on batches of scalars and tuples of them, without a call for each record.

Its body is a comprehension over the records, which does the function's own operations in their order. None of these is code of the user,
because the records of each such batch are of Python's own classes, and nothing changes. Where it raises, the function itself has to be
called with the records of the batch, so errors are its own. Does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.runtime.row_functions.inlining import comprehension, inlined
from penstock.runtime.row_functions.known_code import are_of_scalars

_LEAST_FAILED: Final = 8
_TOLERATED: Final = 4
"""Off, if more than one batch in so many has a record at which the function raises: these batches run twice."""


class ObjectFunction:
    """How one function runs on objects. `is_filter`: only the truth of its results is wanted."""

    def __init__(self, call: Callable[[Any], Any], *, is_filter: bool) -> None:
        self._call = call
        self._is_filter = is_filter
        self._batches = self._failed = 0
        self._is_read = False
        self.is_changeable = True
        """Whether somebody else may change what it returns."""
        self._run: Callable[[list[Any]], list[Any]] | None = None

    def results(self, values: list[Any]) -> list[Any] | None:
        """What the function returns for each record; None: it has to be called."""
        if not self._is_read:
            # The function is read when it is first needed: all that is outside of it has its values then.
            self._is_read = True
            self._plan = inlined(self._call, takes_scalars=True)
            self.is_changeable = self._plan.is_changeable
            self._run = comprehension(self._plan, self._call, is_filter=self._is_filter)
        run = self._run
        if run is None or not self._plan.may_run() or not are_of_scalars(values):
            return None
        self._batches += 1
        try:
            return run(values)
        except Exception:  # The function is called instead, and raises it again.
            self._failed += 1
            if self._failed >= _LEAST_FAILED and self._failed * _TOLERATED > self._batches:
                self._run = None
            return None
