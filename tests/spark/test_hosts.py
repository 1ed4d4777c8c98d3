"""A standalone cluster of two hosts, each with a network, a name and temporary files of its own; one of them is cut off.

What the hosts share is a directory that stands for a mounted file system. All ports are chosen, as behind a firewall, and the
driver cannot dial those that executors listen at.
"""

import os
import socket
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest

from penstock.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.connectors.file_system import FileSink
from penstock.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.model.config import Settings
from tests.spark.sessions import FAILS_FAST, LOCAL
from tests.spark.standalone import standalone
from tests.spark.waiting import until_there
from tests.tools.listener import Listener
from tests.tools.network import network
from tests.tools.output_files import files_below

pytestmark = pytest.mark.spark
CORES = 3
COUNT = 20_000
PATIENCE_S = 90.0


class Cluster:
    """`spark`: its session, at one end of the network. `shared`: seen by all."""

    def __init__(self, net, spark, shared) -> None:
        self.net = net
        self.spark = spark
        self.shared = shared

    def settings(self):
        return {
            "jobmanager.rpc.port": "20100-20109",
            "taskmanager.host": self.net.subnet,
            "taskmanager.data.port": "20200-20219",
            "execution.checkpointing.dir": f"file://{self.shared}/checkpoints",
            "penstock.console.progress": "false",
        }


@pytest.fixture(scope="module")
def cluster(spark_on):
    with (
        network(2) as net,
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-hosts-") as shared,
        standalone(
            Path(shared), [host.address for host in net.hosts], CORES,
            master=net.address, inside=[host.inside for host in net.hosts],
        ) as master,
    ):  # fmt: skip
        spark = spark_on(
            master,
            spark_driver_host=net.address,
            spark_driver_bindAddress=net.address,
            spark_blockManager_port="20300",
            # Spark waits for minutes for an executor that is silent; the tests do not.
            spark_executor_heartbeatInterval="1s",
            spark_network_timeout="6s",
            spark_network_timeoutInterval="1s",
            **FAILS_FAST,
        )
        yield Cluster(net, spark, shared)
        for host in net.hosts:
            host.join_again()
        spark_on(LOCAL)  # leave the master before it goes


def environment(cluster, settings=None):
    configuration = Configuration()
    for key, value in (settings or cluster.settings()).items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(2)


class StopsHalfway(MapFunction):
    """Whoever comes first to the middle tells where it is, and waits until it has been cut off."""

    def __init__(self, folder) -> None:
        self.folder = Path(folder)

    def map(self, value):
        mark = self.folder / "halfway"
        if value == COUNT // 2 and not mark.exists():
            place = self.folder / "place"
            place.write_text(os.readlink("/proc/self/ns/net"))
            place.rename(mark)
            until_there(self.folder / "cut")
        return value


def test_the_driver_cannot_dial_the_hosts(cluster):
    for host in cluster.net.hosts:
        with pytest.raises(PermissionError):
            socket.create_connection((host.address, 20200), timeout=5)


def cut_off_in_the_middle(cluster, folder):
    """The host on which the job stands still; gives it."""
    until_there(folder / "halfway")
    where = (folder / "halfway").read_text()
    (host,) = [host for host in cluster.net.hosts if host.network == where]
    host.cut_off()
    (folder / "cut").touch()
    return host


OF_ALL = b"row of the user"


def text_of(value):
    return f"{value:08d} {OF_ALL.decode()}"


class TakesNote(MapFunction):
    """Says on which host a row was."""

    def map(self, value):
        return value[0], os.uname().nodename


def test_who_listens_between_hosts_reads_nothing_of_the_rows(cluster):
    """Rows go pickled over one exchange, as columns over the next one, and then to the driver. Spark encrypts nothing here."""
    configured = cluster.settings() | {"taskmanager.numberOfTaskSlots": "1"}
    env = environment(cluster, configured).set_parallelism(
        CORES + 1
    )  # more than one host has room for
    source = NumberSequenceSource(1, COUNT)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    pickled = numbers.map(text_of).rebalance()
    columns = pickled.map(Row, Types.ROW_NAMED(["text"], [Types.STRING()])).rebalance()
    host = cluster.net.hosts[0]
    with (
        Listener(host.link, host.address) as listener,
        columns.map(TakesNote()).execute_and_collect() as found,
    ):
        rows = list(found)
    texts = [text_of(value) for value in range(1, COUNT + 1)]
    assert sorted(text for text, _ in rows) == texts
    assert {name for _, name in rows} == {one.name for one in cluster.net.hosts}
    encrypted = [sent for sent in listener.heard if sent.startswith(b"\x16\x03")]
    assert max(map(len, encrypted)) > COUNT // 4 * len(texts[0]), "no exchange was heard"
    assert not listener.has_heard([OF_ALL, *(text.encode() for text in texts[::100])])


@pytest.mark.long
def test_doctor_finds_all_ways_open_and_one_that_is_closed(cluster):
    # Here: a class of this module goes to the hosts, whose archive of Penstock has no operations.
    from penstock.ops.doctor.examine import examine

    found = examine(cluster.spark, Settings(cluster.settings() | {"parallelism.default": "2"}))
    assert found.findings == ()
    text = "\n".join(found.facts)
    assert f"{2 * CORES} tasks ran, in 2 executors" in text
    for host in cluster.net.hosts:
        assert host.name in text
    settings = cluster.settings() | {"execution.checkpointing.dir": "/tmp/only-the-drivers"}
    (finding,) = examine(cluster.spark, Settings(settings)).findings
    assert "/tmp/only-the-drivers cannot be used on" in finding.what


@pytest.mark.parametrize(
    "mode",
    [
        RuntimeExecutionMode.STREAMING,
        pytest.param(RuntimeExecutionMode.BATCH, marks=pytest.mark.long),
    ],
)
def test_a_host_that_is_cut_off_in_the_middle_costs_nothing_of_the_result(cluster, mode):
    folder = Path(cluster.shared) / mode.name
    folder.mkdir()
    env = environment(cluster).set_runtime_mode(mode)
    if mode is RuntimeExecutionMode.STREAMING:
        env.enable_checkpointing(200)
    source = NumberSequenceSource(1, COUNT)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    passed = numbers.rebalance().map(StopsHalfway(folder), Types.LONG())
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    passed.map(str, Types.STRING()).sink_to(sink)
    client = env.execute_async(mode.name)
    cutter = threading.Thread(target=lambda: cut.append(cut_off_in_the_middle(cluster, folder)))
    cut: list = []
    cutter.start()
    client.get_job_execution_result().result()
    cutter.join()
    cut[0].join_again()
    files = files_below(folder / "out")
    lines = [line for path in files for line in path.read_text().split()]
    assert Counter(map(int, lines)) == Counter(range(1, COUNT + 1))


@pytest.mark.long
def test_a_dataframe_goes_into_a_streaming_job_on_hosts_that_the_driver_cannot_dial(cluster):
    frame = cluster.spark.range(COUNT).repartition(3)
    stream = environment(cluster).from_spark(frame).map(lambda row: row[0], Types.LONG())
    with stream.execute_and_collect() as rows:
        assert Counter(rows) == Counter(range(COUNT))
