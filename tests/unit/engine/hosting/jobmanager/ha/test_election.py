"""Claims without jobs: which job is the same one, and entries and stores that are broken."""

from dataclasses import replace

import pytest

from penstock.engine.hosting.jobmanager.ha import election as elections
from penstock.engine.hosting.jobmanager.ha.election import Election, Standby, key_of
from penstock.engine.hosting.jobmanager.ha.settings import HaSettings
from penstock.engine.hosting.jobmanager.ha.store import Ended
from penstock.engine.machines.leases import Instant, Lease
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from penstock.engine.model.ids import JobId, VertexId


def driver(folder) -> Election:
    return Election(HaSettings(str(folder / "ha"), 600, 100, b""), lambda _text: None)


def graph_of(name: str, operators: list[OperatorInfo], parallelism: int = 2) -> JobGraph:
    graph = JobGraph(JobId("1" * 32), name)
    vertex = JobVertex(VertexId("v"), "v", parallelism, 128, tuple(operators))
    graph.vertices[vertex.vertex_id] = vertex
    return graph


def test_a_job_is_found_again_by_what_a_small_change_keeps():
    one = OperatorInfo(1, "Map", "uid-1", "/here/job.py:10")
    key = key_of(graph_of("a", [one]), None)
    moved = OperatorInfo(7, "Map", "uid-1", "/there/job.py:12")
    assert key_of(graph_of("a", [moved], parallelism=9), None) == key
    others = [
        graph_of("b", [one]),
        graph_of("a", [one, OperatorInfo(2, "Sink", "uid-2", "/here/job.py:11")]),
        graph_of("a", [OperatorInfo(1, "Map", "uid-1", "/here/another.py:10")]),
    ]
    assert key not in {key_of(graph, None) for graph in others}
    assert key_of(graph_of("b", []), "f" * 32) == "f" * 32


def test_a_store_that_fails_at_once_is_told_of_and_one_that_fails_later_is_waited_for(tmp_path):
    election = driver(tmp_path)
    held = Lease(0, "a", "1" * 32, "n", 0, 600)
    read = election.store.lease

    def fails(entry):
        raise OSError("the disk is gone")

    def ends(entry):
        election.store.remove(entry, Ended(entry.token, held.job_id, "FINISHED", 1))

    answers = iter([read, fails, fails, ends, fails])

    def lease(entry):
        return next(answers)(entry)

    election.store.lease = lease
    election.store.create("f" * 32, b"job", held)
    assert election.claim("f" * 32, None, Standby()).status == "FINISHED"
    election.store.create("e" * 32, b"job", held)
    with pytest.raises(ExternalError, match="the disk is gone"):
        election.claim("e" * 32, None, Standby())


def test_a_job_that_cannot_be_opened_here_is_offered_to_others(tmp_path):
    election = driver(tmp_path)
    entry = election.store.create("f" * 32, b"not a pickle", Lease(0, "a", "j", "n", 0, 0))
    with pytest.raises(ExternalError, match="cannot be opened here"):
        election.try_claim("f" * 32, None, Standby())
    left = election.store.find("f" * 32)
    assert left.token == entry.token + 1
    assert election.store.lease(left).duration_ms == 0


def test_the_time_of_a_lease_counts_from_the_first_look(tmp_path, monkeypatch):
    """A driver looks once before its Spark starts, and then only after that."""
    now = 0
    monkeypatch.setattr(elections, "read_instant", lambda: Instant(now, now))
    election, held = driver(tmp_path), Lease(0, "a", "1" * 32, "n", 0, 600)
    gone = election.store.create("f" * 32, b"job", held)
    alive = election.store.create("e" * 32, b"job", held)
    watched = {entry.key: election.watch(entry.key) for entry in (gone, alive)}
    election.store.renew(alive, replace(held, renewals=1))
    now = 600
    assert election.try_claim(alive.key, None, watched[alive.key]) is None
    with pytest.raises(ExternalError, match="cannot be opened here"):
        election.try_claim(gone.key, None, watched[gone.key])
    assert election.store.find(gone.key).token == gone.token + 1
