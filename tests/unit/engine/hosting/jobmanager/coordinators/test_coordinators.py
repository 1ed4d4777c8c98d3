"""Coordinators on their thread: who gets which splits back, and how far aligned sources may run."""

import pickle
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from penstock.common import Duration
from penstock.engine.hosting.jobmanager.coordinators.coordinators import (
    Coordinators,
    alignment_of,
    committers_of,
)
from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.shipping.main_classes import find_by_name
from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, JobId, VertexId
from penstock.engine.model.messages import (
    AddSplits,
    MaxAllowedWatermark,
    NoMoreSplits,
    ReportedWatermark,
    SplitRequest,
)
from penstock.engine.runtime.elements import MAX_WATERMARK
from penstock.engine.runtime.sink import Committer, Sink
from penstock.engine.runtime.sources.contract import Boundedness, Source, SplitEnumerator
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.watermarks.strategy import AlignmentParams, WatermarkStrategy

WAIT_S = 30
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
    coordinators.sources[1].enumerator.splits = None
    coordinators.from_reader(SplitRequest(attempt(0), 1, "host"))
    failure = callbacks.failures.get(timeout=WAIT_S)
    assert "source 1 (on the driver)" in failure.text


def test_the_alignment_of_a_source_operator_travels_with_its_place():
    strategy = WatermarkStrategy.no_watermarks()
    assert alignment_of(SourceOperator(Splits(), strategy)) is None
    aligned = strategy.with_watermark_alignment("g", Duration.of_millis(10), Duration.of_millis(20))
    found = alignment_of(SourceOperator(Splits(), aligned))
    assert pickle.loads(pickle.dumps(found)) == AlignmentParams("g", 10, 20)
    assert alignment_of("no operator") is None


# ---------------------------------------------------------------------- checkpoints


class Restorable(Splits):
    """Its enumerators know where they come from, and whether they were closed."""

    made: list["Remembering"] = []

    def create_enumerator(self, context):
        return self.remembered(context, [f"s{number}" for number in range(6)])

    def restore_enumerator(self, context, state):
        return self.remembered(context, state)

    def remembered(self, context, splits):
        enumerator = Remembering(context, list(splits))
        self.made.append(enumerator)
        return enumerator


class Remembering(TwoEach):
    def __init__(self, context, splits):
        self.context = context
        self.splits = splits
        self.is_closed = False

    def snapshot_state(self):
        if self.splits == ["broken"]:
            raise ValueError("no state to be had")
        return self.splits

    def close(self):
        self.is_closed = True


@pytest.fixture
def restorable(started):
    Restorable.made = []
    spot = CoordinatedVertex(VERTEX, 1, "source 1", 2, Restorable(), None, "uid-1")
    return started(spot)


def snapshot_of(coordinators, checkpoint_id):
    answers = queue.SimpleQueue()
    coordinators.snapshot(checkpoint_id, lambda *answer: answers.put(answer))
    return answers.get(timeout=WAIT_S)


def asks(coordinators, callbacks, subtask=0, attempt=0):
    attempt_id = AttemptId(ExecutionVertexId(VERTEX, subtask), attempt)
    coordinators.from_reader(SplitRequest(attempt_id, 1, "host"))
    return deserialize(callbacks.sent.get(timeout=WAIT_S).splits)


def test_a_reader_that_restores_a_checkpoint_has_the_splits_from_before_it(restorable):
    coordinators, callbacks = restorable
    assert asks(coordinators, callbacks) == ["s0", "s1"]
    snapshot_of(coordinators, 1)
    assert asks(coordinators, callbacks) == ["s2", "s3"]
    coordinators.checkpoint_ended(1, is_completed=True)
    coordinators.reset([ExecutionVertexId(VERTEX, 0)], 1)
    assert asks(coordinators, callbacks, attempt=1) == ["s2", "s3"]


def test_what_was_assigned_before_an_aborted_checkpoint_goes_back_too(restorable):
    coordinators, callbacks = restorable
    asks(coordinators, callbacks)
    snapshot_of(coordinators, 1)
    coordinators.checkpoint_ended(1, is_completed=False)
    coordinators.reset([ExecutionVertexId(VERTEX, 0)], None)
    assert asks(coordinators, callbacks, attempt=1) == ["s0", "s1"]


def test_a_restored_enumerator_goes_on_and_the_old_one_is_closed(restorable):
    coordinators, callbacks = restorable
    asks(coordinators, callbacks)
    states, failure = snapshot_of(coordinators, 1)
    assert (failure, [uid for uid, _ in states]) == (None, ["uid-1"])
    asks(coordinators, callbacks)
    coordinators.restore(states)
    assert asks(coordinators, callbacks, attempt=1) == ["s2", "s3"]
    old, new = Restorable.made
    assert (old.is_closed, new.is_closed) == (True, False)
    old.context.assign_splits(0, ["from the past"])
    assert callbacks.sent.empty()


def test_a_source_without_state_in_the_checkpoint_begins_anew(restorable):
    coordinators, callbacks = restorable
    asks(coordinators, callbacks)
    coordinators.restore([])
    assert asks(coordinators, callbacks, attempt=1) == ["s0", "s1"]


def test_the_enumerator_of_a_vertex_that_runs_on_goes_on(restorable):
    coordinators, callbacks = restorable
    assert asks(coordinators, callbacks) == ["s0", "s1"]
    states, _ = snapshot_of(coordinators, 1)
    assert asks(coordinators, callbacks) == ["s2", "s3"]
    coordinators.rescale({VertexId("other"): 3})
    coordinators.restore(states, {VERTEX})
    assert asks(coordinators, callbacks) == ["s4", "s5"]
    (one,) = Restorable.made
    assert not one.is_closed


def test_a_snapshot_that_fails_is_answered(restorable):
    coordinators, callbacks = restorable
    coordinators.restore([("uid-1", serialize(["broken"]))])
    states, failure = snapshot_of(coordinators, 1)
    assert states == ()
    assert "no state to be had" in failure
    assert "source 1" in failure


def test_a_snapshot_after_the_end_is_answered(restorable):
    coordinators, _ = restorable
    coordinators.close(is_committed=True)
    assert snapshot_of(coordinators, 1) == ((), "the job is ending")


def test_a_start_after_a_restore_makes_no_second_enumerator(started):
    Restorable.made = []
    callbacks = Callbacks()
    spot = CoordinatedVertex(VERTEX, 1, "source 1", 2, Restorable(), None, "uid-1")
    coordinators = Coordinators(JobId("j" * 32), [spot], callbacks)
    coordinators.restore([("uid-1", serialize(["s5"]))])
    coordinators.start()
    assert asks(coordinators, callbacks) == ["s5"]
    assert len(Restorable.made) == 1
    coordinators.close(is_committed=True)


def class_of_main():
    return type("Order", (), {"__module__": "__main__"})


def state_of_a_former_run():
    """The former class is still here, as in a session's driver."""

    def write():
        former = class_of_main()
        find_by_name([former])
        return serialize([former()])

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(write).result()


def restored_with(classes):
    Restorable.made, callbacks = [], Callbacks()
    spot = CoordinatedVertex(VERTEX, 1, "source 1", 2, Restorable(), None, "uid-1")
    coordinators = Coordinators(JobId("j" * 32), [spot], callbacks, classes)
    coordinators.restore([("uid-1", state_of_a_former_run())])
    snapshot_of(coordinators, 1)
    coordinators.close(is_committed=True)
    return callbacks


def test_state_has_the_classes_of_the_main_script_that_submitted_the_job():
    present = class_of_main()
    callbacks = restored_with([present])
    assert callbacks.failures.empty()
    (enumerator,) = Restorable.made
    assert type(enumerator.splits[0]) is present


def test_a_class_that_the_main_script_has_no_more_ends_the_job():
    failure = restored_with([]).failures.get(timeout=WAIT_S)
    assert "the state of the enumerator of 'source 1' cannot be read" in failure.text
    assert "class 'Order' of the main script" in failure.text
    assert not failure.is_recoverable


class OnceEach(TwoEach):
    """Tells who asks for more than there is that there is no more."""

    def handle_split_request(self, subtask, host):
        super().handle_split_request(subtask, host)
        if not self.splits:
            self.context.signal_no_more_splits(subtask)


class FewSplits(Splits):
    def create_enumerator(self, context):
        return OnceEach(context)


def test_a_reader_that_was_told_of_the_end_gets_nothing_that_comes_back(started):
    """It may have ended, and would never read it: what it asked for in the end comes late."""
    coordinators, callbacks = started(CoordinatedVertex(VERTEX, 1, "few", 2, FewSplits()))
    assert asked(coordinators, callbacks, attempt(0)) == ["s0", "s1"]
    assert asked(coordinators, callbacks, attempt(1)) == ["s2", "s3"]
    assert asked(coordinators, callbacks, attempt(0)) == ["s4", "s5"]
    assert callbacks.sent.get(timeout=WAIT_S) == NoMoreSplits(attempt(0), 1)
    coordinators.reset([ExecutionVertexId(VERTEX, 1)])
    coordinators.from_reader(SplitRequest(attempt(0), 1, "host"))
    assert asked(coordinators, callbacks, attempt(1, 1)) == ["s2", "s3"]


class EndsAtOnce(TwoEach):
    def start(self):
        self.context.signal_no_more_splits(0)


class EndedSplits(Splits):
    def create_enumerator(self, context):
        return EndsAtOnce(context)


def test_a_reader_that_was_not_there_when_the_end_was_told_is_served(started):
    coordinators, callbacks = started(CoordinatedVertex(VERTEX, 1, "few", 2, EndedSplits()))
    assert asked(coordinators, callbacks, attempt(0)) == ["s0", "s1"]


class Committers(Sink):
    def __init__(self, kind):
        self.kind = kind

    def create_writer(self, context):
        raise NotImplementedError

    def create_committer(self):
        return self.kind()


class OneCommitter(Committer):
    def commit(self, committables):
        return None

    def abort(self, job_prefix):
        return None


@dataclass(frozen=True)
class FrozenCommitter(OneCommitter):
    number: int = 1


def test_a_committer_is_told_the_uid_of_its_operator_unless_it_is_frozen():
    places = [
        CoordinatedVertex(VERTEX, node, "sink", 1, Committers(kind), None, f"uid {node}")
        for node, kind in enumerate((OneCommitter, FrozenCommitter, lambda: None))
    ]
    found = committers_of(places)
    assert {node: one.operator_id for node, one in found.items()} == {0: "uid 0", 1: ""}
