"""State with objects of the main script's classes, read by another run of the script."""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.hosting.shipping.main_classes import UnknownClass
from penstock.hosting.shipping.pickling import (
    deserialize_program,
    loads_records,
    loads_state,
)

CLASSES = """
import dataclasses, sys
from enum import Enum, IntFlag
from penstock.hosting.shipping.pickling import serialize, serialize_program

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
        from penstock.hosting.shipping.pickling import loads_state
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
