"""What is known of a cluster through Spark Connect, and tasks on it. The session is a stand-in that runs tasks in this process; real servers are in
tests/spark/clusters/test_connect.py.
"""

import itertools
import platform
import sys
import threading
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.wire.addresses import Addresses, Endpoint
from penstock.engine.hosting.spark.connect import cluster as module
from penstock.engine.hosting.spark.connect.cluster import ConnectCluster
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.slot_size import UNSIZED
from tests.tools.small_servers import free_port

LOOPBACK = Endpoint("127.0.0.1")
numbers = itertools.count()


class Frame:
    def __init__(self, session, partitions) -> None:
        self._session = session
        self._partitions = partitions

    def mapInArrow(self, body, _schema):  # ruff: ignore[invalid-function-name]
        self._body = body
        return self

    def collect(self):
        self._session.ran.append(set(self._session.tags))
        if self._session.error is not None:
            raise RuntimeError(self._session.error)
        rows = []
        for _ in range(self._partitions):
            for batch in self._body(iter(())):
                rows += [SimpleNamespace(**row) for row in batch.to_pylist()]
        return rows


class Session:
    """Of `cores` cores. `tags`: of the calls of a thread; a test has one thread at a time."""

    def __init__(self, cores=4, **conf) -> None:
        self.session_id = f"session-{next(numbers)}"
        self.channel = SimpleNamespace()
        self.closed = []
        self.client = SimpleNamespace(host="127.0.0.1", _builder=self.channel, close=self._close)
        settings = {key.replace("_", "."): value for key, value in conf.items()}
        self.conf = SimpleNamespace(getAll={"spark.master": "yarn"} | settings)
        self.is_stopped = False
        self.error = None
        self.cores = cores
        self.tags = set()
        self.ran = []
        self.interrupted = []
        self.artifacts = []
        self.addTag = self.tags.add
        self.removeTag = self.tags.discard
        self.interruptTag = self.interrupted.append

    def _close(self):
        self.closed.append(self)

    def range(self, *numbers):
        return Frame(self, numbers[3] if numbers[3:] else self.cores)

    def addArtifacts(self, path, **kinds):  # ruff: ignore[invalid-function-name]
        self.artifacts.append((path, kinds))


def probed(**session):
    cluster = ConnectCluster(Session(**session))
    cluster.probe(LOOPBACK)
    return cluster


def test_a_session_has_one_cluster():
    session = Session()
    assert ConnectCluster.of(session) is ConnectCluster.of(session)
    assert ConnectCluster.of(session) is not ConnectCluster.of(Session())


def test_each_core_is_a_task_slot():
    assert probed(cores=3).total == 3
    assert probed(cores=5, spark_task_cpus="2").total == 2
    assert "gives 3 task slots" in probed(cores=3).describe()


@pytest.mark.parametrize(
    "setting", ["spark_default_parallelism", "spark_dynamicAllocation_enabled"]
)
def test_where_a_setting_hides_the_cores_their_number_is_unknown(setting):
    cluster = probed(**{setting: "true" if "enabled" in setting else "7"})
    assert (cluster.total, cluster.free(9, LOOPBACK), cluster.has_room(1000)) == (None, None, True)
    assert "an unknown number of task slots" in cluster.describe()


def test_where_jobs_of_this_program_hold_all_slots_nothing_is_probed():
    """No probe would run, and what was known stays known."""
    cluster = probed(cores=1)
    seen = []

    def body():
        def run(_partition):
            runs = len(cluster.spark.ran)
            cluster.probe(Endpoint("127.0.0.1", host="localhost"))
            seen.append((cluster.free(1, LOOPBACK), len(cluster.spark.ran) - runs))
            return ["ended"]

        return run

    cluster.run("tm-1", "", UNSIZED, body)
    assert seen == [(0, 0)]
    assert cluster.total == 1


def test_the_parallelism_of_a_cluster_that_grows_is_that_of_the_cores_that_were_there():
    cluster = probed(cores=6, spark_dynamicAllocation_enabled="true", spark_task_cpus="2")
    assert (cluster.cores, cluster.total) == (3, None)


def test_a_session_that_was_made_again_under_its_id_has_a_cluster_of_its_own():
    first, second = Session(), Session()
    second.session_id = first.session_id
    former = ConnectCluster.of(first)
    first.is_stopped = True
    assert ConnectCluster.of(second) is not former
    assert ConnectCluster.of(second).spark is second


def test_a_way_to_the_server_that_is_not_encrypted_is_warned_of():
    session = Session()
    session.channel.secure = False
    assert ConnectCluster(session).warnings() == []
    session.client.host = "far.example"
    (warning,) = ConnectCluster(session).warnings()
    assert "use_ssl" in warning
    session.channel.secure = True
    assert ConnectCluster(session).warnings() == []


def test_executors_that_are_about_to_come_are_waited_for(monkeypatch):
    cluster = probed(cores=2)
    cores = iter((2, 3, 5))

    def come(*_numbers):
        return Frame(cluster.spark, next(cores))

    cluster.spark.range = come
    assert cluster.free(4, LOOPBACK) == 5
    monkeypatch.setattr(module, "_EXECUTORS_WAIT_S", 0)
    assert cluster.free(9, LOOPBACK) == 5


def test_a_second_job_at_once_does_not_probe_again():
    cluster = probed()
    cluster.probe(LOOPBACK)
    assert len(cluster.spark.ran) == 1
    cluster.probe(Endpoint("127.0.0.1", ports="0", host="localhost"))
    assert len(cluster.spark.ran) == 2


def test_an_executor_that_does_not_reach_the_client_is_an_error(monkeypatch):
    def refuses(address, _timeout):
        raise OSError(f"no route to {address[0]}")

    monkeypatch.setattr("socket.create_connection", refuses)
    with pytest.raises(
        ConfigurationError, match=r"cannot reach this program at 192.0.2.1: no route"
    ):
        ConnectCluster(Session()).probe(Endpoint("127.0.0.1", host="192.0.2.1"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "Python in worker has different version: 3.8 than that in driver: 3.11",
            f"Python 3.8.*the driver runs {sys.executable}.*{platform.python_version()}",
        ),
        ('Cannot run program "none": error=2', "cannot start a Python worker.*none"),
        ("ValueError: odd", "does not run Python tasks: ValueError: odd"),
    ],
)
def test_workers_that_cannot_run_tasks_are_an_error(error, said):
    cluster = ConnectCluster(Session())
    cluster.spark.error = error
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        cluster.probe(LOOPBACK)


def test_workers_without_a_slot_do_not_keep_the_job():
    """What others hold is seen when TaskManagers wait."""
    session = Session()
    session.range = lambda *_numbers: SimpleNamespace(
        mapInArrow=lambda *_work: SimpleNamespace(collect=threading.Event().wait)
    )
    cluster = ConnectCluster(session)
    cluster.probe(LOOPBACK, limit_s=0)
    assert cluster.total is None
    (tag,) = session.interrupted
    assert tag.startswith("penstock-probe-")


def test_a_task_is_named_by_its_tag_and_holds_a_slot_while_it_runs():
    cluster = probed(cores=2)
    seen = []

    def body():
        def run(_partition):
            seen.append(cluster.free(1, LOOPBACK))
            return ["it was asked to end"]

        return run

    assert cluster.run("tm-1-job", "a title", UNSIZED, body) == ["it was asked to end"]
    assert seen == [1]
    assert cluster.free(2, LOOPBACK) == 2
    assert cluster.spark.ran[-1] == {"tm-1-job"}
    assert cluster.spark.tags == set()
    cluster.cancel("tm-1-job")
    assert cluster.spark.interrupted == ["tm-1-job"]


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [("(INVALID_HANDLE.SESSION_CLOSED) closed", True), ("ValueError: the user's", False)],
)
def test_an_error_of_the_session_is_the_end_of_all_tasks(error, is_gone):
    cluster = probed()
    cluster.spark.error = error
    with pytest.raises(RuntimeError):
        cluster.run("tm-1", "", UNSIZED, lambda: list)
    assert (cluster.gone() is not None) == is_gone
    assert cluster.free(4, LOOPBACK) == 4
    cluster.spark.is_stopped = True
    assert "sc://127.0.0.1" in cluster.gone()


def test_a_server_that_does_not_answer_any_more_is_the_end_of_all_tasks(monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_S", 0.1)
    cluster = probed()
    cluster.spark.channel.endpoint = f"127.0.0.1:{free_port()}"
    with pytest.raises(ExternalError, match="does not answer any more"):
        cluster.run("tm-1", "", UNSIZED, lambda: list)
    assert "does not answer any more" in cluster.gone()
    assert cluster.describe() == cluster.gone()
    assert cluster.spark.closed == [cluster.spark]


def test_penstock_comes_once_to_the_session():
    cluster = probed()
    assert cluster.package is cluster.package
    (((path, kinds)),) = cluster.spark.artifacts
    assert path.endswith(cluster.package.name)
    assert kinds == {"file": True}


def test_the_client_listens_where_it_reaches_the_server():
    cluster = probed()
    assert cluster.endpoint(Addresses()) == Endpoint("127.0.0.1", host="127.0.0.1")
    named = Addresses(
        control_host="far", control_bind_host="0.0.0.0", control_ports="5", control_port=6
    )
    assert cluster.endpoint(named) == Endpoint("0.0.0.0", "5", "far", 6)
    cluster.spark.client.host = "no-such-host.invalid"
    with pytest.raises(ConfigurationError, match=r"no-such-host.invalid"):
        cluster.endpoint(Addresses())
