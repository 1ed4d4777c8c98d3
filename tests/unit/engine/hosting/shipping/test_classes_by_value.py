"""Classes of the main script, in another process and back in their own. Expectations: they themselves, run there."""

import subprocess
import sys
import textwrap

import pytest

from penstock.engine.hosting.shipping.pickling import deserialize, serialize

ENUMS = """
import datetime
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum

class Tcp(IntFlag):
    NONE = 0
    FIN = 1
    SYN = 2
    HELLO = 2
    ACK = 16
    SYN_ACK = 18

class Colour(Flag):
    BLACK = 0
    RED = 1
    BLUE = 4
    PURPLE = 5

    @property
    def is_dark(self):
        return self in (Colour.BLACK, Colour.PURPLE)

class Planet(Enum):
    EARTH = (5.97, 6.3)
    MARS = (0.64, 3.3)
    HOME = (5.97, 6.3)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius

    @property
    def density(self):
        return round(self.mass / self.radius, 3)

    @classmethod
    def heaviest(cls):
        return max(cls, key=lambda one: one.mass)

class Unit(str, Enum):
    def __new__(cls, text, factor):
        made = str.__new__(cls, text.upper())
        made._value_ = text
        made.factor = factor
        return made
    METRE = ("m", 1)
    MILE = ("mi", 1609)

    @classmethod
    def _missing_(cls, value):
        return cls.METRE

class Level(StrEnum):
    LOW = "low"

class Rank(IntEnum):
    A = 1
    B = 2

class Pair(tuple, Enum):
    ONE = (1, 2)

class Day(datetime.date, Enum):
    FIRST = 2020, 1, 2

class Listed(Enum):
    A = [1]
    B = [2]

class Odd(Enum):
    A = "a"
    name_of = staticmethod(len)

    def __str__(self):
        return "odd"

ALL = (Tcp, Colour, Planet, Unit, Level, Rank, Pair, Day, Listed, Odd)
"""
SEEN = """
def seen():
    found = []
    for cls in ALL:
        all_of = cls.__members__.items()
        found.append([(name, one.name, repr(one), str(one), one.value) for name, one in all_of])
        found.append([(one, cls(one.value) is one, cls[one.name] is one) for one in cls])
    found.append([Tcp(n).name for n in (0, 1, 2, 3, 16, 18, 19)])
    found.append([Tcp.SYN_ACK & Tcp.SYN is Tcp.SYN, ~Tcp.SYN, Tcp.HELLO is Tcp.SYN, len(Tcp)])
    found.append([(one.is_dark, ~one) for one in (Colour.BLACK, Colour.RED, Colour.PURPLE)])
    found.append([(one.mass, one.density) for one in Planet] + [Planet.heaviest() is Planet.HOME])
    found.append([(one, one.factor, one + "!") for one in Unit] + [Unit("none") is Unit.METRE])
    found.append([Level.LOW == "low", Rank.A < Rank.B, Rank.A + 1, Pair.ONE[1], Day.FIRST.year])
    found.append([Listed([2]) is Listed.B, Odd.name_of("abc")])
    return repr(found)
"""
SCRIPT = (
    "import sys\n"
    "from penstock.engine.hosting.shipping.pickling import serialize\n"
    + ENUMS
    + SEEN
    + """
sys.stdout.buffer.write(serialize((seen, seen())))
"""
)


def test_enums_of_the_main_script_are_in_another_process_what_they_are_in_theirs():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    seen, expected = deserialize(ran.stdout)
    assert seen() == expected
    assert deserialize(serialize(seen))() == expected  # As a TaskManager passes it on.


def test_enums_stay_what_they_are_in_their_own_process():
    own = textwrap.dedent("""
        back = deserialize(serialize((seen, ALL, [list(one) for one in ALL])))
        assert back[1] == ALL
        assert all(a is b for c, d in zip(back[2], ALL) for a, b in zip(c, d))
        assert back[0]() == seen()
    """)
    names = "from penstock.engine.hosting.shipping.pickling import deserialize, serialize\n"
    ran = subprocess.run(
        [sys.executable, "-c", names + ENUMS + SEEN + own], capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()


def test_a_class_of_the_program_is_not_changed_by_its_pickle():
    class Order:
        rate = 1

        def __init__(self, number):
            self.number = number

    before = serialize(Order(1))
    Order.rate = 2
    assert isinstance(deserialize(before), Order)
    assert Order.rate == 2


@pytest.mark.parametrize("is_called", [True, False])
def test_only_classes_of_functions_are_others_in_each_pickle(is_called):
    class Data:
        pass

    if is_called:
        Data.__call__ = lambda self: 1
    assert (type(deserialize(serialize(Data()))) is Data) is not is_called
