"""From a tree to the steps of a kernel, by the classes of the columns. An operation without a kernel refuses the tree.

Source: none; anchor: the compilation of expressions in vectorised engines (MonetDB/X100, CIDR 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.row_functions.kernels import choices, numbers, texts
from penstock.runtime.row_functions.kernels.calls import call_of, method_of
from penstock.runtime.row_functions.kernels.values import Result, Value
from penstock.runtime.row_functions.kernels.vectors import (
    Given,
    Of,
    Run,
    Vector,
    kind_of,
    of_column,
    of_constant,
    spread,
)
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.trees import Kind, Node

MOST_STEPS: Final = 500


class Builder:
    """The steps of one kernel. `types`: of the columns."""

    def __init__(self, types: list[pa.DataType]) -> None:
        self._types = types
        self._known: dict[int, Value] = {}
        self.steps: list[tuple[Run, tuple[int, ...]]] = []

    # ------------------------------------------------------------------ results

    def result(self, tree: Node) -> Result:
        """The steps for what a function returns. Raises: Refused."""
        result, keeps = self._result(tree)
        if result is None:
            raise Refused("it drops all records")
        return result if keeps is None else replace(result, keeps=keeps)

    def flag(self, tree: Node) -> Value:
        """The steps for whether what a function returns is true. Raises: Refused."""
        return self.truth(self.value(tree))

    def _result(self, tree: Node) -> tuple[Result | None, Value | None]:
        """The result, and whether there is one; None for that: always."""
        if tree.kind is Kind.IF:
            return self._one_of(tree)
        if tree.kind is Kind.SEQUENCE:
            first, (result, keeps) = self.value(tree.args[0]), self._result(tree.args[1])
            return result, self._after(first, keeps or self._constant(True))
        if tree.kind is Kind.DROP:
            return None, self._constant(False)
        if tree.kind in {Kind.TUPLE, Kind.ROW}:
            fields = tuple(map(self.value, tree.args))
            is_row = tree.kind is Kind.ROW
            return Result(fields, len(fields), is_row, tree.value if is_row else None), None
        return Result((self.value(tree),), None, is_row=False, names=None), None

    def _one_of(self, tree: Node) -> tuple[Result | None, Value | None]:
        condition = self.truth(self.value(tree.args[0]))
        (then, is_then), (other, is_other) = map(self._result, tree.args[1:])
        keeps = None
        # A condition that fails is noticed where there are no fields, too.
        if is_then is not None or is_other is not None:
            flags = [one or self._constant(True) for one in (is_then, is_other)]
            keeps = self.chosen(condition, *flags)
        if then is None or other is None:
            return then or other, keeps
        if then.shape != other.shape:
            raise Refused("it returns records of several shapes")
        pairs = zip(then.fields, other.fields, strict=True)
        fields = tuple(self.chosen(condition, one, two) for one, two in pairs)
        return Result(fields, then.width, then.is_row, then.names), keeps

    # ------------------------------------------------------------------ values

    def value(self, node: Node) -> Value:
        """The steps for one value. Raises: Refused."""
        found = self._known.get(id(node))
        if found is None:
            handle = _BY_KIND.get(node.kind)
            if handle is None:
                raise Refused(f"it has a {node.kind} that no kernel makes")
            found = self._known[id(node)] = handle(self, node)
        return found

    def step(self, of: Of, run: Run, *arguments: Value) -> Value:
        """A step on some values. At least one of them has a value for each row."""
        if len(self.steps) >= MOST_STEPS:
            raise Refused("it has too many operations for a kernel")
        if all(one.is_constant for one in arguments):
            arguments = (self._spread(arguments[0]), *arguments[1:])
        self.steps.append((run, tuple(one.at for one in arguments)))
        return Value(of, len(self.steps) - 1)

    def _spread(self, constant: Value) -> Value:
        self.steps.append((spread, (constant.at,)))
        return Value(constant.of, len(self.steps) - 1)

    def column(self, node: Node) -> Value:
        place: int = node.value
        kind = kind_of(self._types[place])

        def run(given: Given) -> Vector:
            return of_column(given.batch.column(place), kind)

        self.steps.append((run, ()))
        return Value(kind, len(self.steps) - 1, column=place)

    def constant_of(self, node: Node) -> Value:
        return self._constant(node.value)

    def _constant(self, value: Any) -> Value:
        found = of_constant(value)
        if found is None:
            raise Refused(f"no kernel takes the constant {type(value).__name__}")
        of, vector = found
        self.steps.append((lambda _given: vector, ()))
        return Value(of, len(self.steps) - 1, is_constant=True)

    # ------------------------------------------------------------------ operations

    def truth(self, value: Value) -> Value:
        """`bool(value)`."""
        if value.of is Of.OTHER:
            raise Refused("it asks whether bytes, a decimal or a date are true")
        return self.step(Of.BOOL, choices.truth(value.of), value)

    def chosen(self, condition: Value, then: Value, other: Value) -> Value:
        """One of two values of the same class, of which one may be None."""
        kinds = {then.of, other.of} - {Of.NOTHING}
        if len(kinds) > 1 or Of.OTHER in kinds:
            raise Refused("its branches give values of several classes")
        if not kinds:
            kinds = {Of.NOTHING}
        (kind,) = kinds
        both = [self._as_kind(one, kind) for one in (then, other)]
        return self.step(kind, choices.chosen(kind), condition, *both)

    def _as_kind(self, value: Value, kind: Of) -> Value:
        return value if value.of is kind else self.step(kind, choices.nothing(kind), value)

    def _after(self, first: Value, result: Value) -> Value:
        of = result.of
        both = (first, self._spread(result) if result.is_constant else result)
        return self.step(of, choices.after, *both)

    def sequence(self, node: Node) -> Value:
        first, result = map(self.value, node.args)
        return self._after(first, result)

    def conditional(self, node: Node) -> Value:
        condition, then, other = map(self.value, node.args)
        return self.chosen(self.truth(condition), then, other)

    def unary(self, node: Node) -> Value:
        one, symbol = self.value(node.args[0]), node.value
        if symbol == "not ":
            return self.step(Of.BOOL, choices.negated, self.truth(one))
        if one.of is Of.FLOAT and symbol in "+-":
            run = numbers.negative_float if symbol == "-" else numbers.same
            return self.step(Of.FLOAT, run, one)
        if one.of not in {Of.INT, Of.BOOL}:
            raise Refused(f"no kernel has {symbol} of {one.of}")
        ints = self.as_ints(one)
        run = {"-": numbers.negative_int, "+": numbers.same, "~": numbers.inverted}[symbol]
        return self.step(Of.INT, run, ints)

    def as_ints(self, value: Value) -> Value:
        """Booleans as 0 and 1."""
        return self.step(Of.INT, numbers.as_ints, value) if value.of is Of.BOOL else value

    def as_floats(self, value: Value) -> Value:
        if value.of is Of.FLOAT:
            return value
        return self.step(Of.FLOAT, numbers.as_floats, self.as_ints(value))

    def binary(self, node: Node) -> Value:
        symbol = node.value
        if symbol in {"in", "not in"}:
            return self._among(node, is_in=symbol == "in")
        one, other = map(self.value, node.args)
        if symbol in {"is", "is not"}:
            return self._identity(one, other, node, is_same=symbol == "is")
        if symbol in choices.COMPARISONS:
            return self._compared(symbol, one, other)
        return self._arithmetic(symbol, one, other)

    def _arithmetic(self, symbol: str, one: Value, other: Value) -> Value:
        kinds = {one.of, other.of}
        if kinds == {Of.TEXT} and symbol == "+":
            return self.step(Of.TEXT, texts.joined, one, other)
        if not kinds <= _NUMBERS:
            raise Refused(f"no kernel has {one.of} {symbol} {other.of}")
        if Of.FLOAT in kinds:
            return self._of_floats(symbol, self.as_floats(one), self.as_floats(other))
        if kinds == {Of.BOOL} and symbol in "&|^":
            raise Refused(f"no kernel has bool {symbol} bool")
        return self._of_ints(symbol, self.as_ints(one), self.as_ints(other))

    def _of_ints(self, symbol: str, one: Value, other: Value) -> Value:
        if symbol == "/":
            return self.step(Of.FLOAT, numbers.divided_ints, one, other)
        if symbol not in numbers.INTS:
            raise Refused(f"no kernel has int {symbol} int")
        return self.step(Of.INT, numbers.INTS[symbol], one, other)

    def _of_floats(self, symbol: str, one: Value, other: Value) -> Value:
        if symbol not in numbers.FLOATS:
            raise Refused(f"no kernel has float {symbol} float")
        return self.step(Of.FLOAT, numbers.FLOATS[symbol], one, other)

    def _compared(self, symbol: str, one: Value, other: Value) -> Value:
        kinds = {one.of, other.of}
        if kinds == {Of.TEXT}:
            return self.step(Of.BOOL, choices.compared_texts(symbol), one, other)
        if not kinds <= _NUMBERS:
            raise Refused(f"no kernel has {one.of} {symbol} {other.of}")
        both = [self.as_ints(value) for value in (one, other)]
        if Of.FLOAT in kinds:
            both = [
                value if value.of is Of.FLOAT else self.step(Of.FLOAT, choices.exact, value)
                for value in both
            ]
        return self.step(Of.BOOL, choices.compared_numbers(symbol), *both)

    def _identity(self, one: Value, other: Value, node: Node, *, is_same: bool) -> Value:
        left, right = node.args
        value, what = (one, right.value) if _is_singleton(right) else (other, left.value)
        if what is not None:
            if value.of is Of.BOOL:
                found = self.step(Of.BOOL, choices.is_flag(what), value)
                return found if is_same else self.step(Of.BOOL, choices.negated, found)
            return self.step(Of.BOOL, choices.always(is_true=not is_same), value)
        if value.of is Of.NOTHING:
            return self.step(Of.BOOL, choices.always(is_true=is_same), value)
        run = choices.is_none if is_same else choices.is_not_none
        return self.step(Of.BOOL, run, value)

    def _among(self, node: Node, *, is_in: bool) -> Value:
        what, among = node.args
        if among.kind in {Kind.CONSTANT, Kind.KNOWN} and type(among.value) in {tuple, frozenset}:
            found = self._among_constants(self.value(what), among.value)
        else:
            text = self.value(among)
            is_constant = what.kind in {Kind.CONSTANT, Kind.KNOWN} and type(what.value) is str
            if text.of is not Of.TEXT or not is_constant or of_constant(what.value) is None:
                raise Refused("no kernel searches there")
            found = self.step(Of.BOOL, texts.contains(what.value), text)
        return found if is_in else self.step(Of.BOOL, choices.negated, found)

    def _among_constants(self, value: Value, among: Any) -> Value:
        classes = set(map(type, among))
        are_taken = all(of_constant(one) is not None for one in among)
        if value.of is Of.INT and classes <= {int} and are_taken:
            return self.step(Of.BOOL, choices.among_numbers(among), value)
        if value.of is Of.TEXT and classes <= {str} and are_taken:
            return self.step(Of.BOOL, choices.among_texts(among), value)
        raise Refused(f"no kernel searches {value.of} among these constants")

    def item(self, node: Node) -> Value:
        text, index = self.value(node.args[0]), node.args[1]
        if text.of is not Of.TEXT:
            raise Refused(f"no kernel takes an item of {text.of}")
        if index.kind is Kind.SLICE:
            bounds = [_position(one) for one in index.args]
            if len(bounds) != 2 or any(one is _UNKNOWN for one in bounds):
                raise Refused("no kernel cuts texts at computed or negative positions")
            return self.step(Of.TEXT, texts.cut(bounds[0] or 0, bounds[1]), text)
        at = _position(index)
        if type(at) is not int:
            raise Refused("no kernel takes a character at a computed or negative position")
        return self.step(Of.TEXT, texts.character(at), text)

    def call(self, node: Node) -> Value:
        function, arguments = node.args[0].value, node.args[1:]
        if node.value:
            raise Refused("no kernel takes arguments by name")
        return call_of(self, function, arguments)

    def method(self, node: Node) -> Value:
        name, names = node.value
        text = self.value(node.args[0])
        if names or text.of is not Of.TEXT:
            raise Refused(f"no kernel has {name}() of {text.of}")
        run, of = method_of(name, node.args[1:])
        return self.step(of, run, text)

    def text_of(self, value: Value) -> Value:
        """`str(value)`, of what Arrow writes as Python does."""
        if value.of is Of.TEXT:
            return self.step(Of.TEXT, numbers.same, value)
        run = {Of.INT: texts.text_of_int, Of.BOOL: texts.text_of_bool}.get(value.of)
        if run is None:
            raise Refused(f"no kernel writes {value.of} as text")
        return self.step(Of.TEXT, run, value)

    def formatted(self, node: Node) -> Value:
        if node.value not in {"", "!s"} or len(node.args) > 1:
            raise Refused("no kernel has a format specification")
        return self.text_of(self.value(node.args[0]))

    def join(self, node: Node) -> Value:
        return self.step(Of.TEXT, texts.joined, *map(self.value, node.args))


_UNKNOWN: Final = object()
_NUMBERS: Final = frozenset({Of.INT, Of.FLOAT, Of.BOOL})


def _position(node: Node) -> Any:
    """A position in a text that is not negative, or None; _UNKNOWN: another one."""
    if node.kind is Kind.CONSTANT and node.value is None:
        return None
    is_int = node.kind is Kind.CONSTANT and type(node.value) is int
    return node.value if is_int and 0 <= node.value < _FARTHEST else _UNKNOWN


_FARTHEST: Final = 2**31


def _is_singleton(node: Node) -> bool:
    return node.kind is Kind.CONSTANT and (node.value is None or type(node.value) is bool)


_BY_KIND: Final[dict[Kind, Callable[[Any, Node], Value]]] = {
    Kind.COLUMN: Builder.column,
    Kind.CONSTANT: Builder.constant_of,
    Kind.KNOWN: Builder.constant_of,
    Kind.IF: Builder.conditional,
    Kind.SEQUENCE: Builder.sequence,
    Kind.UNARY: Builder.unary,
    Kind.BINARY: Builder.binary,
    Kind.ITEM: Builder.item,
    Kind.CALL: Builder.call,
    Kind.METHOD: Builder.method,
    Kind.FORMAT: Builder.formatted,
    Kind.JOIN: Builder.join,
}
