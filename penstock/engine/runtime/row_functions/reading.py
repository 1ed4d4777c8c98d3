"""Symbolic execution of a function's bytecode. The function is not called, and nothing of it runs.

`Reader` gives the tree of what a function computes. Branches fork, so the code after an `if` is read once for each path to it. Any
instruction that is not listed here, and any call of code that is not known, refuses the function. `fields_read` gives the fields that a
function reads, if it does nothing else with its record. Such a function may call, loop and fail as it likes: it is called, with a tuple
or a named tuple in place of a Row. Source: none; anchor: Tuplex (SIGMOD 2021), which compiles the row functions of a pipeline.
"""

from __future__ import annotations

import dis
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, NoReturn

from penstock.engine.model.row import ROW_ATTRIBUTES, Row
from penstock.engine.runtime.row_functions import known_code as known
from penstock.engine.runtime.row_functions.known_code import (
    Refused,
    because,
    check_shape,
    loads_method,
    steps_of,
)
from penstock.engine.runtime.row_functions.trees import Kind, Node, chosen, with_all

MOST_STEPS: Final = 3000
"""Instructions on all paths through a function. Each fork doubles the paths."""
_PASSED: Final = frozenset({
    "RESUME",
    "NOP",
    "PRECALL",
    "NOT_TAKEN",
    "COPY_FREE_VARS",
    "EXTENDED_ARG",
})
_CONVERSIONS: Final = ("", "!s", "!r", "!a")
_JOINS: Final = frozenset("+*|&-^")
"""Operators that make a list, dict or set of others."""


# ---------------------------------------------------------------------- the state of a path

NO_VALUE: Final = frozenset({Kind.CODE, Kind.RECORD, Kind.ROW})
USED: Final = {
    Kind.CODE: "it uses a function as a value",
    Kind.RECORD: "it uses the record itself, not only its fields",
    Kind.ROW: "it uses a Row that it has made",
}
NULL: Final = object()
"""Marks a place on the stack that calls leave empty."""


@dataclass(frozen=True, slots=True)
class Method:
    of: Node
    name: str


@dataclass(slots=True)
class PathState:
    """State of the symbolic execution on one path: stack, variables, and the branch conditions that were met.

    `made`: nodes since the last fork, in the order of the instructions. `names`: of the keyword arguments of the next call.
    """

    at: int
    stack: list[Any]
    variables: dict[str, Any]
    met: dict[int, bool]
    names: tuple[str, ...] = ()
    made: list[Node] = field(default_factory=list)

    def fork(self, at: int, condition: Node, is_true: bool) -> PathState:
        met = {**self.met, id(condition): is_true}
        return PathState(at, self.stack.copy(), self.variables.copy(), met)

    def take(self, count: int) -> list[Any]:
        """Take values off the stack, the lowest first."""
        taken = [self.value() for _ in range(count)]
        taken.reverse()
        return taken

    def value(self) -> Node:
        """Take the top of the stack, which has to be a value of Python's own."""
        top = self.stack.pop()
        if not isinstance(top, Node):
            raise Refused("it reads a method without calling it")
        if top.kind in NO_VALUE:
            raise Refused(USED[top.kind])
        return top

    def push(self, node: Node) -> None:
        self.made.append(node)
        self.stack.append(node)


# ---------------------------------------------------------------------- the tree of what a function computes


class Reader:
    """Reads one function. `guards`: the variables outside of it that it read."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._steps_left = MOST_STEPS
        self.guards: list[known.Guard] = []
        code = function.__code__
        self._steps = steps_of(code)
        self._place = {step.offset: index for index, step in enumerate(self._steps)}

    def tree(self, given: Mapping[int, Node]) -> Node:
        """What the function returns, given its arguments by place. Raises: Refused."""
        function = self._function
        code = function.__code__
        check_shape(code)
        names = code.co_varnames[: code.co_argcount]
        if max(given, default=-1) >= len(names):
            raise Refused("it takes no record")
        variables: dict[str, Any] = {}
        defaults = function.__defaults__ or ()
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            variables[name] = _default(name, value)
            self.guards += _guards_of_default(function, value)
        variables |= {names[place]: node for place, node in given.items()}
        self.guards.append(known.Guard(lambda: function.__code__, code))
        return self._run(PathState(0, [], variables, {}))

    def _run(self, path: PathState) -> Node:
        while True:
            step = self._steps[path.at]
            path.at += 1
            name = step.opname
            if name in _PASSED:
                continue
            self._steps_left -= 1
            if self._steps_left < 0:
                raise Refused("it has too many branches")
            if name == "RETURN_VALUE":
                return with_all(path.made, _result(path.stack.pop()))
            if name == "RETURN_CONST":
                return with_all(path.made, Node(Kind.CONSTANT, value=step.argval))
            if "JUMP" in name:
                forked = self._jump(path, step)
                if forked is not None:
                    return with_all(path.made, forked)
            else:
                handle = _HANDLERS.get(name)
                if handle is None:
                    raise Refused(because(name))
                handle(self, path, step)

    def _jump(self, path: PathState, step: dis.Instruction) -> Node | None:
        """Follow a jump. Returns what both paths give, if it forks."""
        name = step.opname
        target = self._place[step.argval]
        if name in {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}:
            if name != "JUMP_FORWARD":
                raise Refused("it has a loop")
            path.at = target
            return None
        keeps = name.endswith("_OR_POP")
        condition = path.value()
        if name.endswith("NONE"):
            jumps_if = "NOT_NONE" not in name
            nothing = Node(Kind.CONSTANT)
            condition = Node(Kind.BINARY, (condition, nothing), "is")
            path.made.append(condition)
        else:
            jumps_if = "IF_TRUE" in name
        jumped = path.fork(target, condition, jumps_if)
        went_on = path.fork(path.at, condition, not jumps_if)
        if keeps:
            jumped.stack.append(condition)
        if id(condition) in path.met:  # It was tested before.
            taken = jumped if path.met[id(condition)] is jumps_if else went_on
            path.at, path.stack = taken.at, taken.stack
            return None
        if jumps_if:
            return chosen(condition, self._run(jumped), self._run(went_on))
        return chosen(condition, self._run(went_on), self._run(jumped))

    def following(self, path: PathState) -> str:
        return next(step.opname for step in self._steps[path.at :] if step.opname not in _PASSED)

    def constant(self, place: int) -> Any:
        return self._function.__code__.co_consts[place]

    # ------------------------------------------------------------------ names

    def load(self, path: PathState, names: Sequence[str]) -> None:
        for name in names:
            if name not in path.variables:
                is_self = self._function.__code__.co_varnames[:1] == (name,)
                raise Refused(
                    f"it reads {name!r}, the object that it belongs to"
                    if is_self
                    else f"{name!r} may have no value"
                )
            path.stack.append(path.variables[name])

    def store(self, path: PathState, names: Sequence[str]) -> None:
        for name in names:
            top = path.stack.pop()
            if not isinstance(top, Node):
                raise Refused("it keeps a method in a variable")
            path.variables[name] = top

    def load_global(self, path: PathState, step: dis.Instruction) -> None:
        guard = known.of_global(self._function, step.argval)
        value = self._outside(guard, step.argval)
        nulls = [NULL] if (step.arg or 0) & 1 else []
        path.stack += [value, *nulls] if _NULL_IS_ABOVE else [*nulls, value]

    def load_outer(self, path: PathState, step: dis.Instruction) -> None:
        free = self._function.__code__.co_freevars
        cells = self._function.__closure__ or ()
        if step.argval not in free:
            raise Refused("an inner function uses its variables")
        guard = known.of_cell(cells[free.index(step.argval)])
        path.stack.append(self._outside(guard, step.argval))

    def _outside(self, guard: known.Guard | None, name: str) -> Node:
        if guard is None:
            raise Refused(f"{name!r} has no value")
        self.guards.append(guard)
        value = guard.value
        if known.is_code(value):
            return Node(Kind.CODE, value=value)
        if known.is_plain(value):
            return _known(value)
        what = "calls or reads" if callable(value) else "reads"
        raise Refused(f"it {what} {name!r}, of which it is not known what it does")

    def attribute(self, path: PathState, step: dis.Instruction) -> None:
        name: str = step.argval
        is_method = loads_method(step)
        of = path.stack.pop()
        if not isinstance(of, Node):
            raise Refused("it reads a method without calling it")
        if of.kind is Kind.RECORD:
            if name in ROW_ATTRIBUTES:
                raise Refused(f"it uses {name!r} of the record")
            if is_method:
                raise Refused("it calls a field of the record")
            got: Any = of.value(name)
        elif of.kind is Kind.CODE and of.value is math:
            got = known.of_math(name)
            if got is None:
                raise Refused(f"it uses math.{name}")
            got = Node(Kind.CODE if callable(got) else Kind.KNOWN, value=got)
        elif of.kind in NO_VALUE:
            raise Refused(USED[of.kind])
        elif is_method and name in known.METHODS:
            got = Method(of, name)
        elif not is_method and name in known.ATTRIBUTES:
            got = Node(Kind.ATTRIBUTE, (of,), name)
            path.made.append(got)
        else:
            raise Refused(f"it uses {name!r} of a value")
        path.stack.append(got)
        if is_method:
            path.stack.append(NULL)

    # ------------------------------------------------------------------ calls

    def call(self, path: PathState, count: int, names: tuple[str, ...]) -> None:
        stack = path.stack
        low = len(stack) - count
        args = stack[low:]
        del stack[low:]
        callee = [one for one in (stack.pop(), stack.pop()) if one is not NULL]
        (called,) = callee if len(callee) == 1 else (None,)
        if isinstance(called, Method):
            values = self._arguments(args, None)
            changes = called.name in known.MAKES_LIST
            if called.name == "get":
                changes = called.of.gives_changeable or any(one.is_changeable for one in values)
            path.push(Node(Kind.METHOD, (called.of, *values), (called.name, names), changes))
            return
        if not isinstance(called, Node) or called.kind is not Kind.CODE or called.value is math:
            raise Refused("it calls a value")
        function = called.value
        values = self._arguments(args, function)
        if function is Row:
            self._make_row(path, values, names)
            return
        plain = any(function is one for one in known.PLAIN_RESULT)
        changes = function in {list, sorted} or (
            not plain and any(one.is_changeable for one in values)
        )
        path.push(Node(Kind.CALL, (called, *values), names, changes))

    def _arguments(self, args: Sequence[Any], function: Any) -> list[Node]:
        for place, arg in enumerate(args):
            is_type = function is isinstance and place == 1
            if not isinstance(arg, Node) or (arg.kind in NO_VALUE and not is_type):
                kind = arg.kind if isinstance(arg, Node) else Kind.CODE
                raise Refused(USED[kind])
        return list(args)

    def _make_row(self, path: PathState, values: list[Node], names: tuple[str, ...]) -> None:
        if names and len(names) != len(values):
            raise Refused("it makes a Row with positions and names")
        changeable = any(one.is_changeable for one in values)
        path.push(Node(Kind.ROW, tuple(values), names or None, changeable))

    # ------------------------------------------------------------------ operations

    def binary(self, path: PathState, symbol: str) -> None:
        left, right = path.take(2)
        if symbol.endswith("=") and symbol not in {"==", "<=", ">=", "!="}:
            if left.is_changeable:
                raise Refused("it may change an object in place")
            symbol = symbol[:-1]
        changeable = symbol in _JOINS and (left.is_changeable or right.is_changeable)
        path.push(Node(Kind.BINARY, (left, right), symbol, changeable))

    def identity(self, path: PathState, symbol: str) -> None:
        left, right = path.take(2)
        for one in (left, right):
            if one.kind is Kind.CONSTANT and (one.value is None or type(one.value) is bool):
                path.push(Node(Kind.BINARY, (left, right), symbol))
                return
        raise Refused("it compares the identity of values")

    def item(self, path: PathState) -> None:
        index = path.value()
        of = path.stack.pop()
        if isinstance(of, Node) and of.kind is Kind.RECORD:
            if index.kind is not Kind.CONSTANT or type(index.value) not in {int, str}:
                raise Refused("it computes which field it reads")
            path.stack.append(of.value(index.value))
            return
        path.stack.append(of)
        (of,) = path.take(1)
        place = index.value if index.kind is Kind.CONSTANT and type(index.value) is int else None
        if of.kind is Kind.TUPLE and place is not None and -len(of.args) <= place < len(of.args):
            path.stack.append(of.args[place])
            return
        changeable = of.is_changeable if index.kind is Kind.SLICE else of.gives_changeable
        path.push(Node(Kind.ITEM, (of, index), is_changeable=changeable))

    def slice_item(self, path: PathState) -> None:
        of, start, stop = path.take(3)
        cut = Node(Kind.SLICE, (start, stop))
        path.push(Node(Kind.ITEM, (of, cut), is_changeable=of.is_changeable))

    def unpack(self, path: PathState, count: int) -> None:
        of = path.stack.pop()
        if isinstance(of, Node) and of.kind is Kind.RECORD:
            parts = [of.value(place) for place in range(count)]
            if _has_field(of, count):
                raise Refused("it unpacks a record that has more fields")
        elif isinstance(of, Node) and of.kind is Kind.TUPLE and len(of.args) == count:
            parts = list(of.args)
        else:
            raise Refused("it unpacks a value")
        path.stack += reversed(parts)

    def sequence(self, path: PathState, kind: Kind, count: int) -> None:
        parts = path.take(count)
        changeable = kind is Kind.LIST or any(one.is_changeable for one in parts)
        path.push(Node(kind, tuple(parts), is_changeable=changeable))

    def extend(self, path: PathState) -> None:
        """`[1, 2, 3]` is made of an empty list and a constant."""
        items, made = path.stack.pop(), path.stack.pop()
        if items.kind is not Kind.CONSTANT or made.kind is not Kind.LIST or made.args:
            raise Refused("it extends a list")
        parts = tuple(Node(Kind.CONSTANT, value=value) for value in items.value)
        path.push(Node(Kind.LIST, parts, is_changeable=True))

    def formatted(self, path: PathState, conversion: str, has_specification: bool) -> None:
        value, *specification = path.take(2 if has_specification else 1)
        # From Python 3.13 on one instruction converts, and the next one formats the text.
        is_converted = value.kind is Kind.FORMAT and bool(value.value) and len(value.args) == 1
        if is_converted and not conversion and path.made[-1:] == [value]:
            path.made.pop()
            (value,), conversion = value.args, value.value
        path.push(Node(Kind.FORMAT, (value, *specification), conversion))


def _has_field(record: Node, place: int) -> bool:
    try:
        record.value(place)
    except Refused:
        return False
    return True


def _default(name: str, value: object) -> Node:
    if not known.is_plain(value):
        raise Refused(f"the default of {name!r} is not a plain value")
    return _known(value)


def _guards_of_default(function: FunctionType, value: object) -> list[known.Guard]:
    """A default that can be changed stays the same object, but may get items that are not plain."""
    whole = known.Guard(lambda: function.__defaults__, function.__defaults__)
    is_changeable = type(value) in {list, dict, set}
    return [known.Guard(lambda: value, value), whole] if is_changeable else [whole]


def _known(value: object) -> Node:
    """The node of a plain value from outside of the function."""
    changeable = type(value) in {list, dict, set}
    return Node(Kind.KNOWN, value=value, is_changeable=changeable, has_plain_items=True)


def _result(top: Any) -> Node:
    if not isinstance(top, Node) or top.kind is Kind.CODE:
        raise Refused(USED[Kind.CODE])
    if top.kind is Kind.RECORD:
        raise Refused(USED[Kind.RECORD])
    return top


_NULL_IS_ABOVE: Final = "CALL_KW" in dis.opmap
"""Whether the empty place is above what is called, as from Python 3.13 on."""
Handler = Callable[[Reader, PathState, dis.Instruction], None]


def _swap(path: PathState, place: int) -> None:
    stack = path.stack
    stack[-1], stack[-place] = stack[-place], stack[-1]


def _names_of(path: PathState) -> tuple[str, ...]:
    names, path.names = path.names, ()
    return names


def _constant(path: PathState, value: Any) -> None:
    if isinstance(value, CodeType):
        raise Refused("it makes a function or has a comprehension")
    if type(value) is slice:
        ends = (value.start, value.stop, value.step)[: 2 if value.step is None else 3]
        path.push(Node(Kind.SLICE, tuple(Node(Kind.CONSTANT, value=end) for end in ends)))
        return
    if not known.is_plain(value) and type(value) not in {tuple, frozenset}:
        raise Refused(f"it has a constant of type {type(value).__name__}")
    path.stack.append(Node(Kind.CONSTANT, value=value))


def _refuse(because: str) -> NoReturn:
    raise Refused(because)


def _pop_top(path: PathState) -> None:
    top = path.stack.pop()
    if isinstance(top, Node) and top.kind is Kind.ROW:
        raise Refused(USED[Kind.ROW])


def _to_bool(following: str, path: PathState) -> None:
    """Before a test or a `not` this changes nothing. `not not x` is nothing else, from Python 3.13 on, also before a jump without a test."""
    if not following.startswith("POP_JUMP_IF_") and following != "UNARY_NOT":
        path.push(Node(Kind.CALL, (Node(Kind.CODE, value=bool), path.value()), ()))


def _compare(reader: Reader, path: PathState, step: dis.Instruction) -> None:
    reader.binary(path, step.argval)
    if step.argrepr.startswith("bool("):
        _to_bool(reader.following(path), path)


def _store_and_load(reader: Reader, path: PathState, step: dis.Instruction) -> None:
    stored, loaded = step.argval
    reader.store(path, (stored,))
    reader.load(path, (loaded,))


def _keywords(reader: Reader, path: PathState, _step: dis.Instruction) -> None:
    path.names = reader.constant(_step.arg or 0)


def _format_value(reader: Reader, path: PathState, step: dis.Instruction) -> None:
    arg = step.arg or 0
    reader.formatted(path, _CONVERSIONS[arg & 3], bool(arg & 4))


def _convert(reader: Reader, path: PathState, step: dis.Instruction) -> None:
    # What follows formats a text with the specification, if there is one.
    reader.formatted(path, _CONVERSIONS[step.arg or 0], has_specification=False)


def _call_kw(reader: Reader, path: PathState, step: dis.Instruction) -> None:
    names = path.stack.pop().value
    reader.call(path, step.arg or 0, names)


def _intrinsic(_reader: Reader, path: PathState, step: dis.Instruction) -> None:
    if step.argrepr != "INTRINSIC_UNARY_POSITIVE":
        _refuse("it has an instruction that is not known")
    path.push(Node(Kind.UNARY, (path.value(),), "+"))


def _join(_reader: Reader, path: PathState, step: dis.Instruction) -> None:
    path.push(Node(Kind.JOIN, tuple(path.take(step.arg or 0))))


def _slice(_reader: Reader, path: PathState, step: dis.Instruction) -> None:
    path.push(Node(Kind.SLICE, tuple(path.take(step.arg or 0))))


def _unary(symbol: str) -> Handler:
    return lambda _r, path, _s: path.push(Node(Kind.UNARY, (path.value(),), symbol))


_HANDLERS: Final[dict[str, Handler]] = {
    "LOAD_FAST": lambda r, path, step: r.load(path, (step.argval,)),
    "LOAD_FAST_CHECK": lambda r, path, step: r.load(path, (step.argval,)),
    "LOAD_FAST_LOAD_FAST": lambda r, path, step: r.load(path, step.argval),
    "STORE_FAST": lambda r, path, step: r.store(path, (step.argval,)),
    "STORE_FAST_STORE_FAST": lambda r, path, step: r.store(path, step.argval),
    "STORE_FAST_LOAD_FAST": _store_and_load,
    "LOAD_CONST": lambda _r, path, step: _constant(path, step.argval),
    "LOAD_GLOBAL": Reader.load_global,
    "LOAD_DEREF": Reader.load_outer,
    "LOAD_ATTR": lambda r, path, step: r.attribute(path, step),
    "LOAD_METHOD": lambda r, path, step: r.attribute(path, step),
    "PUSH_NULL": lambda _r, path, _s: path.stack.append(NULL),
    "KW_NAMES": _keywords,
    "CALL": lambda r, path, step: r.call(path, step.arg or 0, _names_of(path)),
    "CALL_KW": _call_kw,
    "BINARY_OP": lambda r, path, step: r.binary(path, step.argrepr),
    "COMPARE_OP": _compare,
    "CONTAINS_OP": lambda r, path, step: r.binary(path, "not in" if step.arg else "in"),
    "IS_OP": lambda r, path, step: r.identity(path, "is not" if step.arg else "is"),
    "BINARY_SUBSCR": lambda r, path, _s: r.item(path),
    "BINARY_SLICE": lambda r, path, _s: r.slice_item(path),
    "BUILD_SLICE": _slice,
    "UNARY_NOT": _unary("not "),
    "TO_BOOL": lambda r, path, _s: _to_bool(r.following(path), path),
    "UNARY_NEGATIVE": _unary("-"),
    "UNARY_POSITIVE": _unary("+"),
    "UNARY_INVERT": _unary("~"),
    "CALL_INTRINSIC_1": _intrinsic,
    "BUILD_TUPLE": lambda r, path, step: r.sequence(path, Kind.TUPLE, step.arg or 0),
    "BUILD_LIST": lambda r, path, step: r.sequence(path, Kind.LIST, step.arg or 0),
    "LIST_EXTEND": lambda r, path, _s: r.extend(path),
    "UNPACK_SEQUENCE": lambda r, path, step: r.unpack(path, step.arg or 0),
    "FORMAT_VALUE": _format_value,
    "FORMAT_SIMPLE": lambda r, path, _s: r.formatted(path, "", has_specification=False),
    "FORMAT_WITH_SPEC": lambda r, path, _s: r.formatted(path, "", has_specification=True),
    "CONVERT_VALUE": _convert,
    "BUILD_STRING": _join,
    "POP_TOP": lambda _r, path, _s: _pop_top(path),
    "COPY": lambda _r, path, step: path.stack.append(path.stack[-(step.arg or 1)]),
    "SWAP": lambda _r, path, step: _swap(path, step.arg or 1),
}


# ---------------------------------------------------------------------- the fields that a function reads

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
    """What a function reads of its record. `counts`: of the variables into which the record is unpacked; it must have as many fields."""

    names: frozenset[str]
    indexes: frozenset[int]
    counts: frozenset[int]


def fields_read(code: CodeType, place: int) -> FieldReads:
    """What is read of the argument at this place, which may be nothing. Raises: Refused: it is used for something else too."""
    _check_record(code, place)
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
    """The step after a load of the record that names what is read. Raises: Refused: more than a field is."""
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


def _check_record(code: CodeType, place: int) -> None:
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
