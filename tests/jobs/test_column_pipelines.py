"""Columns stay columns: a pipeline of them runs where pyarrow cannot make Python objects of its values."""

import ctypes
import gc
import json

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.columns import avg, col, count, first, last, max_, min_, sum_
from penstock.datastream.connectors import Committer, Sink
from penstock.datastream.window import SlidingEventTimeWindows
from penstock.engine.runtime.operator import Accepts
from penstock.testing import MiniCluster
from tests.tools.programs.environments import minicluster_environment

BIDS = 6000
ITEMS = ["lamp", "größe", "花瓶", "𝄞 clef"]
BID = Types.ROW_NAMED(
    ["item", "price", "weight", "at"],
    [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.LONG()],
)


def bid(number):
    item = ITEMS[number % len(ITEMS)]
    return {"item": item, "price": number % 100, "weight": number / 4, "at": number * 10}


class Columns(Sink):
    """What came, as record batches."""

    accepts = Accepts.COLUMNS

    def __init__(self) -> None:
        self.batches: list = []

    def create_writer(self, context):
        return ColumnWriter()

    def create_committer(self):
        return Gather(self.batches)


class ColumnWriter:
    def __init__(self) -> None:
        self.batches: list = []

    def write(self, batch, watermark_ms):
        self.batches.append(batch.data)

    def prepare_commit(self):
        batches, self.batches = self.batches, []
        return batches

    def close(self):
        pass


class Gather(Committer):
    def __init__(self, batches) -> None:
        self.batches = batches

    def commit(self, committables):
        self.batches.extend(committables)

    def abort(self, job_prefix):
        pass


def makers():
    """Each type of pyarrow with a method that makes Python objects, and that method's name."""
    types = [pa.Scalar, pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table]
    while types:
        kind = types.pop()
        types.extend(kind.__subclasses__())
        for name in ("as_py", "to_pylist", "tolist", "to_pydict", "__iter__"):
            if name in vars(kind):
                yield kind, name


@pytest.fixture
def no_objects():
    """pyarrow's types are closed to `setattr`; what they look methods up in is not."""
    kept = [(kind, name, vars(kind)[name]) for kind, name in makers()]

    def refuse(*_arguments, **_options):
        raise AssertionError("a Python object was made of a value in a column")

    def put(kind, name, method):
        (names,) = gc.get_referents(vars(kind))
        names[name] = method
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    for kind, name, _ in kept:
        put(kind, name, refuse)
    yield
    for kind, name, method in kept:
        put(kind, name, method)


def environment(mode):
    env = minicluster_environment(MiniCluster())
    return env.set_parallelism(2).set_runtime_mode(mode)


def windows_of(path, env):
    lines = StreamFormat.json_lines_format(BID, timestamps="at")
    source = FileSource.for_record_stream_format(lines, str(path)).set_split_size(50_000).build()
    bids = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "bids")
    return (
        bids
        .filter(col("price") >= 10)
        .select("item", "weight", cents=col("price") * 100)
        .key_by(col("item"))
        .window(SlidingEventTimeWindows.of(Time.seconds(4), Time.seconds(2)))
        .aggregate(
            count().alias("bids"), sum_("cents"), min_("cents"), max_("weight"), avg("weight"),
            first("cents").alias("one"), last("cents").alias("other"),
        )
    )  # fmt: skip


def expected():
    """Item, bids and cents of each window."""
    found: dict = {}
    for one in map(bid, range(BIDS)):
        if one["price"] < 10:
            continue
        for start in (one["at"] // 2000 * 2000, one["at"] // 2000 * 2000 - 2000):
            bids, cents = found.get((one["item"], start), (0, 0))
            found[one["item"], start] = (bids + 1, cents + one["price"] * 100)
    return sorted((item, bids, cents) for (item, _), (bids, cents) in found.items())


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "bids"
    path.write_text("".join(json.dumps(bid(number)) + "\n" for number in range(BIDS)))
    return path


def test_no_python_object_is_made_of_a_value(lines, request):
    sink = Columns()
    env = environment(RuntimeExecutionMode.STREAMING)
    windows_of(lines, env).sink_to(sink)
    request.getfixturevalue("no_objects")
    env.execute("columns")
    rows = np.sum([batch.num_rows for batch in sink.batches])
    assert rows == len(expected())


def test_the_objects_that_are_forbidden_there_are_the_right_ones(lines):
    sink = Columns()
    env = environment(RuntimeExecutionMode.STREAMING)
    windows_of(lines, env).sink_to(sink)
    env.execute("columns")
    rows = [row for batch in sink.batches for row in batch.to_pylist()]
    names = list(rows[0])
    assert names[0] == "item"
    assert sorted((row["item"], row["bids"], row[names[-6]]) for row in rows) == expected()


def test_a_row_function_is_what_makes_them(lines, request):
    env = environment(RuntimeExecutionMode.STREAMING)
    windows_of(lines, env).map(len, Types.INT()).sink_to(Columns())
    request.getfixturevalue("no_objects")
    with pytest.raises(Exception, match="a Python object was made of a value in a column"):
        env.execute("rows")
