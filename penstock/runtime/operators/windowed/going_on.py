"""Calls of the functions of grid windows for many records or keys at once, which go on behind what is put aside.

Does not know windows' times. Source: see `grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from penstock.runtime.operator import MAX_EMIT
from penstock.runtime.operators.pauses import Pauses
from penstock.runtime.operators.windowed.base import WindowOperator
from penstock.runtime.state.window_tables import Fold


def folding(operator: WindowOperator, fold: Fold) -> Fold:
    """Adds values to a table of accumulators; goes on behind records that are put aside."""

    def fold_on(table: dict[Any, Any], skeys: Iterable[Any], values: Iterable[Any]) -> None:
        # A record is taken from both iterators before the function is called.
        left_keys, left_values = iter(skeys), iter(values)
        while True:
            try:
                fold(table, left_keys, left_values)
            except Exception as error:
                operator.put_current_aside(error)
            else:
                return

    return fold if operator.poison is None else fold_on


def results_of(
    operator: WindowOperator,
    window: Any,
    rows: Iterable[tuple[Any, Any]],
    result: Callable[[Any], Any] | None,
    pauses: Pauses,
) -> Iterator[list[Any] | None]:
    """The results of a window, in lists of at most MAX_EMIT, and None where it may be left.

    Args: rows: state keys with their contents. result: from an accumulator to its result; None: the contents are lists of results.
    Raises: RuntimeError: `result` raised StopIteration, at which an iteration in C would end without an error.
    """
    last: Any = None
    is_through = False

    def contents() -> Iterator[Any]:
        nonlocal last, is_through
        for skey, kept in rows:
            last = skey
            yield kept
        is_through = True

    results = chain.from_iterable(contents()) if result is None else map(result, contents())
    is_over = False
    while not is_over:
        values: list[Any] = []
        is_pause = False
        while not (is_over or is_pause or len(values) == MAX_EMIT):
            before, room = len(values), MAX_EMIT - len(values)
            wanted = room if result is None else min(room, pauses.calls)
            try:
                values.extend(islice(results, wanted))
                found = len(values) - before
                _check(is_through=is_through or found == wanted)
            except BaseException as error:
                operator.put_window_aside(error, last, window)
            else:
                is_over = found < wanted
                is_pause = result is not None and pauses.is_due(found)
        if values:
            yield values
        if is_pause:
            yield None
            pauses.resume()


def _check(*, is_through: bool) -> None:
    if not is_through:
        raise RuntimeError(
            "get_result raised StopIteration (a next() on an exhausted iterator?): give next() a "
            "default, "
            "or catch it"
        )
