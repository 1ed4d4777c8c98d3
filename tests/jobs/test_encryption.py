"""Jobs whose connections are encrypted give the same results, and who asks for it without the package is told at submit."""

import sys

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream.connectors import NumberSequenceSource
from penstock.hosting.minicluster import MiniCluster
from penstock.hosting.network import peers
from penstock.hosting.wire.tls import TlsSocket
from penstock.model.errors import ConfigurationError
from tests.tools.programs.environments import RESTARTS, collected, minicluster_environment

ENCRYPTED = {
    "security.ssl.internal.enabled": "true",
    "penstock.exchange.local-sockets": "false",
    "taskmanager.numberOfTaskSlots": "1",
}


def environment(**settings):
    return minicluster_environment(MiniCluster(parallelism=2), {**ENCRYPTED, **settings})


def counted(env, records=2000):
    env.set_parallelism(2)
    numbers = env.from_collection(range(records)).map(lambda value: (value % 7, 1))
    return numbers.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


def test_a_keyed_job_over_tls_counts_right(monkeypatch):
    sockets = []
    made = peers.DataConnection

    def recorded(sock, *rest):
        sockets.append(sock)
        return made(sock, *rest)

    monkeypatch.setattr(peers, "DataConnection", recorded)
    last = dict(collected(counted(environment())))
    assert last == {key: len(range(key, 2000, 7)) for key in range(7)}
    assert sockets
    assert all(isinstance(sock, TlsSocket) for sock in sockets)


def test_a_failure_and_a_restart_over_tls(tmp_path):
    failed = tmp_path / "failed"

    def once(value):
        if value == 1500 and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return value

    env = environment(**RESTARTS, **{"execution.checkpointing.interval": "10 ms"})
    env.set_parallelism(2)
    source = NumberSequenceSource(0, 1999)
    given = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers = given.map(once).key_by(lambda value: value % 7)
    assert set(collected(numbers.map(lambda value: value))) == set(range(2000))
    assert failed.exists()


def test_without_the_package_the_job_is_refused_at_submit(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"pip install penstock\[tls\]"):
        collected(counted(environment(), 5))
