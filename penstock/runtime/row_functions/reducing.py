"""Reducing: a reduce function over the records of a batch, with its body within the loop, so that no record costs a call.

The loop does what a loop with calls does, record by record. At a record at which the body raises, the function itself is called, so that
the error shows the line of the user; but not where objects of other classes than Python's own would see their operators run twice. Does
not know operators or state backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.model.row import Row, make_row
from penstock.runtime.row_functions.inlining import Inlined, inlined, is_of_python
from penstock.runtime.row_functions.rendering import TooLarge
from penstock.runtime.row_functions.trees import Kind

NO_RESULT: Final = object()
Loop: TypeAlias = Callable[..., tuple[Any, Any, Any, Exception] | None]
_NO_ROWS: Final = frozenset({
    *(Kind.ROW, Kind.TUPLE, Kind.LIST, Kind.FORMAT, Kind.JOIN, Kind.CONSTANT, Kind.BINARY),
})
"""Results that are named already, or are no Rows."""
_LOOP: Final = """\
def run(records, table, get, append, own):
    for skey, c1 in records:
        c0 = get(skey, _no_result)
        if c0 is _no_result:
            table[skey] = {first}
            {given}
            continue
        try:
            made = {text}
        except Exception as error:
            return skey, c0, c1, error
        if {is_row}:
            made = _named(made)
        table[skey] = made
        {result}
    return None
"""
"""Returns the record at which the body raises, with the error. Called again with the same records, it continues after it."""
_WAYS: Final = {
    "copied": {"first": "own(c1)", "given": "append(c1)", "result": "append(own(made))"},
    "reused": {"first": "c1", "given": "append(c1)", "result": "append(made)"},
    "kept": {"first": "own(c1)", "given": "pass", "result": "pass"},
}
"""By what becomes of results: copied before they are given on, given on as they are (object reuse), only kept."""


@dataclass(slots=True)
class Fed:
    """A batch for `Reducing.run`.

    Args: count: of the records. records: the iterator over (skey, value). table: from skey to the value so far. results:
        takes the value after each record; None: they are only kept. own: makes copies; None: they are not needed. call: the function.
        put_aside: is given the error of a record that is to have no result; raises it if the job fails.
    """

    count: int
    records: Iterator[tuple[Any, Any]]
    table: Any
    results: list[Any] | None
    own: Callable[[Any], Any] | None
    call: Callable[[Any, Any], Any]
    put_aside: Callable[[Exception], None]

    def again(self, old: Any, value: Any, error: Exception) -> Any:
        """What the function returns for two values at which its body has raised; NO_RESULT: the second one was put aside."""
        if is_of_python(old) and is_of_python(value):
            try:
                return self.call(old, value)
            except Exception as own:
                error = own
        self.put_aside(error)
        return NO_RESULT

    def take(self, skey: Any, made: Any) -> None:
        """Take over the result of one record."""
        self.table[skey] = made
        if self.results is not None:
            self.results.append(made if self.own is None else self.own(made))


class Reducing:
    """How one reduce function runs."""

    def __init__(
        self, call: Callable[[Any, Any], Any], names: tuple[str, ...] | None, is_on: bool
    ) -> None:
        """`names`: of the Rows that it returns, where it gives them none."""
        self._function, self._names, self._is_on = call, names, is_on
        self._plan: Inlined | None = None
        self._loops: dict[str, Loop] = {}

    def run(self, fed: Fed) -> None:
        """Reduce all records of a batch. Raises: what the function raises, where `put_aside` does."""
        if self._may_run():
            self._loop(fed)
        elif fed.results is None:
            _call_and_keep(fed)
        else:
            _call_each(fed)

    def _may_run(self) -> bool:
        plan = self._plan
        if plan is None:
            # The function is read when it is first needed: all that is outside of it has its values then.
            plan = self._plan = inlined(self._function, 2, self._names, is_on=self._is_on)
            loops = {name: self._made(plan, _LOOP, way) for name, way in _WAYS.items()}
            self._loops = {name: loop for name, loop in loops.items() if loop is not None}
        return len(self._loops) == len(_WAYS) and plan.may_run()

    def _loop(self, fed: Fed) -> None:
        way = "kept" if fed.results is None else "reused" if fed.own is None else "copied"
        loop = self._loops[way]
        append = None if fed.results is None else fed.results.append
        while failed := loop(fed.records, fed.table, fed.table.get, append, fed.own):
            skey, old, value, error = failed
            made = fed.again(old, value, error)
            if made is not NO_RESULT:
                fed.take(skey, made)

    def _made(self, plan: Inlined, text: str, way: dict[str, str]) -> Loop | None:
        """The function of a text with the expression in it; None: there is none."""
        if plan.expression is None:
            return None
        may_be_row = self._names is not None and not plan.results <= _NO_ROWS
        source = text.format(
            text=plan.expression.text,
            is_row="made.__class__ is _row" if may_be_row else "False",
            **way,
        )
        name = f"<reduce of {getattr(self._function, '__qualname__', 'a function')}>"
        known = {"_no_result": NO_RESULT, "_row": Row, "_named": self._named}
        try:
            return plan.expression.in_function(source, name, known)
        except TooLarge:
            return None

    def _named(self, result: Any) -> Any:
        return result if self._names is None else with_names(result, self._names)


def _call_each(fed: Fed) -> None:
    table, call, get, own = fed.table, fed.call, fed.table.get, fed.own or _same
    assert fed.results is not None, "else results are only kept"
    append = fed.results.append
    for skey, value in fed.records:
        old = get(skey, NO_RESULT)
        if old is NO_RESULT:
            table[skey] = own(value)
            append(value)
            continue
        try:
            reduced = call(old, value)
        except Exception as error:
            fed.put_aside(error)
            continue
        table[skey] = reduced
        append(own(reduced))


def _call_and_keep(fed: Fed) -> None:
    table, call, get, own = fed.table, fed.call, fed.table.get, fed.own or _same
    for skey, value in fed.records:
        old = get(skey, NO_RESULT)
        try:
            table[skey] = own(value) if old is NO_RESULT else call(old, value)
        except Exception as error:
            fed.put_aside(error)


def _same(value: Any) -> Any:
    return value


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
        return with_names(result, names) if type(result) is Row else result

    return reduced


def with_names(result: Any, names: tuple[str, ...]) -> Any:
    """The result; a Row without names with these ones, if they are as many."""
    if type(result) is Row and result._fields is None and len(result) == len(names):
        return make_row(names, result, result.get_row_kind())
    return result
