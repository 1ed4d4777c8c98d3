"""From the bytecode of a function to the tree of what it computes. The function is not called, and nothing of it runs.

Branches fork, so the code behind an `if` is read once for each way to it. Any instruction that is not listed here, and any call of code
that is not known, refuses the function. Source: none; anchor: Tuplex (SIGMOD 2021), which compiles the row functions of a pipeline.
"""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

from penstock.model.row import ROW_ATTRIBUTES, Row
from penstock.runtime.row_functions import known_code as known
from penstock.runtime.row_functions.interpreters import loads_method, steps_of
from penstock.runtime.row_functions.refusals import Refused, because, check_shape
from penstock.runtime.row_functions.stand import NO_VALUE, NULL, USED, Method, Stand
from penstock.runtime.row_functions.trees import Kind, Node, chosen, with_all

MOST_STEPS: Final = 3000
"""Instructions on all ways through a function. Each fork doubles the ways."""
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


class Reader:
    """Reads one function for records with certain fields. `guards`: the variables outside of it that it read."""

    def __init__(self, function: FunctionType, field_of: Callable[[int | str], Node]) -> None:
        """`field_of`: the field of a RECORD by name or index; raises Refused."""
        self._function = function
        self._field_of = field_of
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
        return self._run(Stand(0, [], variables, {}))

    def _run(self, way: Stand) -> Node:
        while True:
            step = self._steps[way.at]
            way.at += 1
            name = step.opname
            if name in _PASSED:
                continue
            self._steps_left -= 1
            if self._steps_left < 0:
                raise Refused("it has too many branches")
            if name == "RETURN_VALUE":
                return self._ended(way, _result(way.stack.pop()))
            if name == "RETURN_CONST":
                return self._ended(way, Node(Kind.CONSTANT, value=step.argval))
            if "JUMP" in name:
                forked = self._jump(way, step)
                if forked is not None:
                    return self._ended(way, forked)
            else:
                handle = _HANDLERS.get(name)
                if handle is None:
                    raise Refused(because(name))
                handle(self, way, step)

    def _ended(self, way: Stand, result: Node) -> Node:
        """What a way through the function gives at its end, or where it forks."""
        return with_all(way.made, result)

    def _jump(self, way: Stand, step: dis.Instruction) -> Node | None:
        """Follow a jump. Returns what both ways give, if it forks."""
        name = step.opname
        target = self._place[step.argval]
        if name in {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}:
            if name != "JUMP_FORWARD":
                raise Refused("it has a loop")
            way.at = target
            return None
        keeps = name.endswith("_OR_POP")
        condition = way.value()
        if name.endswith("NONE"):
            jumps_if = "NOT_NONE" not in name
            nothing = Node(Kind.CONSTANT)
            condition = Node(Kind.BINARY, (condition, nothing), "is")
            way.made.append(condition)
        else:
            jumps_if = "IF_TRUE" in name
        jumped = way.fork(target, condition, jumps_if)
        went_on = way.fork(way.at, condition, not jumps_if)
        if keeps:
            jumped.stack.append(condition)
        known_to_be = self.known_to_be(way, condition)
        if known_to_be is not None:
            chosen_way = jumped if known_to_be is jumps_if else went_on
            way.at, way.stack = chosen_way.at, chosen_way.stack
            return None
        if jumps_if:
            return chosen(condition, self._run(jumped), self._run(went_on))
        return chosen(condition, self._run(went_on), self._run(jumped))

    def known_to_be(self, way: Stand, condition: Node) -> bool | None:
        """Whether a condition is met that was tested before; None: it was not."""
        return way.met.get(id(condition))

    def following(self, way: Stand) -> str:
        return next(step.opname for step in self._steps[way.at :] if step.opname not in _PASSED)

    def constant(self, place: int) -> Any:
        return self._function.__code__.co_consts[place]

    # ------------------------------------------------------------------ names

    def load(self, way: Stand, names: Sequence[str]) -> None:
        for name in names:
            if name not in way.variables:
                is_self = self._function.__code__.co_varnames[:1] == (name,)
                raise Refused(
                    f"it reads {name!r}, the object that it belongs to"
                    if is_self
                    else f"{name!r} may have no value"
                )
            way.stack.append(way.variables[name])

    def store(self, way: Stand, names: Sequence[str]) -> None:
        for name in names:
            top = way.stack.pop()
            if not isinstance(top, Node):
                raise Refused("it keeps a method in a variable")
            way.variables[name] = top

    def load_global(self, way: Stand, step: dis.Instruction) -> None:
        guard = known.of_global(self._function, step.argval)
        value = self._outside(guard, step.argval)
        nulls = [NULL] if (step.arg or 0) & 1 else []
        way.stack += [value, *nulls] if _NULL_IS_ABOVE else [*nulls, value]

    def load_outer(self, way: Stand, step: dis.Instruction) -> None:
        free = self._function.__code__.co_freevars
        cells = self._function.__closure__ or ()
        if step.argval not in free:
            raise Refused("an inner function uses its variables")
        guard = known.of_cell(cells[free.index(step.argval)])
        way.stack.append(self._outside(guard, step.argval))

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

    def attribute(self, way: Stand, step: dis.Instruction) -> None:
        name: str = step.argval
        is_method = loads_method(step)
        of = way.stack.pop()
        if not isinstance(of, Node):
            raise Refused("it reads a method without calling it")
        if of.kind is Kind.RECORD:
            if name in ROW_ATTRIBUTES:
                raise Refused(f"it uses {name!r} of the record")
            if is_method:
                raise Refused("it calls a field of the record")
            got: Any = self._field_of(name)
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
            way.made.append(got)
        else:
            raise Refused(f"it uses {name!r} of a value")
        way.stack.append(got)
        if is_method:
            way.stack.append(NULL)

    # ------------------------------------------------------------------ calls

    def call(self, way: Stand, count: int, names: tuple[str, ...]) -> None:
        stack = way.stack
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
            way.push(Node(Kind.METHOD, (called.of, *values), (called.name, names), changes))
            return
        if not isinstance(called, Node) or called.kind is not Kind.CODE or called.value is math:
            raise Refused("it calls a value")
        function = called.value
        values = self._arguments(args, function)
        if function is Row:
            self._make_row(way, values, names)
            return
        plain = any(function is one for one in known.PLAIN_RESULT)
        changes = function in {list, sorted} or (
            not plain and any(one.is_changeable for one in values)
        )
        way.push(Node(Kind.CALL, (called, *values), names, changes))

    def _arguments(self, args: Sequence[Any], function: Any) -> list[Node]:
        for place, arg in enumerate(args):
            is_type = function is isinstance and place == 1
            if not isinstance(arg, Node) or (arg.kind in NO_VALUE and not is_type):
                kind = arg.kind if isinstance(arg, Node) else Kind.CODE
                raise Refused(USED[kind])
        return list(args)

    def _make_row(self, way: Stand, values: list[Node], names: tuple[str, ...]) -> None:
        if names and len(names) != len(values):
            raise Refused("it makes a Row with positions and names")
        changeable = any(one.is_changeable for one in values)
        way.push(Node(Kind.ROW, tuple(values), names or None, changeable))

    # ------------------------------------------------------------------ operations

    def binary(self, way: Stand, symbol: str) -> None:
        left, right = way.take(2)
        if symbol.endswith("=") and symbol not in {"==", "<=", ">=", "!="}:
            if left.is_changeable:
                raise Refused("it may change an object in place")
            symbol = symbol[:-1]
        changeable = symbol in _JOINS and (left.is_changeable or right.is_changeable)
        way.push(Node(Kind.BINARY, (left, right), symbol, changeable))

    def identity(self, way: Stand, symbol: str) -> None:
        left, right = way.take(2)
        for one in (left, right):
            if one.kind is Kind.CONSTANT and (one.value is None or type(one.value) is bool):
                way.push(Node(Kind.BINARY, (left, right), symbol))
                return
        raise Refused("it compares the identity of values")

    def item(self, way: Stand) -> None:
        index = way.value()
        of = way.stack.pop()
        if isinstance(of, Node) and of.kind is Kind.RECORD:
            if index.kind is not Kind.CONSTANT or type(index.value) not in {int, str}:
                raise Refused("it computes which field it reads")
            way.stack.append(self._field_of(index.value))
            return
        way.stack.append(of)
        (of,) = way.take(1)
        place = index.value if index.kind is Kind.CONSTANT and type(index.value) is int else None
        if of.kind is Kind.TUPLE and place is not None and -len(of.args) <= place < len(of.args):
            way.stack.append(of.args[place])
            return
        changeable = of.is_changeable if index.kind is Kind.SLICE else of.gives_changeable
        way.push(Node(Kind.ITEM, (of, index), is_changeable=changeable))

    def slice_item(self, way: Stand) -> None:
        of, start, stop = way.take(3)
        cut = Node(Kind.SLICE, (start, stop))
        way.push(Node(Kind.ITEM, (of, cut), is_changeable=of.is_changeable))

    def unpack(self, way: Stand, count: int) -> None:
        of = way.stack.pop()
        if isinstance(of, Node) and of.kind is Kind.RECORD:
            parts = [self._field_of(place) for place in range(count)]
            if self._has_field(count):
                raise Refused("it unpacks a record that has more fields")
        elif isinstance(of, Node) and of.kind is Kind.TUPLE and len(of.args) == count:
            parts = list(of.args)
        else:
            raise Refused("it unpacks a value")
        way.stack += reversed(parts)

    def _has_field(self, place: int) -> bool:
        try:
            self._field_of(place)
        except Refused:
            return False
        return True

    def sequence(self, way: Stand, kind: Kind, count: int) -> None:
        parts = way.take(count)
        changeable = kind is Kind.LIST or any(one.is_changeable for one in parts)
        way.push(Node(kind, tuple(parts), is_changeable=changeable))

    def extend(self, way: Stand) -> None:
        """`[1, 2, 3]` is made of an empty list and a constant."""
        items, made = way.stack.pop(), way.stack.pop()
        if items.kind is not Kind.CONSTANT or made.kind is not Kind.LIST or made.args:
            raise Refused("it extends a list")
        parts = tuple(Node(Kind.CONSTANT, value=value) for value in items.value)
        way.push(Node(Kind.LIST, parts, is_changeable=True))

    def formatted(self, way: Stand, conversion: str, has_specification: bool) -> None:
        value, *specification = way.take(2 if has_specification else 1)
        # From Python 3.13 on one instruction converts, and the next one formats the text.
        is_converted = value.kind is Kind.FORMAT and bool(value.value) and len(value.args) == 1
        if is_converted and not conversion and way.made[-1:] == [value]:
            way.made.pop()
            (value,), conversion = value.args, value.value
        way.push(Node(Kind.FORMAT, (value, *specification), conversion))


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
Handler = Callable[[Reader, Stand, dis.Instruction], None]


def _swap(way: Stand, place: int) -> None:
    stack = way.stack
    stack[-1], stack[-place] = stack[-place], stack[-1]


def _names_of(way: Stand) -> tuple[str, ...]:
    names, way.names = way.names, ()
    return names


def _constant(way: Stand, value: Any) -> None:
    if isinstance(value, CodeType):
        raise Refused("it makes a function or has a comprehension")
    if type(value) is slice:
        ends = (value.start, value.stop, value.step)[: 2 if value.step is None else 3]
        way.push(Node(Kind.SLICE, tuple(Node(Kind.CONSTANT, value=end) for end in ends)))
        return
    if not known.is_plain(value) and type(value) not in {tuple, frozenset}:
        raise Refused(f"it has a constant of type {type(value).__name__}")
    way.stack.append(Node(Kind.CONSTANT, value=value))


def _refuse(because: str) -> NoReturn:
    raise Refused(because)


def _pop_top(way: Stand) -> None:
    top = way.stack.pop()
    if isinstance(top, Node) and top.kind is Kind.ROW:
        raise Refused(USED[Kind.ROW])


def _to_bool(following: str, way: Stand) -> None:
    """Before a test or a `not` this changes nothing. `not not x` is nothing else, from Python 3.13 on, also before a jump without a test."""
    if not following.startswith("POP_JUMP_IF_") and following != "UNARY_NOT":
        way.push(Node(Kind.CALL, (Node(Kind.CODE, value=bool), way.value()), ()))


def _compare(reader: Reader, way: Stand, step: dis.Instruction) -> None:
    reader.binary(way, step.argval)
    if step.argrepr.startswith("bool("):
        _to_bool(reader.following(way), way)


def _store_and_load(reader: Reader, way: Stand, step: dis.Instruction) -> None:
    stored, loaded = step.argval
    reader.store(way, (stored,))
    reader.load(way, (loaded,))


def _keywords(reader: Reader, way: Stand, _step: dis.Instruction) -> None:
    way.names = reader.constant(_step.arg or 0)


def _format_value(reader: Reader, way: Stand, step: dis.Instruction) -> None:
    arg = step.arg or 0
    reader.formatted(way, _CONVERSIONS[arg & 3], bool(arg & 4))


def _convert(reader: Reader, way: Stand, step: dis.Instruction) -> None:
    # What follows formats a text with the specification, if there is one.
    reader.formatted(way, _CONVERSIONS[step.arg or 0], has_specification=False)


def _call_kw(reader: Reader, way: Stand, step: dis.Instruction) -> None:
    names = way.stack.pop().value
    reader.call(way, step.arg or 0, names)


def _intrinsic(_reader: Reader, way: Stand, step: dis.Instruction) -> None:
    if step.argrepr != "INTRINSIC_UNARY_POSITIVE":
        _refuse("it has an instruction that is not known")
    way.push(Node(Kind.UNARY, (way.value(),), "+"))


def _join(_reader: Reader, way: Stand, step: dis.Instruction) -> None:
    way.push(Node(Kind.JOIN, tuple(way.take(step.arg or 0))))


def _slice(_reader: Reader, way: Stand, step: dis.Instruction) -> None:
    way.push(Node(Kind.SLICE, tuple(way.take(step.arg or 0))))


def _unary(symbol: str) -> Handler:
    return lambda _r, way, _s: way.push(Node(Kind.UNARY, (way.value(),), symbol))


_HANDLERS: Final[dict[str, Handler]] = {
    "LOAD_FAST": lambda r, way, step: r.load(way, (step.argval,)),
    "LOAD_FAST_CHECK": lambda r, way, step: r.load(way, (step.argval,)),
    "LOAD_FAST_LOAD_FAST": lambda r, way, step: r.load(way, step.argval),
    "STORE_FAST": lambda r, way, step: r.store(way, (step.argval,)),
    "STORE_FAST_STORE_FAST": lambda r, way, step: r.store(way, step.argval),
    "STORE_FAST_LOAD_FAST": _store_and_load,
    "LOAD_CONST": lambda _r, way, step: _constant(way, step.argval),
    "LOAD_GLOBAL": Reader.load_global,
    "LOAD_DEREF": Reader.load_outer,
    "LOAD_ATTR": lambda r, way, step: r.attribute(way, step),
    "LOAD_METHOD": lambda r, way, step: r.attribute(way, step),
    "PUSH_NULL": lambda _r, way, _s: way.stack.append(NULL),
    "KW_NAMES": _keywords,
    "CALL": lambda r, way, step: r.call(way, step.arg or 0, _names_of(way)),
    "CALL_KW": _call_kw,
    "BINARY_OP": lambda r, way, step: r.binary(way, step.argrepr),
    "COMPARE_OP": _compare,
    "CONTAINS_OP": lambda r, way, step: r.binary(way, "not in" if step.arg else "in"),
    "IS_OP": lambda r, way, step: r.identity(way, "is not" if step.arg else "is"),
    "BINARY_SUBSCR": lambda r, way, _s: r.item(way),
    "BINARY_SLICE": lambda r, way, _s: r.slice_item(way),
    "BUILD_SLICE": _slice,
    "UNARY_NOT": _unary("not "),
    "TO_BOOL": lambda r, way, _s: _to_bool(r.following(way), way),
    "UNARY_NEGATIVE": _unary("-"),
    "UNARY_POSITIVE": _unary("+"),
    "UNARY_INVERT": _unary("~"),
    "CALL_INTRINSIC_1": _intrinsic,
    "BUILD_TUPLE": lambda r, way, step: r.sequence(way, Kind.TUPLE, step.arg or 0),
    "BUILD_LIST": lambda r, way, step: r.sequence(way, Kind.LIST, step.arg or 0),
    "LIST_EXTEND": lambda r, way, _s: r.extend(way),
    "UNPACK_SEQUENCE": lambda r, way, step: r.unpack(way, step.arg or 0),
    "FORMAT_VALUE": _format_value,
    "FORMAT_SIMPLE": lambda r, way, _s: r.formatted(way, "", has_specification=False),
    "FORMAT_WITH_SPEC": lambda r, way, _s: r.formatted(way, "", has_specification=True),
    "CONVERT_VALUE": _convert,
    "BUILD_STRING": _join,
    "POP_TOP": lambda _r, way, _s: _pop_top(way),
    "COPY": lambda _r, way, step: way.stack.append(way.stack[-(step.arg or 1)]),
    "SWAP": lambda _r, way, step: _swap(way, step.arg or 1),
}
