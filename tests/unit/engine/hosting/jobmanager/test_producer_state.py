"""What the JobMaster answers a consumer that misses a partition
(docs/spec/exchange.md#a-partition-that-is-not-there).
"""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.jobmanager.machine_shell import MachineShell
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import (
    AttemptId,
    ExecutionVertexId,
    PartitionId,
    ResultPartitionId,
    VertexId,
)
from penstock.engine.model.messages import PartitionStateAnswer, PartitionStateQuestion
from penstock.engine.model.states import ExecutionState
from tests.tools.machines.job_bench import Bench
from tests.tools.machines.job_graphs import word_count


def started() -> Bench:
    bench = Bench(word_count())
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    return bench


def test_the_state_of_the_current_attempt_is_told() -> None:
    bench = started()
    attempt = bench.vertex("Source[0]").execution.attempt_id
    assert bench.job.producer_state(attempt) is ExecutionState.DEPLOYING
    bench.run_all()
    assert bench.job.producer_state(attempt) is ExecutionState.RUNNING


def test_attempts_of_the_past_and_strangers_are_not_known() -> None:
    bench = started()
    vertex = bench.vertex("Source[0]").execution.attempt_id.execution_vertex_id
    assert bench.job.producer_state(AttemptId(vertex, 7)) is None
    stranger = AttemptId(ExecutionVertexId(VertexId("stranger"), 0), 0)
    assert bench.job.producer_state(stranger) is None


def shell_of(bench: Bench, where: dict) -> tuple[SimpleNamespace, list]:
    sent: list = []
    links = SimpleNamespace(send=lambda *message: sent.append(message))
    return SimpleNamespace(job_master=bench.job, where=where, links=links), sent


def test_the_answer_goes_to_the_consumers_taskmanager() -> None:
    bench = started()
    producer = bench.vertex("Source[0]").execution.attempt_id
    consumer = bench.vertex("KeyAggSink[0]").execution.attempt_id
    partition_id = ResultPartitionId(PartitionId("d", 0), producer)
    shell, sent = shell_of(bench, {consumer: "tm1"})
    MachineShell.answer(shell, PartitionStateQuestion(consumer, partition_id))
    state = ExecutionState.DEPLOYING
    assert sent == [("tm1", PartitionStateAnswer(consumer, partition_id, state))]


def test_a_consumer_that_has_ended_is_not_answered_and_other_questions_are_refused() -> None:
    bench = started()
    producer = bench.vertex("Source[0]").execution.attempt_id
    shell, sent = shell_of(bench, {})
    partition_id = ResultPartitionId(PartitionId("d", 0), producer)
    MachineShell.answer(shell, PartitionStateQuestion(producer, partition_id))
    assert sent == []
    with pytest.raises(ExternalError, match="does not accept str"):
        MachineShell.answer(shell, "what?")
