"""Objects that log each operation on them. Two ways of running a function are the same if they leave the same log."""

from zlib import crc32

from penstock.model.row import Row

_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"),
    *("lt", "le", "eq", "ne", "gt", "ge", "contains"),
)
_UNARY = ("neg", "pos", "invert", "abs", "bool", "len", "str", "repr", "int", "float", "round")
_PLAIN = {"bool": True, "len": 2, "str": "s", "repr": "<r>", "int": 3, "float": 1.5, "contains": 1}
_FAILS_AT = 5


class Logged:
    """Whatever is done with it is written to `log`, and gives another one; from time to time it fails."""

    def __init__(self, log, name, fails=True):
        self.__dict__.update(_log=log, _name=name, _fails=fails)

    def _did(self, what, *others):
        self._log.append((self._name, what, *map(told, others)))
        if self._fails and crc32(f"{self._name} {what}".encode()) % _FAILS_AT == 0:
            raise ValueError(f"{what} of {self._name}")
        return _PLAIN.get(what, Logged(self._log, f"{self._name}.{what}", self._fails))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._did(name)

    def __getitem__(self, index):
        return self._did("item", index)

    def __iter__(self):
        self._did("iter")
        return iter(("i", 2))

    def __format__(self, specification):
        self._did("format", specification)
        return "f"

    def __hash__(self):
        self._log.append((self._name, "hash"))
        return 1


def told(value):
    """The value, with the names of the objects in it. Nothing is done with them."""
    if isinstance(value, Logged):
        return value._name
    if isinstance(value, (tuple, list, Row)):
        return type(value).__name__, *map(told, value)
    return repr(value)


def _binary(name):
    return lambda self, other: self._did(name, other)


def _unary(name):
    return lambda self, *others: self._did(name, *others)


for one in _BINARY:
    setattr(Logged, f"__{one}__", _binary(one))
    if one not in {"lt", "le", "eq", "ne", "gt", "ge", "contains"}:
        setattr(Logged, f"__r{one}__", _binary(f"r{one}"))
for one in _UNARY:
    setattr(Logged, f"__{one}__", _unary(one))
