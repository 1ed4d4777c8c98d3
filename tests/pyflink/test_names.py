"""Each public name of PyFlink 2.3's DataStream API is here, or says what to use instead.

`pyflink_names.txt`: module (with our root) and name, as PyFlink's documentation gives them.
"""

import importlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.common.absent import absent
from penstock.datastream import (
    AllWindowedStream,
    ConnectedStreams,
    DataStream,
    KeyedStream,
    StreamExecutionEnvironment,
    WindowedStream,
)
from penstock.datastream.window import (
    CountTumblingWindowAssigner,
    CountWindow,
    GlobalWindow,
    GlobalWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

NAMES = [
    tuple(line.split())
    for line in Path(__file__).with_name("pyflink_names.txt").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("module_name", sorted({module for module, _ in NAMES}))
def test_each_name_is_there_or_says_what_to_use(module_name):
    module = importlib.import_module(module_name)
    for name in [name for where, name in NAMES if where == module_name]:
        try:
            getattr(module, name)
        except NotImplementedError as error:
            assert f".{name} has no counterpart in Penstock. " in str(error)
            assert str(error).endswith(".")


def test_importing_an_absent_name_says_so():
    with pytest.raises(NotImplementedError, match=r"use HashMapStateBackend or Embedded"):
        exec("from penstock.datastream.state_backend import RocksDBStateBackend")
    with pytest.raises(NotImplementedError, match=r"pyflink\.datastream\.MemoryStateBackend"):
        exec("from penstock.datastream import MemoryStateBackend")


def test_other_names_are_missing_as_usual():
    lookup = absent("a.module", {"Known": "Use that."})
    with pytest.raises(AttributeError, match="module 'a.module' has no attribute 'other'"):
        lookup("other")


def test_connectors_and_schemas_have_their_former_addresses_too():
    for path, name in (
        ("penstock.datastream.connectors", "file_system.FileSink"),
        ("penstock.datastream.connectors", "kafka.KafkaSource"),
        ("penstock.datastream.connectors", "jdbc.JdbcSink"),
    ):
        module_name, _, short = name.partition(".")
        own = importlib.import_module(f"{path}.{module_name}")
        assert getattr(importlib.import_module(path), short) is getattr(own, short)
    exec("from penstock.common import JsonRowDeserializationSchema")
    with pytest.raises(NotImplementedError, match="KafkaSource of penstock"):
        exec("from penstock.datastream.connectors import DynamicKafkaSource")


@pytest.mark.parametrize(
    "statement",
    [
        "from penstock.datastream.connectors.cassandra import CassandraSink",
        "import penstock.datastream.connectors.cassandra as c; c.CassandraSink",
        "import penstock; import penstock.datastream.connectors.kinesis as k; k.KinesisStreamsSink",
        "from penstock.datastream.connectors import kinesis; kinesis.KinesisFirehoseSink",
    ],
)
def test_a_connector_that_is_not_there_says_so_however_it_is_imported(statement):
    told = subprocess.run(
        [sys.executable, "-c", statement], check=False, capture_output=True, text=True
    )
    assert "Sink has no counterpart in Penstock. Write a subclass of" in told.stderr


def test_names_of_pyflink_1_say_what_there_is_today():
    with pytest.raises(NotImplementedError, match="Event time is always on"):
        exec("from penstock.datastream import TimeCharacteristic")
    with pytest.raises(NotImplementedError, match=r"state\.backend\.type"):
        exec("from penstock.datastream import FsStateBackend")
    with pytest.raises(NotImplementedError, match=r"penstock\.datastream\.formats\.json\."):
        exec("from penstock.common.serialization import JsonRowSerializationSchema")
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(AttributeError, match=r"as in PyFlink 2\. Use env\.from_source"):
        env.read_text_file("lines.txt")
    with pytest.raises(AttributeError, match="set_externalized_checkpoint_retention"):
        env.get_checkpoint_config().enable_externalized_checkpoints(True)
    with pytest.raises(AttributeError, match="no attribute 'other'$"):
        _ = env.other
    assert not hasattr(env, "read_text_file")


@pytest.mark.parametrize(
    ("assigner", "window", "size"),
    [
        (TumblingEventTimeWindows(1000, 0), TimeWindow(-1000, 2000), 16),
        (CountTumblingWindowAssigner.of(3), CountWindow(7), 8),
        (GlobalWindows.create(), GlobalWindow.get(), 1),
    ],
)
def test_windows_become_bytes_and_windows_again(assigner, window, size):
    serializer = assigner.get_window_serializer()
    stream = io.BytesIO()
    serializer.serialize(window, stream)
    assert len(stream.getvalue()) == size
    stream.seek(0)
    assert serializer.deserialize(stream) == window


PYFLINKS = {
    tuple(line.split("(")[0].split()[1:3])
    for line in Path(__file__).with_name("pyflink_signatures.txt").read_text("utf-8").splitlines()
}
OF_STREAMS = {"co_group", "global_", "join", "map_batches", "on_error", "plumbing", "select"}
OF_STREAMS |= {"set_co_location_group", "to_spark", "with_exchange_mode"}
ADDED = {
    StreamExecutionEnvironment: {
        "from_spark", "get_configuration", "get_state_backend", "plumbing", "set_restart_strategy", "set_state_backend", "socket_text_stream", "use_executor",
    },
    DataStream: OF_STREAMS,
    KeyedStream: {*OF_STREAMS, "interval_join"},
    ConnectedStreams: set(),
    WindowedStream: {"evictor"},
    AllWindowedStream: {"evictor"},
}  # fmt: skip


@pytest.mark.parametrize("kind", ADDED)
def test_a_completion_list_shows_pyflinks_names_and_our_additions_only(kind):
    """Streams' and environments' insides are behind one name, `plumbing`."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1])
    keyed = stream.key_by(str)
    made = [
        env, stream, keyed, stream.connect(stream), keyed.count_window(1), stream.window_all(GlobalWindows.create()),
    ]  # fmt: skip
    (one,) = [one for one in made if type(one) is kind]
    of_pyflink = {
        member for owner, member in PYFLINKS if owner in {each.__name__ for each in kind.__mro__}
    }
    shown = {name for name in dir(one) if not name.startswith("_")}
    assert shown - of_pyflink - {"AccumulateType", "stream1", "stream2"} == ADDED[kind]
