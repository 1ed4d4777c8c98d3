"""Random row functions, as text of a random grammar, and random records for them.

Random records do not suffice: that two constants were merged, `0.0` and `-0.0`, was not seen by seven million of them.
"""

import math
import random
from decimal import Decimal

import pyarrow as pa

from penstock.common.typeinfo import Types
from penstock.engine.model.row import Row

FIELDS = {
    "a": Types.LONG(),
    "n": Types.INT(),
    "b": Types.DOUBLE(),
    "s": Types.STRING(),
    "t": Types.STRING(),
    "f": Types.BOOLEAN(),
    "y": Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
TYPE = Types.ROW_NAMED(list(FIELDS), list(FIELDS.values()))
_INTS = (0, 1, -1, 2, 3, 7, 10, 255, -(2**63), 2**63 - 1, 2**53 + 1, 70_000)
_FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf)
_TEXTS = (
    "",
    " ",
    "x",
    "a b",
    " Ab,c ",
    "İ",
    "ß",
    "Σς",
    "12",
    "-7",
    "1.5",
    "\x1c",
    "\x85",
    "\0",
    "nan",
)
CONSTANTS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "0.0",
    "-0.0",
    "1.0",
    "0.5",
    "True",
    "False",
    "None",
    "''",
    "'a'",
    "' '",
    "'x y'",
    "b'x'",
    "1e308",
    "10**3",
    "(1, 2)",
    "('a', 'x')",
    "(0.0, -0.0)",
)
SCOPE = {
    "RATE": 1.25,
    "ZERO": -0.0,
    "NAMES": {"x": 1, "": None, "a b": -0.0},
    "WORDS": frozenset({"x", "12", ""}),
    "LIMITS": [1, 2.0, None],
    "SEEN": {1, "x"},
    "math": math,
    "Row": Row,
    "Decimal": Decimal,
}
_BINARY = (
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "<",
    "<=",
    "==",
    "!=",
    ">",
    ">=",
    "&",
    "|",
    "^",
    "in",
    "not in",
)
_CALLS = (
    "len({})",
    "str({})",
    "int({})",
    "float({})",
    "bool({})",
    "abs({})",
    "round({})",
    "round({}, 1)",
    "repr({})",
    "min({}, {})",
    "max({}, {})",
    "sorted({})",
    "sum({})",
    "ord({})",
    "tuple({})",
    "isinstance({}, str)",
    "isinstance({}, int)",
    "math.floor({})",
    "math.sqrt({})",
    "divmod({}, {})",
    "NAMES.get({}, {})",
    "int({}, base=10)",
    "Decimal({})",
    "list({})",
    "math.isnan({})",
)
_METHODS = (
    "strip()",
    "lower()",
    "upper()",
    "split()",
    "split({})",
    "title()",
    "isdigit()",
    "startswith({})",
    "replace('a', {})",
    "find({})",
    "count({})",
    "zfill(4)",
    "partition(' ')",
    "encode()",
    "split(sep=' ', maxsplit=1)",
    "index({})",
    "is_integer()",
    "bit_length()",
    "join({})",
)


_CONSTANTS_OF = {
    "number": tuple(one for one in CONSTANTS if one[-1].isdigit()),
    "text": ("''", "'a'", "' '", "'x y'"),
    "truth": ("True", "False", "None"),
}
_FIELDS_OF = {"number": ("a", "n", "b", "b"), "text": ("s", "t"), "truth": ("f", "a")}


class Grammar:
    """Makes texts of functions. `seed`: the same seed gives the same functions."""

    fields = FIELDS

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._variables = []

    def function(self, style="attribute"):
        """The text of a function `f(r)`. `style`: how it reads fields: by attribute, item, or position."""
        self._variables, self._style = [], style
        lines = ["def f(r):", "    v0 = v1 = v2 = v3 = 1"]
        if self.random.random() < 0.1 and style != "attribute":
            lines.append(f"    {', '.join(self.fields)} = r")
            self._variables = list(self.fields)
        self._block(lines, "    ", 2)
        return "\n".join(lines) + "\n"

    def _block(self, lines, indent, depth):
        """Statements, of which the last one returns, or does not."""
        choose = self.random.random
        for _ in range(self.random.randrange(3)):
            lines.append(indent + self._statement())
        while depth and choose() < 0.4:
            known = list(self._variables)
            lines.append(f"{indent}if {self._value(2)}:")
            if choose() < 0.5:
                lines.append(f"{indent}    {self._statement()}")
            else:
                self._block(lines, indent + "    ", depth - 1)
            if choose() < 0.4:
                self._variables = list(known)
                lines.append(f"{indent}else:")
                lines.append(f"{indent}    {self._statement()}")
            self._variables = known
            depth -= 1
        if choose() < 0.95 or depth == 2:
            lines.append(f"{indent}return {self._result()}")
        else:
            lines.append(f"{indent}pass")

    def _statement(self):
        kind = self.random.random()
        if kind < 0.1:
            return self._value(2)
        if kind < 0.25 and self._variables:
            name = self.random.choice(self._variables)
            return f"{name} {self.random.choice(('+=', '-=', '*=', '//='))} {self._value(1)}"
        if kind < 0.35:
            one, two = self._new(), self._new()
            return f"{one}, {two} = {self._made(2)}, {self._made(2)}"
        value = self._value(3)
        return f"{self._new()} = {value}"

    def _made(self, depth):
        value = self._value(depth)
        return f"({value})"

    def _new(self):
        name = f"v{self.random.randrange(4)}"
        if name not in self._variables:
            self._variables.append(name)
        return name

    def _result(self):
        kind = self.random.random()
        if kind < 0.35:
            return f"({', '.join(self._value(3) for _ in range(self.random.randrange(1, 4)))},)"
        if kind < 0.45:
            return f"Row(x={self._value(2)}, z={self._value(2)})"
        if kind < 0.5:
            return f"[{self._value(2)}, {self._value(2)}]"
        return self._value(4)

    def _field(self, kind):
        name = self.random.choice(_FIELDS_OF.get(kind, list(self.fields)))
        return self._read("r", name)

    def _read(self, record, name):
        if self._style == "attribute":
            return f"{record}.{name}"
        place = repr(name) if self._style == "item" else list(self.fields).index(name)
        return f"{record}[{place}]"

    def _value(self, depth, kind=None):
        """An expression, mostly of this kind."""
        choose = self.random
        if kind is None or choose.random() < 0.03:
            kind = choose.choice(("number", "number", "text", "text", "truth", "any"))
        if depth <= 0 or choose.random() < 0.2:
            return self._leaf(kind)
        if choose.random() < 0.12:
            other = f"{self._value(depth - 1, kind)} if {self._value(depth - 1)} else"
            return f"({other} {self._value(depth - 1, kind)})"
        if choose.random() < 0.08:
            either = choose.choice(("and", "or"))
            return f"({self._value(depth - 1, kind)} {either} {self._value(depth - 1, kind)})"
        return getattr(self, f"_{kind}")(depth - 1)

    def _number(self, depth):
        one, two = self._value(depth, "number"), self._value(depth, "number")
        shapes = (
            "({0} + {1})",
            "({0} - {1})",
            "({0} * {1})",
            "({0} / {1})",
            "({0} // {1})",
            "({0} % {1})",
            "(-{0})",
            "(+{0})",
            "abs({0})",
            "round({0}, 1)",
            "round({0})",
            "int({0})",
            "float({0})",
            "min({0}, {1})",
            "max({0}, {1}, 0)",
            "math.floor({0})",
            "NAMES.get({2}, {0})",
            "len({2})",
            "{2}.count({3})",
            "{2}.find({3})",
            "({0}, {1})[1]",
            "sum((1, {0}))",
            "divmod({0}, {1})[0]",
            "({0} & 7)",
            "(~{0})",
            "int({2})",
            "ord({2}[0])",
            "LIMITS[{0}]",
            "(0.0, {0}, -0.0)[0]",
        )
        return self.random.choice(shapes).format(one, two, *self._texts(depth))

    def _texts(self, depth):
        return self._value(depth - 1, "text"), self._value(0, "text")

    def _text(self, depth):
        one, two = self._value(depth, "text"), self._value(depth - 1, "text")
        number = self._value(depth - 1, "number")
        if self.random.random() < 0.3:
            return self._formatted(self._value(depth), depth)
        shapes = (
            "({0} + {1})",
            "{0}.strip()",
            "{0}.lower()",
            "{0}.upper()",
            "{0}.title()",
            "{0}[1:3]",
            "{0}[:2]",
            "{0}[::2]",
            "{0}[{2}:]",
            "str({2})",
            "repr({0})",
            "{0}.replace('a', {1})",
            "{0}.zfill(4)",
            "{0}.partition(' ')[0]",
            "{0}.split()[0]",
            "{0}.split(sep=' ')[-1]",
            "{0}.join(({1}, {0}))",
            "({0} * 2)",
            "','.join(sorted({0}.split()))",
            "chr({2})",
        )
        return self.random.choice(shapes).format(one, two, number)

    def _truth(self, depth):
        one, two = self._value(depth, "number"), self._value(depth, "number")
        text, other = self._texts(depth)
        anything = self._value(depth)
        shapes = (
            "({0} < {1})",
            "({0} == {1})",
            "({0} != {1})",
            "(0 <= {0} < {1})",
            "(not {4})",
            "({4} is None)",
            "({4} is not None)",
            "({4} is True)",
            "({2} == {3})",
            "({2} in {3})",
            "({2} not in WORDS)",
            "({2} in NAMES)",
            "bool({4})",
            "{2}.isdigit()",
            "({0} in (1, 2.0, None))",
            "{2}.startswith({3})",
            "isinstance({4}, str)",
            "({0} in LIMITS)",
            "({2} < {3})",
        )
        return self.random.choice(shapes).format(one, two, text, other, anything)

    def _any(self, depth):
        one, two = self._value(depth), self._value(depth)
        kind = self.random.random()
        if kind < 0.4:
            return f"({one} {self.random.choice(_BINARY)} {two})"
        if kind < 0.6:
            return self.random.choice(_CALLS).format(one, two)
        if kind < 0.8:
            return f"{one}.{self.random.choice(_METHODS).format(two)}"
        return f"({one}, {two}){self.random.choice(('', '[0]', '[1]', '[:1]', '[2]'))}"

    def _formatted(self, value, depth):
        quote = '"' * 3 if depth > 1 else "'" * 3 if depth > 0 else '"'
        if quote[0] in value or "\\" in value:
            return f"str({value})"
        shape = self.random.choice((
            "{%s}",
            "<{%s!r}>",
            "{%s!s:>4}",
            "{%s!s:5}|{%s}",
            "{%s!a}",
            "{%s:}",
        ))
        return f"f{quote}{shape.replace('%s', f'({value})')}{quote}"

    def _leaf(self, kind="any"):
        drawn = self.random.random()
        if self._variables and drawn < 0.2:
            return self.random.choice(self._variables)
        if drawn < 0.75:
            return self._field(kind)
        if drawn < 0.8:
            return self.random.choice(("RATE", "ZERO", "NAMES", "WORDS", "LIMITS"))
        of_kind = _CONSTANTS_OF.get(kind, CONSTANTS)
        return f"({self.random.choice(of_kind)})"

    def records(self, count):
        """Records of random and of extreme values, with None here and there."""
        choose = self.random

        def one(values, nothing=0.02):
            return None if choose.random() < nothing else choose.choice(values)

        tame = (
            (1, 2, 3, 7),
            (1, 2, 5),
            (0.5, -1.5, 2.0, -0.0),
            ("12", "7", "3"),
            ("a b", "x", "12"),
            (True, False),
            (b"x",),
        )
        small = tuple(v for v in _INTS if abs(v) < 2**31)
        wild = (
            _INTS,
            small,
            (*_FLOATS, choose.uniform(-99, 99)),
            _TEXTS,
            _TEXTS,
            (True, False),
            (b"", b"x", b"a b"),
        )
        return [
            tuple(
                one(wild[at] if choose.random() < 0.15 else tame[at]) for at in range(len(FIELDS))
            )
            for _ in range(count)
        ]


def columns(records, kind=TYPE):
    """The records as an Arrow batch of a ROW type."""
    from penstock.engine.model.row import make_row
    from penstock.engine.runtime.codecs.convert import to_columns
    from penstock.engine.runtime.elements import RowBatch

    rows = [make_row(tuple(kind.get_field_names()), values) for values in records]
    batch = to_columns(RowBatch(rows), kind)
    assert isinstance(batch.data, pa.RecordBatch)
    return batch


def made(text):
    """The function of this text."""
    scope = dict(SCOPE)
    exec(compile(text, "<random function>", "exec"), scope)
    return scope["f"]
