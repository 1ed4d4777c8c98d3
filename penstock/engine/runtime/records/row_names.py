"""Names for the Rows that reduce functions return without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.model.row import Row, make_row


def named(
    call: Callable[[Any, Any], Any], names: tuple[str, ...] | None
) -> Callable[[Any, Any], Any]:
    """Give result Rows that have no names these ones. The function gets a result as its next first argument, and typed state would
    return it with these names. `names` None: of no Row.
    """
    if names is None:
        return call

    def reduced(first: Any, second: Any) -> Any:
        result = call(first, second)
        return _with_names(result, names) if type(result) is Row else result

    return reduced


def _with_names(row: Row, names: tuple[str, ...]) -> Row:
    """The Row; one without names with these ones, if they are as many."""
    if row._fields is None and len(row) == len(names):
        return make_row(names, row, row.get_row_kind())
    return row
