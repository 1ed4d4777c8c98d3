"""Whether a function only reads fields of its record. Such a function may be given a tuple or a named tuple in place of a Row.

The function is not changed, so it may call, loop and fail as it likes. Each instruction that loads the record has to be followed by one
that reads a field, as `bid.price` or `bid[2]`, or all of them, as `auction, price = bid`. Does not know trees.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType
from typing import Final, NamedTuple

from penstock.model.row import ROW_ATTRIBUTES
from penstock.runtime.row_functions.interpreters import loads_method, steps_of
from penstock.runtime.row_functions.refusals import Refused

_SEES_VARIABLES: Final = frozenset({
    *("locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "globals"),
    *("set_trace", "breakpoint", "super", "stack", "_current_frames"),
    *("f_back", "f_locals", "tb_frame", "gi_frame", "cr_frame", "ag_frame"),
})
_UNPACKS: Final = "UNPACK_SEQUENCE"
_LOADS: Final = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST"})
_STORES: Final = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
_STORES_AND_MORE: Final = frozenset({"STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"})


class FieldReads(NamedTuple):
    """What a function reads of its record. `counts`: of the fields that the record must have, for it is unpacked into so many variables."""

    names: frozenset[str]
    indexes: frozenset[int]
    counts: frozenset[int]


def fields_read(code: CodeType, place: int) -> FieldReads:
    """What is read of the argument at this place, which may be nothing. Raises: Refused: it is used for something else too."""
    _check(code, place)
    record = code.co_varnames[place]
    steps = [step for step in steps_of(code) if step.opname != "NOP"]
    reads = [
        _read_by(steps[at + 1 : at + 3]) for at, step in enumerate(steps) if _loads(step, record)
    ]
    counts = {step.argval for step in reads if step.opname == _UNPACKS}
    read = {step.argval for step in reads if step.opname != _UNPACKS}
    names = frozenset(one for one in read if isinstance(one, str))
    return FieldReads(names, frozenset(read - names), frozenset(counts))


def _read_by(following: list[dis.Instruction]) -> dis.Instruction:
    """The one of the steps behind a load of the record that tells what is read. Raises: Refused: more than a field is."""
    first, second = (*following, None, None)[:2]
    if first is not None and first.opname == "LOAD_ATTR":
        if not loads_method(first):
            if first.argval in ROW_ATTRIBUTES:
                raise Refused(f"it uses {first.argval!r} of the record")
            return first
    elif first is not None and first.opname == _UNPACKS:
        return first
    elif first is not None and second is not None:
        is_index = first.opname == "LOAD_CONST" and type(first.argval) is int
        if is_index and second.opname == "BINARY_SUBSCR":
            return first
    raise Refused("it uses the record itself, not only its fields")


def _check(code: CodeType, place: int) -> None:
    if place >= code.co_argcount:
        raise Refused("it takes no record")
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Refused("it is a coroutine")
    if code.co_varnames[place] in code.co_cellvars:
        raise Refused("an inner function uses the record")
    seen = _SEES_VARIABLES & set(code.co_names)
    if seen:
        raise Refused(f"it uses {min(seen)}, which may show the record")


def _loads(step: dis.Instruction, record: str) -> bool:
    """Whether the step loads the record, as the last of what it loads. Raises: Refused: it does something else with it."""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    if step.opname in _STORES and record in names:
        raise Refused("it changes the variable of the record")
    if step.opname in _STORES_AND_MORE:
        if names[0] == record or (step.opname == "STORE_FAST_STORE_FAST" and record in names):
            raise Refused("it changes the variable of the record")
        return bool(names[-1] == record)
    if step.opname not in _LOADS or record not in names:
        return False
    if record in names[:-1]:
        raise Refused("it uses the record itself, not only its fields")
    return True
