"""Classes of the main script in keyed state: the same script again, from its own savepoint."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import dataclasses, os, sys, time
from enum import Enum, IntFlag

from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

backend, out, savepoints, start = sys.argv[1:]


class Status(Enum):
    NEW = ("new", 1)
    OPEN = ("open", 2)

    def __init__(self, text, rank):
        self.rank = rank


class Bits(IntFlag):
    NONE = 0
    A = 1
    BOTH = 3


@dataclasses.dataclass(frozen=True)
class NAME:
    id: int
    status: Status


class Track(KeyedProcessFunction):
    def open(self, runtime_context):
        self.order = runtime_context.get_state(ValueStateDescriptor("order"))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))
        self.ranks = runtime_context.get_map_state(MapStateDescriptor("ranks"))

    def process_element(self, value, ctx):
        order = self.order.value()
        if order is None:
            self.order.update(value)
            self.all.add_all([Status.NEW, Bits.BOTH, Bits.NONE])
            self.ranks.put(Status.OPEN, Bits.A)
            yield "first"
            return
        status, both, none = self.all.get()
        yield repr((
            type(order) is type(value), order == value, order.status is value.status,
            status is Status.NEW, status.rank == 1, both is Bits.BOTH, none is Bits.NONE,
            Status.OPEN in self.ranks, self.ranks.get(Status.OPEN) is Bits.A,
        ))


def note(line):
    with open(out, "a") as file:
        file.write(line + chr(10))
    return line


settings = {"state.backend.type": backend}
if start:
    settings["execution.state-recovery.path"] = start
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
env.set_parallelism(1)
numbers = env.from_source(
    DataGeneratorSource(lambda n: n, None, 20.0), WatermarkStrategy.no_watermarks(), "numbers"
).uid("numbers")
orders = numbers.map(lambda n: NAME(7, Status.OPEN))
orders.key_by(lambda order: order.status).process(Track()).uid("track").map(note).print()
client = env.execute_async("track")
while client.get_job_status().result().name != "FAILED" and not (
    os.path.exists(out) and len(open(out).readlines()) > 2
):
    time.sleep(0.1)
print("SAVEPOINT", client.stop_with_savepoint(False, savepoints).result())
"""


def run(folder, backend, out, start="", name="Order"):
    (folder / "script.py").write_text(SCRIPT.replace("NAME", name))
    (folder / "savepoints").mkdir(mode=0o700, exist_ok=True)
    arguments = [backend, str(folder / out), f"file://{folder}/savepoints", start]
    return subprocess.run(
        [sys.executable, str(folder / "script.py"), *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=200,
    )


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_of_a_savepoint_has_the_classes_of_the_script(tmp_path, backend):
    first = run(tmp_path, backend, "first")
    assert first.returncode == 0, first.stderr
    place = first.stdout.rpartition("SAVEPOINT ")[2].strip()
    right = repr((True,) * 9)
    assert (tmp_path / "first").read_text().splitlines()[:3] == ["first", right, right]
    second = run(tmp_path, backend, "second", place)
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "second").read_text().splitlines()[:3] == [right] * 3
    renamed = run(tmp_path, backend, "third", place, name="Bill")
    assert renamed.returncode != 0
    assert "objects of class 'Order' of the main script" in renamed.stderr
    assert not (tmp_path / "third").exists()
