"""State with objects of the main script's classes, read by another run of the script."""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.engine.hosting.shipping.main_classes import UnknownClass, unreadable_state
from penstock.engine.hosting.shipping.pickling import (
    deserialize_program,
    loads_records,
    loads_state,
    serialize,
)
from penstock.engine.model.errors import ExternalError

CLASSES = """
import dataclasses, sys
from enum import Enum, IntFlag
from penstock.engine.hosting.shipping.pickling import serialize, serialize_program

class Status(Enum):
    NEW = "new"
    OPEN = "open"

class Bits(IntFlag):
    NONE = 0
    A = 1
    B = 2

@dataclasses.dataclass(frozen=True)
class Order:
    id: int
    status: Status

class Outer:
    class Inner:
        pass

def check(state):
    order, status, bits, mixed, inner, ranks = state
    return [
        isinstance(order, Order),
        order == Order(7, Status.OPEN),
        order.status is Status.OPEN,
        status is Status.NEW,
        bits is Bits.NONE,
        mixed == Bits.A | Bits.B,
        type(inner) is Outer.Inner,
        Status.OPEN in ranks,
    ]

ORDER = Order(7, Status.OPEN)
STATE = [ORDER, Status.NEW, Bits.NONE, Bits.A | Bits.B, Outer.Inner(), {Status.OPEN: 1}]
"""


def run_of(script: str) -> bytes:
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


def in_a_task(call):
    """Task threads have classes of their own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


WRITE_STATE = CLASSES + "sys.stdout.buffer.write(serialize(STATE))"
STATE = run_of(WRITE_STATE)


def program_of(function: str) -> bytes:
    """A task's program with this function; another function of the job refers to all classes."""
    return run_of(
        f"{CLASSES}serialize(check)\nsys.stdout.buffer.write(serialize_program({function}))"
    )


def test_state_of_another_run_has_the_classes_of_the_program():
    program = program_of("check")

    def task():
        return deserialize_program(program)(loads_state(STATE))

    assert in_a_task(task) == [True] * 8


def test_the_classes_come_along_with_tasks_whose_functions_do_not_refer_to_them():
    program = program_of("len")

    def task():
        deserialize_program(program)
        return loads_state(STATE)[0], loads_state(STATE)[0]

    first, second = in_a_task(task)
    assert first == second
    assert type(first) is type(second)


def test_state_with_a_class_that_has_gone_is_refused_by_its_name():
    program = run_of(CLASSES + "sys.stdout.buffer.write(serialize_program(len))")

    def task():
        deserialize_program(program)
        return loads_state(STATE)

    with pytest.raises(UnknownClass, match=r"class 'Order' of the main script.*former name"):
        in_a_task(task)


def test_records_bring_a_class_that_the_program_does_not_have():
    order = in_a_task(lambda: loads_records(STATE))[0]
    assert (type(order).__qualname__, order.id) == ("Order", 7)


def test_a_process_that_is_the_script_finds_its_classes_by_name(tmp_path):
    (tmp_path / "state").write_bytes(STATE)
    script = textwrap.dedent(f"""
        from penstock.engine.hosting.shipping.pickling import loads_state
        state = loads_state(open({str(tmp_path / "state")!r}, "rb").read())
        assert check(state) == [True] * 8
    """)
    run_of(CLASSES + script)


def test_state_does_not_change_the_classes_of_the_program():
    changed = CLASSES.replace("    id: int\n", "    id: int\n    rate = 2\n")
    program = run_of(
        f"{changed}\nserialize(check)\n"
        "sys.stdout.buffer.write(serialize_program(lambda: (Order.rate, Order(1, None).rate)))"
    )

    state = run_of(
        WRITE_STATE
    )  # Another run than the other tests', whose classes are here already.

    def task():
        rates = deserialize_program(program)
        assert loads_state(state)[0].rate == 2
        return rates()

    assert in_a_task(task) == (2, 2)


def test_state_is_refused_although_the_process_still_has_the_class_of_the_run_that_wrote_it():
    """As a session's driver has, after the first job of two."""
    state = in_a_task(serialize_with_its_program)
    program = run_of(CLASSES + "sys.stdout.buffer.write(serialize_program(len))")

    def task():
        deserialize_program(program)
        return loads_state(state)

    with pytest.raises(UnknownClass, match="class 'Order' of the main script"):
        in_a_task(task)


def serialize_with_its_program():
    deserialize_program(program_of("check"))
    return serialize(loads_state(STATE))


IN_A_FUNCTION = """
import dataclasses, sys
from enum import Enum
from penstock.engine.hosting.shipping.pickling import (
    deserialize_program,
    serialize,
    serialize_program,
)

def made():
    class Status(Enum):
        NEW = "new"
        OPEN = "open"

    @dataclasses.dataclass(frozen=True)
    class Order:
        id: int

    def check(state):
        status, order = state
        return [status is Status.OPEN, order == Order(1), isinstance(order, Order)]

    return check, [Status.OPEN, Order(1)]
"""
CHECK = f"{IN_A_FUNCTION}check, state = made()\n"
STATE_OF_CHECK = (
    "deserialize_program(serialize_program(check))\nsys.stdout.buffer.write(serialize(state))\n"
)


def test_classes_that_a_function_makes_are_those_of_the_program_too():
    state = run_of(CHECK + STATE_OF_CHECK)
    program = run_of(CHECK + "sys.stdout.buffer.write(serialize_program(check))")
    assert in_a_task(lambda: deserialize_program(program)(loads_state(state))) == [True] * 3
    # Another task of the job, whose functions do not refer to them.
    others = run_of(CHECK + "serialize(check)\nsys.stdout.buffer.write(serialize_program(len))")

    def task():
        deserialize_program(others)
        return loads_state(state), loads_state(state)

    first, second = in_a_task(task)
    assert first == second


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("sys.stdout.buffer.write(serialize_program(len))", "do not refer to"),
        (
            "checks = check, made()[0]\nsys.stdout.buffer.write(serialize_program(checks))",
            "has several",
        ),
    ],
)
def test_state_with_a_class_of_a_function_that_is_not_found_is_refused_by_its_name(program, why):
    state = run_of(CHECK + STATE_OF_CHECK)
    program = run_of(CHECK + program)

    def task():
        deserialize_program(program)
        return loads_state(state)

    with pytest.raises(UnknownClass, match=rf"class 'made.<locals>.Status' of the main.* {why}"):
        in_a_task(task)


def test_two_classes_of_one_name_are_two_within_a_run():
    script = """
other, others = made()
checks, states = deserialize_program(serialize_program([check, other])), [state, others]
states = [loads_state(serialize(one)) for one in states]
for one, of_it in zip(checks, states):
    assert one(of_it) == [True] * 3
assert not any(checks[0](states[1]))
"""
    header = "from penstock.engine.hosting.shipping.pickling import loads_state\n"
    run_of(header + CHECK + script)


def test_a_class_that_a_task_makes_comes_with_its_state():
    """The program does not have it: nothing but its state does."""
    state = run_of(CHECK + "sys.stdout.buffer.write(serialize(state))")
    program = run_of(CHECK + "sys.stdout.buffer.write(serialize_program(len))")

    def task():
        deserialize_program(program)
        return loads_state(state)[1].id

    assert in_a_task(task) == 1


def test_no_restart_brings_back_a_class_that_has_gone():
    assert not unreadable_state("it", UnknownClass("gone")).is_recoverable
    assert not unreadable_state("it", ModuleNotFoundError("gone")).is_recoverable


def test_a_file_that_cannot_be_read_is_no_fault_of_the_classes():
    error = unreadable_state("the state", FileNotFoundError(2, "No such file or directory", "/it"))
    assert isinstance(error, ExternalError)
    assert str(error).startswith("the state cannot be read: FileNotFoundError")
    assert "'/it'" in str(error) and "class" not in str(error)
