"""Random functions that kernels take: each expression has one class of values, and most operations have a kernel."""

from tests.tools.random_containers import ALL_FIELDS, with_containers
from tests.tools.random_functions import Grammar

FIELDS_OF = {"int": ("a", "n"), "float": ("b",), "text": ("s", "t"), "truth": ("f",)}
CONSTANTS_OF = {
    "int": ("0", "1", "-1", "2", "3", "7", "-3", "9223372036854775807", "9007199254740993"),
    "float": (
        "0.0",
        "-0.0",
        "1.0",
        "0.5",
        "-2.5",
        "1e308",
        "RATE",
        "ZERO",
        "0.1",
        "2.0**53",
        "2.0**63",
    ),
    "text": ("''", "'a'", "' '", "'x y'", "'İ'", "'ab'", "'1'"),
    "truth": ("True", "False"),
}
KINDS = ("int", "int", "float", "float", "text", "truth")
SHAPES = {
    "int": (
        "({i} + {j})", "({i} - {j})", "({i} * {j})", "({i} // {j})", "({i} % {j})", "(-{i})",
        "abs({i})", "(+{i})", "({i} & {j})", "({i} | 5)", "({i} ^ {j})", "(~{i})", "int({x})",
        "round({x})", "math.floor({x})", "math.ceil({x})", "len({s})", "min({i}, {j})",
        "max({i}, {j}, 0)", "int({t})", "({t} + {i})", "({i} * {t})", "abs({t})", "int({i})",
    ),
    "float": (
        "({x} + {y})", "({x} - {y})", "({x} * {y})", "({x} / {y})", "({x} // {y})", "({x} % {y})",
        "(-{x})", "(+{x})", "abs({x})", "({i} / {j})", "({i} + {x})", "({x} * {i})", "({i} % {x})",
        "({x} // {i})", "({i} - {x})", "({x} / {i})", "float({i})", "min({x}, {y})",
        "max({x}, {y})", "math.sqrt({x})", "math.fabs({i})", "({t} * {x})", "float({x})",
    ),
    "text": (
        "({s} + {u})", "{s}.strip()", "{s}.lower()", "{s}.upper()", "{s}.lstrip()", "{s}.rstrip()",
        "{s}[1:3]", "{s}[:2]", "{s}[2:]", "{s}[0]", "{s}[3:1]", "str({i})", "str({s})", "str({t})",
        "{s}.replace('a', 'bb')", "f'{{{i}}}-{{{s}}}'", "f'{{{s}}}'", "f'{{{t}!s}}|'",
        "{s}.replace(' ', '')", "{s}[1]",
    ),
    "truth": (
        "({i} < {j})", "({i} == {j})", "({x} != {y})", "({x} >= {y})", "({i} <= {x})",
        "({x} == {i})", "(0 <= {i} < {j})", "(not {any})", "({any} is None)", "({any} is not None)",
        "({t} is True)", "({s} == {u})", "({s} < {u})", "({s} != {u})", "({t} == {i})",
        "('a' in {s})", "(' ' not in {s})", "({s} in ('a', 'x', ''))", "({i} in (1, 2, 7))",
        "bool({any})", "{s}.startswith('a')", "{s}.endswith('b')", "{s}.isdigit()",
        "math.isnan({x})", "math.isfinite({x})", "isinstance({any}, str)", "isinstance({any}, int)",
        "({s} in WORDS)", "({t} > {v})", "({t} is not False)", "({s} >= {u})", "('' in {s})",
        "({i} == 2.0**53)", "(2.0**63 > {i})",
    ),
}  # fmt: skip


class KernelGrammar(Grammar):
    """As Grammar."""

    def _value(self, depth, kind=None):
        choose = self.random
        kind = kind if kind in SHAPES else choose.choice(KINDS)
        if depth <= 0 or choose.random() < 0.2:
            return self._leaf(kind)
        drawn = choose.random()
        if drawn < 0.12:
            condition = self._value(depth - 1)
            if choose.random() < 0.3:
                field = self._field(kind)
                return f"({self._leaf(kind)} if {field} is None else {field})"
            one, two = self._value(depth - 1, kind), self._value(depth - 1, kind)
            return f"({one} if {condition} else {two})"
        if drawn < 0.2:
            either = choose.choice(("and", "or"))
            return f"({self._value(depth - 1, kind)} {either} {self._value(depth - 1, kind)})"
        return self._filled(choose.choice(SHAPES[kind]), depth - 1)

    def _filled(self, shape, depth):
        """A shape with values: i and j stand for ints, x and y for floats, s and u for texts, t and v for truth values."""
        kinds = dict.fromkeys("ij", "int") | dict.fromkeys("xy", "float")
        kinds |= dict.fromkeys("su", "text") | dict.fromkeys("tv", "truth")
        is_quoted = "'" in shape and shape.startswith("f")
        made = {}
        for name, kind in kinds.items():
            if f"{{{name}" in shape:
                made[name] = self._field(kind) if is_quoted else self._value(depth, kind)
                if is_quoted and "'" in made[name]:
                    made[name] = "1"
        if "{any}" in shape:
            made["any"] = self._value(depth)
        return shape.format(**made)

    def _leaf(self, kind="int"):
        kind = kind if kind in SHAPES else self.random.choice(KINDS)
        drawn = self.random.random()
        if drawn < 0.02:
            return "None"
        if drawn < 0.05 and self._variables:
            return self.random.choice(self._variables)
        if drawn < 0.75:
            return self._field(kind)
        return f"({self.random.choice(CONSTANTS_OF[kind])})"

    def _field(self, kind):
        name = self.random.choice(FIELDS_OF.get(kind, FIELDS_OF["int"]))
        return self._read("r", name)

    def _statement(self):
        kind = self.random.random()
        if kind < 0.15:
            return self._value(2)
        if kind < 0.3 and self._variables:
            name = self.random.choice(self._variables)
            return f"{name} {self.random.choice(('+=', '-=', '*='))} {self._value(1, 'int')}"
        value = self._value(3)
        return f"{self._new()} = {value}"

    def _result(self):
        kind = self.random.random()
        if kind < 0.5:
            return f"({', '.join(self._value(3) for _ in range(self.random.randrange(1, 4)))},)"
        if kind < 0.6:
            return f"Row(x={self._value(3)}, z={self._value(2)})"
        return self._value(4)


class PassingGrammar(KernelGrammar):
    """Its records have a list and a dict, which functions test and pass on."""

    fields = ALL_FIELDS

    def records(self, count):
        return with_containers(self.random, super().records(count))

    def _truth_of_container(self):
        shape = self.random.choice(("({} is None)", "({} is not None)", "bool({})", "(not {})"))
        return shape.format(self._container())

    def _container(self):
        return self._read("r", self.random.choice("lm"))

    def _value(self, depth, kind=None):
        if kind == "truth" and self.random.random() < 0.2:
            return self._truth_of_container()
        return super()._value(depth, kind)

    def _result(self):
        drawn, own = self.random.random(), self._value(2)
        if drawn < 0.1:
            return self._container()
        if drawn < 0.2:
            chosen = f"({self._container()} if {self._value(1, 'truth')} else {self._container()})"
            return f"({own}, {chosen})"
        if drawn < 0.6:
            return f"Row(x={own}, l={self._read('r', 'l')}, z={self._read('r', 'm')})"
        return f"({own}, {self._container()}, {self._value(2)})"
