"""An executor that remembers what it was given and plays a finished (or failed) job."""

from __future__ import annotations

from penstock.engine.model.checkpoints import CheckpointStatistics
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus


class FakeControl:
    def __init__(self, outcome, collected=()):
        self.job_id = "0123456789abcdef0123456789abcdef"
        self.outcome = outcome
        self.collected = collected
        self.is_cancelled = self.is_interrupted = False
        self.is_over = True
        self.streams = []
        self.savepoints = []

    def status(self):
        return self.outcome.status if self.is_over else JobStatus.RUNNING

    def wait(self, timeout_s=None):
        if not self.is_over:
            raise TimeoutError
        return self.outcome

    def interrupted(self):
        is_first, self.is_interrupted = not self.is_interrupted, True
        self.cancel()
        return is_first

    def cancel(self):
        self.is_cancelled = self.is_over = True
        self.outcome = JobOutcome(JobStatus.CANCELED, 1)

    def start_savepoint(self, kind, directory):
        self.savepoints.append((kind, directory))
        return lambda timeout_s: "/folder"

    def checkpoints(self):
        return CheckpointStatistics(completed=3)

    def collect(self, stream, *, shows_error=True):
        self.streams.append(stream)
        yield from self.collected
        if self.outcome.status is JobStatus.FAILED:
            raise JobExecutionError(self.outcome.failure)


class FakeExecutor:
    def __init__(self, outcome=None, collected=()):
        self.control = FakeControl(outcome or JobOutcome(JobStatus.FINISHED, 12), collected)
        self.submitted = []

    @property
    def graph(self):
        return self.submitted[-1][0]

    @property
    def program(self):
        return self.submitted[-1][1]

    def options_of(self, program):
        return program.configuration

    def submit(self, graph, program):
        self.submitted.append((graph, program))
        return self.control


def edges_of(graph):
    """(source name, target name, strategy or None, tag)"""
    return [
        (
            graph.nodes[edge.source].name,
            graph.nodes[edge.target].name,
            edge.partitioning and edge.partitioning.strategy.value,
            edge.tag,
        )
        for edge in graph.edges
    ]
