"""Silence of peers, by docs/spec/failover.md#heartbeats."""

import pytest

from penstock.engine.machines.leases import Liveness
from penstock.engine.model.errors import ConfigurationError


def test_silence_is_noticed_once_and_late_signs_do_not_count() -> None:
    peers = Liveness[str](timeout_ms=50, interval_ms=10)
    peers.watch("a", 0)
    peers.watch("b", 0)
    peers.heard("a", 30)
    peers.heard("a", 10)
    peers.heard("stranger", 10)
    assert [(s.peer, s.silent_ms) for s in peers.tick(50)] == [("b", 50)]
    assert "0.05 s" in str(peers.tick(80)[0])
    assert peers.tick(1000) == []
    peers.watch("c", 0)
    peers.forget("c")
    assert "c" not in peers
    with pytest.raises(ConfigurationError, match=r"heartbeat\.timeout"):
        Liveness(10, 10)


def test_a_pause_of_the_watcher_is_nobodys_silence() -> None:
    peers = Liveness[str](timeout_ms=50, interval_ms=10)
    peers.watch("silent before", 0)
    peers.watch("heard at its end", 0)
    peers.heard("heard at its end", 130)
    peers.excuse(100, 130)
    assert peers.tick(149) == []
    assert [silence.peer for silence in peers.tick(150)] == ["silent before"]
    assert peers.tick(179) == []
    assert [silence.peer for silence in peers.tick(180)] == ["heard at its end"]
