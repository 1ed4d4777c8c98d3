"""Coordinators on their thread: who gets which splits back, and how far aligned sources may run."""

import pickle
import queue

import pytest

from penstock.hosting.closures import deserialize
from penstock.hosting.coordinators import CoordinatedVertex, Coordinators, alignment_of
from penstock.model.ids import AttemptId, ExecutionVertexId, JobId, VertexId
from penstock.model.messages import AddSplits, MaxAllowedWatermark, ReportedWatermark, SplitRequest
from penstock.runtime.elements import MAX_WATERMARK
from penstock.runtime.source import Boundedness, Source, SplitEnumerator
from penstock.runtime.source_operator import SourceOperator
from penstock.runtime.watermarks import AlignmentParams, WatermarkStrategy

WAIT_S = 10
VERTEX = VertexId("v")


class Callbacks:
    def __init__(self):
        self.sent = queue.SimpleQueue()
        self.failures = queue.SimpleQueue()

    def send_to_task(self, attempt_id, message):
        self.sent.put(message)

    def fail_job(self, failure):
        self.failures.put(failure)

    def job_finalized(self):
        raise AssertionError("nothing was finalized")


class TwoEach(SplitEnumerator):
    """Two splits for each request; what comes back goes first."""

    def __init__(self, context):
        self.context = context
        self.splits = [f"s{number}" for number in range(6)]

    def handle_split_request(self, subtask, host):
        given, self.splits = self.splits[:2], self.splits[2:]
        self.context.assign_splits(subtask, given)

    def add_splits_back(self, splits, subtask):
        self.splits = [*splits, *self.splits]


class Splits(Source):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context):
        return TwoEach(context)

    def create_reader(self, context):
        raise AssertionError("readers live in tasks")


@pytest.fixture
def started():
    made = []

    def start(*places):
        callbacks = Callbacks()
        coordinators = Coordinators(JobId("j" * 32), places, callbacks)
        made.append(coordinators)
        coordinators.start()
        return coordinators, callbacks

    yield start
    for coordinators in made:
        coordinators.close(is_committed=True)


def place(node_id=1, alignment=None):
    return CoordinatedVertex(VERTEX, node_id, f"source {node_id}", 2, Splits(), alignment)


def attempt(subtask, number=0):
    return AttemptId(ExecutionVertexId(VERTEX, subtask), number)


def asked(coordinators, callbacks, attempt_id, node_id=1):
    """Splits that answer a request."""
    coordinators.from_reader(SplitRequest(attempt_id, node_id, "host"))
    message = callbacks.sent.get(timeout=WAIT_S)
    while not isinstance(message, AddSplits):
        message = callbacks.sent.get(timeout=WAIT_S)
    assert message.attempt_id == attempt_id
    return deserialize(message.splits)


def test_all_splits_of_a_lost_reader_go_back_and_to_its_next_attempt(started):
    coordinators, callbacks = started(place())
    assert asked(coordinators, callbacks, attempt(0)) == ["s0", "s1"]
    assert asked(coordinators, callbacks, attempt(1)) == ["s2", "s3"]
    assert asked(coordinators, callbacks, attempt(0)) == ["s4", "s5"]
    coordinators.reset([ExecutionVertexId(VERTEX, 0)])
    assert asked(coordinators, callbacks, attempt(0, 1)) == ["s0", "s1"]
    assert asked(coordinators, callbacks, attempt(0, 1)) == ["s4", "s5"]


def test_both_sources_of_a_group_are_told_how_far_the_slowest_reader_lets_them_run(started):
    alignment = AlignmentParams("g", 10, update_interval_ms=5)
    wider = AlignmentParams("g", 30, update_interval_ms=5)
    coordinators, callbacks = started(place(1, alignment), place(2, wider))
    for node_id in (1, 2):
        asked(coordinators, callbacks, attempt(0), node_id)
    coordinators.from_reader(ReportedWatermark(attempt(0), 1, 100))
    coordinators.from_reader(ReportedWatermark(attempt(0), 2, 500))
    told = until(callbacks, {1: 110, 2: 130})
    assert all(message.attempt_id == attempt(0) for message in told)
    coordinators.from_reader(ReportedWatermark(attempt(0), 1, MAX_WATERMARK))
    until(callbacks, {1: 510, 2: 530})


def test_a_reader_that_starts_again_no_longer_holds_its_group_and_its_past_does_not_count(started):
    alignment = AlignmentParams("g", 10, update_interval_ms=5)
    coordinators, callbacks = started(place(1, alignment))
    asked(coordinators, callbacks, attempt(0))
    asked(coordinators, callbacks, attempt(1))
    coordinators.from_reader(ReportedWatermark(attempt(0), 1, 100))
    coordinators.from_reader(ReportedWatermark(attempt(1), 1, 500))
    until(callbacks, {1: 110})
    coordinators.reset([ExecutionVertexId(VERTEX, 0)])
    coordinators.from_reader(ReportedWatermark(attempt(0), 1, 7))
    until(callbacks, {1: 510})


def until(callbacks, wanted):
    """Announcements until each node was told its number; stale ones may come before."""
    told, found = [], {}
    while found != wanted:
        message = callbacks.sent.get(timeout=WAIT_S)
        if isinstance(message, MaxAllowedWatermark):
            found[message.node_id] = message.watermark_ms
            told.append(message)
    return told


def test_an_error_of_an_enumerator_fails_the_job_and_names_the_source(started):
    coordinators, callbacks = started(place())
    asked(coordinators, callbacks, attempt(0))
    coordinators._sources[1].enumerator.splits = None
    coordinators.from_reader(SplitRequest(attempt(0), 1, "host"))
    failure = callbacks.failures.get(timeout=WAIT_S)
    assert "source 1 (on the driver)" in failure.text


def test_the_alignment_of_a_source_operator_travels_with_its_place():
    strategy = WatermarkStrategy.no_watermarks()
    assert alignment_of(SourceOperator(Splits(), strategy)) is None
    aligned = strategy.with_watermark_alignment("g", 10, 20)
    found = alignment_of(SourceOperator(Splits(), aligned))
    assert pickle.loads(pickle.dumps(found)) == AlignmentParams("g", 10, 20)
    assert alignment_of("no operator") is None
