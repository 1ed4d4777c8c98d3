"""Jobs whose connections cross a network: they are encrypted, whatever the program asks for."""

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.network import peers
from penstock.engine.hosting.network.wire.tls import TlsSocket
from tests.tools.programs.environments import RESTARTS, collected, minicluster_environment

OVER_TCP = {
    "penstock.exchange.local-sockets": "false",
    "taskmanager.numberOfTaskSlots": "1",
}


def environment(**settings):
    return minicluster_environment(MiniCluster(parallelism=2), {**OVER_TCP, **settings})


def counted(env, records=2000):
    env.set_parallelism(2)
    numbers = env.from_collection(range(records)).map(lambda value: (value % 7, 1))
    return numbers.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


@pytest.mark.parametrize("settings", [{}, {"security.ssl.internal.enabled": "false"}])
def test_a_keyed_job_over_tls_counts_right(monkeypatch, settings):
    sockets = []
    made = peers.DataConnection

    def recorded(sock, *rest):
        sockets.append(sock)
        return made(sock, *rest)

    monkeypatch.setattr(peers, "DataConnection", recorded)
    last = dict(collected(counted(environment(**settings))))
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
