"""Jobs with results that are not pipelined, by docs/spec/execution-graph.md#attempts,
docs/spec/scheduling.md#region-by-region, #bulks-that-wait-for-slots.
"""

from penstock.engine.machines.failover import FixedDelayRestart, NoRestart
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.graph.job_graph import JobType, ResultPartitionType
from penstock.engine.model.messages import (
    DeployTask,
    FailureInfo,
    FreeSlot,
    JobFinalized,
    PartitionDataProduced,
    ReleasePartitions,
    SetTimer,
    UpdatePartitions,
)
from penstock.engine.model.states import ExecutionState as S
from tests.tools.machines.job_bench import USER, Bench, deployed
from tests.tools.machines.job_graphs import A2A, BLOCKING, POINTWISE, job_graph


def batch(kind=BLOCKING, **settings) -> Bench:
    graph = job_graph({"A": 2, "B": 2}, [("A", "B", A2A, kind)], job_type=JobType.BATCH)
    given = {"slot_request_timeout_ms": 1000, "make_backoff": NoRestart} | settings
    bench = Bench(graph, JobSettings(**given))
    bench.start()
    return bench


def test_a_blocking_consumer_is_deployed_when_its_producers_have_finished() -> None:
    bench = batch()
    bench.offer("tm1", 2)
    bench.run_all()
    assert deployed(bench.finish("A[0]")) == {}
    assert deployed(bench.finish("A[1]")) == {"B[0]": "tm1", "B[1]": "tm1"}
    bench.run_all()
    assert released(bench.finish("B[0]")) == []
    assert released(bench.finish("B[1]")) == ["A[0]", "A[1]"]
    assert released(bench.step(JobFinalized(3))) == []


def test_results_stay_until_the_end_if_that_is_configured() -> None:
    bench = batch(is_released_during_job=False)
    bench.offer("tm1", 2)
    bench.run_all()
    bench.finish("A[0]", "A[1]")
    bench.run_all()
    assert released(bench.finish("B[0]", "B[1]")) == []
    assert released(bench.step(JobFinalized(3))) == ["A[0]", "A[1]"]


def test_a_reader_that_starts_again_finds_what_it_reads() -> None:
    bench = batch(make_backoff=lambda: FixedDelayRestart(3, 0))
    bench.offer("tm1", 2)
    bench.run_all()
    bench.finish("A[0]", "A[1]")
    bench.run_all()
    bench.finish("B[0]")
    bench.report("B[1]", S.FAILED, USER)
    assert deployed(bench.fire("restart")) == {"B[1]": "tm1"}
    bench.run_all()
    assert released(bench.finish("B[1]")) == ["A[0]", "A[1]"]


def test_a_result_that_cannot_be_read_is_made_anew_and_then_read() -> None:
    bench = batch(make_backoff=lambda: FixedDelayRestart(3, 0))
    bench.offer("tm1", 2)
    bench.run_all()
    bench.finish("A[0]", "A[1]")
    bench.run_all()
    lost = bench.vertex("A[1]").partitions[0].partition_id
    bench.report("B[0]", S.FAILED, FailureInfo("ResultDataLost", "truncated", lost_partition=lost))
    bench.confirm_cancels()
    assert deployed(bench.fire("restart")) == {"A[1]": "tm1"}
    bench.run_all()
    assert deployed(bench.finish("A[1]")) == {"B[0]": "tm1", "B[1]": "tm1"}


def test_a_finished_result_is_lost_with_its_task_manager_and_made_anew_for_its_reader() -> None:
    graph = job_graph({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)])
    bench = Bench(graph, JobSettings(make_backoff=lambda: FixedDelayRestart(3, 0)))
    bench.start()
    bench.offer("tm1")
    bench.run_all()
    bench.finish("A[0]")
    bench.run_all()
    bench.lose("tm1")
    assert deployed(bench.fire("restart")) == {}
    assert deployed(bench.offer("tm2")) == {"A[0]": "tm2"}
    bench.run_all()
    assert list(deployed(bench.finish("A[0]"))) == ["B[0]"]


def test_of_one_graph_some_edges_may_be_blocking_and_others_not() -> None:
    graph = job_graph(
        {"A": 2, "B": 2, "C": 1},
        [("A", "B", A2A, BLOCKING), ("B", "C", A2A)],
    )
    bench = Bench(graph, JobSettings(make_backoff=NoRestart))
    bench.start()
    assert list(deployed(bench.offer("tm1", 2))) == ["A[0]", "A[1]"]
    bench.run_all()
    assert deployed(bench.finish("A[0]")) == {}
    assert list(deployed(bench.finish("A[1]"))) == ["B[0]", "B[1]", "C[0]"]
    bench.run_all()
    assert released(bench.finish("B[0]", "B[1]")) == []  # C may fail, and B has to read again
    assert released(bench.finish("C[0]")) == ["A[0]", "A[1]"]


def test_a_blocking_result_inside_of_a_region_is_told_to_its_reader_when_it_is_complete() -> None:
    graph = job_graph(
        {"S": 1, "A": 1, "J": 2},
        [("S", "A", A2A), ("S", "J", A2A), ("A", "J", A2A, BLOCKING)],
    )
    bench = Bench(graph, JobSettings(make_backoff=lambda: FixedDelayRestart(3, 0)))
    bench.start()
    effects = bench.offer("tm1", 2)
    assert list(deployed(effects)) == ["S[0]", "A[0]", "J[0]", "J[1]"]  # one region, started as one
    assert updates(effects) == []
    (reader, _) = [e.deployment for e in effects if isinstance(e, DeployTask)][2:]
    places = [d.location is not None for gate in reader.gates for d in gate.channels]
    assert places == [True, False]
    bench.run_all()
    assert updates(bench.finish("A[0]")) == ["J[0]", "J[1]"]
    bench.report("J[0]", S.FAILED, USER)
    bench.confirm_cancels()
    effects = bench.fire("restart")
    assert updates(effects) == []  # A starts again as well: what it had made is of the past
    bench.run_all()
    assert updates(bench.finish("S[0]", "A[0]")) == ["J[0]", "J[1]"]


def test_a_task_manager_stays_while_results_that_lie_there_are_wanted_and_no_longer() -> None:
    graph = job_graph(
        {"A": 2, "B": 1, "C": 1},
        [("A", "B", A2A, BLOCKING), ("B", "C", A2A, BLOCKING)],
        job_type=JobType.BATCH,
    )
    bench = Bench(graph, JobSettings(make_backoff=NoRestart))
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    bench.run_all()
    bench.finish("A[0]")
    (place,) = deployed(bench.finish("A[1]")).values()
    bench.run_all()
    assert freed(bench.fire("idle")) == []  # nothing runs in the other one, but B reads there
    bench.finish("B[0]")
    bench.run_all()
    bench.fire("idle")
    other = {"tm1": "tm2", "tm2": "tm1"}[place]
    assert freed(bench.effects) == [other]


def freed(effects) -> list[str]:
    """TaskManagers that get a slot back."""
    return [str(effect.resource_id) for effect in effects if isinstance(effect, FreeSlot)]


def updates(effects) -> list[str]:
    """Who is told where its producers are."""
    return [
        f"{e.attempt_id.execution_vertex_id.vertex_id}[{e.attempt_id.subtask}]"
        for e in effects
        if isinstance(e, UpdatePartitions)
    ]


def released(effects) -> list[str]:
    """Whose results are to go."""
    return sorted(
        f"{attempt.execution_vertex_id.vertex_id}[{partition.index}]"
        for effect in effects
        if isinstance(effect, ReleasePartitions)
        for partition, attempt in effect.partitions
    )


def test_data_may_be_complete_before_the_task_has_finished() -> None:
    bench = batch()
    bench.offer("tm1", 2)
    bench.run_all()
    producer = bench.vertex("A[0]")
    partition = producer.partitions[0]
    said = PartitionDataProduced(producer.execution.attempt_id, partition.partition_id)
    bench.step(said)
    bench.step(said)
    assert partition.is_all_data_produced
    assert partition.consumed_groups[0].unfinished == 1


def test_idle_slots_of_a_batch_job_are_given_back() -> None:
    bench = batch()
    bench.offer("tm1", 2)
    bench.run_all()
    bench.finish("A[0]")
    assert "idle-slots" in bench.timers
    effects = bench.fire("idle")
    assert [e.allocation_id for e in effects if isinstance(e, FreeSlot)] == ["tm1/0"]


def test_slots_that_others_use_may_still_serve_a_batch_job() -> None:
    graph = job_graph({"A": 2}, [], job_type=JobType.BATCH)
    bench = Bench(graph, JobSettings(slot_request_timeout_ms=1000, make_backoff=NoRestart))
    bench.start()
    bench.offer("tm1")
    bench.run_all()
    effects = bench.fire("slots")
    assert [type(e) for e in effects] == [SetTimer]
    assert deployed(bench.finish("A[0]")) == {"A[1]": "tm1"}


def test_a_reader_of_hybrid_results_hears_of_its_producer_later() -> None:
    kind = ResultPartitionType.HYBRID_FULL
    graph = job_graph(
        {"A": 1, "B": 1}, [("A", "B", POINTWISE, kind)], groups={"A": "a"}, job_type=JobType.BATCH
    )
    bench = Bench(graph)
    effects = bench.start()
    assert deployed(effects) == {}
    requests = bench.job.state.slots.shared_slots
    producer = next(s for s in requests if str(s.group.vertices[0]) == "A[0]")
    consumer = next(s for s in requests if s is not producer)
    # the first free slot goes to the consumer, as if the producer's request had come later
    waiting = bench.job.state.slots.pool.pending
    waiting[producer.request.request_id] = waiting.pop(producer.request.request_id)
    effects = bench.offer("tm1")
    assert deployed(effects) == {"B[0]": "tm1"}
    assert consumer.slot is not None
    effects = bench.offer("tm2")
    (update,) = [e for e in effects if isinstance(e, UpdatePartitions)]
    assert update.resource_id == "tm1"
    assert update.descriptors[0].location.resource_id == "tm2"


def test_every_reader_of_one_list_hears_of_a_producer_that_is_placed_later() -> None:
    kind = ResultPartitionType.HYBRID_FULL
    graph = job_graph(
        {"A": 2, "B": 2}, [("A", "B", A2A, kind)], groups={"A": "a"}, job_type=JobType.BATCH
    )
    bench = Bench(graph)
    bench.start()
    waiting = bench.job.state.slots.pool.pending
    for shared in list(bench.job.state.slots.shared_slots):
        if shared.group.slot_sharing_group == "a":  # the producers' requests come last
            waiting.move_to_end(shared.request.request_id)
    effects = bench.offer("tm1", 2)
    readers = [e.deployment.gates[0].channels for e in effects if isinstance(e, DeployTask)]
    assert [channel.location for channels in readers for channel in channels] == [None] * 4
    assert readers[0] is readers[1]
    for name, place in (("tm2", 0), ("tm3", 1)):
        updates = [e for e in bench.offer(name) if isinstance(e, UpdatePartitions)]
        assert [str(u.attempt_id.execution_vertex_id) for u in updates] == ["B[0]", "B[1]"]
        for update in updates:
            (known,) = update.descriptors
            assert (known.partition_id.index, known.location.resource_id) == (place, name)
