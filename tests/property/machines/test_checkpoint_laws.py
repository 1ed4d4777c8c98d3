"""Laws of the checkpoint coordinator, whatever tasks, storage and failures do. Source:
docs/spec/checkpoints.md#coordinator, #finished-tasks.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import CheckpointMetrics, CheckpointType
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointAcknowledged,
    DiscardCheckpoint,
    DiscardStates,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    ResetSubtasks,
    StoreCheckpoint,
    TimerFired,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.checkpoint_bench import (
    ALL,
    EVERY_SECOND,
    CheckpointBench,
    list_handle,
    state_of,
)
from tests.tools.machines.job_bench import BROKEN

SETTINGS = replace(EVERY_SECOND, max_concurrent=3, tolerable_failures=2, timeout_ms=5000)
OPS = st.one_of(
    st.tuples(st.just("ack"), st.sampled_from(ALL), st.integers(0, 2)),
    st.tuples(st.just("ack all"), st.integers(0, 2)),
    st.tuples(st.just("decline"), st.sampled_from(ALL), st.integers(0, 2)),
    st.tuples(
        st.sampled_from(["trigger", "stored", "not stored", "expire", "savepoint", "recover"])
    ),
    st.tuples(st.just("fail"), st.sampled_from(ALL)),
)


class Follower:
    """Plays tasks and storage, and keeps books of its own on what comes out."""

    def __init__(self) -> None:
        self.bench = CheckpointBench(SETTINGS)
        self.writing: dict[int, object] = {}
        self.written: list[int] = []
        self.sent: dict[object, tuple[object, int]] = {}
        self.discarded: Counter[object] = Counter()
        self.newest = 0
        self.number = 0

    def look(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, TriggerCheckpoint):
                assert effect.checkpoint_id >= self.newest
                self.newest = effect.checkpoint_id
            elif isinstance(effect, StoreCheckpoint):
                self.is_whole(effect.checkpoint)
                assert not self.writing
                self.writing[effect.checkpoint.checkpoint_id] = effect.checkpoint
            elif isinstance(effect, NotifyCheckpointComplete):
                assert effect.checkpoint_id in self.written
            elif isinstance(effect, NotifyCheckpointAborted):
                assert effect.checkpoint_id not in self.written
            elif isinstance(effect, DiscardStates):
                self.discarded.update(effect.states)
            elif isinstance(effect, DiscardCheckpoint):
                assert effect.checkpoint.checkpoint_id in self.written[:-1]
            elif isinstance(effect, ResetSubtasks):
                assert effect.checkpoint_id == (self.written[-1] if self.written else None)

    def is_whole(self, checkpoint) -> None:
        for operator in checkpoint.operators:
            for subtask, state in enumerate(operator.subtasks):
                attempt_id, checkpoint_id = self.sent[state]
                assert checkpoint_id == checkpoint.checkpoint_id
                assert attempt_id.subtask == subtask
                assert self.bench.job.state.graph.current(attempt_id) is not None

    def ack(self, name: str, back: int) -> None:
        """Of the newest checkpoint, or of an older one; each acknowledgement has a snapshot of its own."""
        self.number += 1
        state = state_of(name.split("[")[0].lower(), list_handle(1, name=str(self.number)))
        attempt_id, checkpoint_id = self.bench.attempt(name), self.newest - back
        self.sent[state.operators[0][1]] = (attempt_id, checkpoint_id)
        message = AcknowledgeCheckpoint(attempt_id, checkpoint_id, state, CheckpointMetrics())
        self.look(self.bench.step(CheckpointAcknowledged(message, self.bench.now_ms)))

    def outcome(self, *, is_good: bool) -> None:
        if not self.writing:
            return
        checkpoint_id, checkpoint = self.writing.popitem()
        if is_good and checkpoint.is_for_recovery:
            self.written.append(checkpoint_id)
        answer = self.bench.stored if is_good else self.bench.not_stored
        self.look(answer(checkpoint_id))

    def recover(self) -> None:
        bench = self.bench
        self.look(bench.confirm_cancels())
        for timer in sorted(t for t in bench.timers if t.startswith("restart")):
            bench.now_ms = max(bench.now_ms, bench.timers.pop(timer))
            self.look(bench.step(TimerFired(timer, bench.now_ms)))
        self.outcome(is_good=True)
        bench.run_all()

    def acknowledge_all_pending(self) -> None:
        for checkpoint_id in list(self.bench.job.checkpoints.coordinator.pending):
            for name in ALL:
                self.ack(name, self.newest - checkpoint_id)
        while self.writing:
            self.outcome(is_good=True)

    def do(self, op: str, *what) -> None:  # noqa: C901 - one line for each op
        bench = self.bench
        if op == "ack":
            self.ack(*what)
        elif op == "ack all":
            for name in ALL:
                self.ack(name, *what)
        elif op == "decline":
            self.look(bench.decline(self.newest - what[1], what[0]))
        elif op == "trigger" and "checkpoint-trigger" in bench.timers:
            self.look(bench.fire("checkpoint-trigger"))
        elif op in {"stored", "not stored"}:
            self.outcome(is_good=op == "stored")
        elif op == "expire" and "checkpoint-expiry" in bench.timers:
            self.look(bench.fire("checkpoint-expiry"))
        elif op == "savepoint":
            self.look(bench.savepoint(CheckpointType.SAVEPOINT))
        elif op == "fail" and bench.vertex(what[0]).state is S.RUNNING:
            self.look(bench.report(what[0], S.FAILED, BROKEN))
        elif op == "recover":
            self.recover()


@given(st.lists(OPS, max_size=40))
def test_what_is_completed_is_whole_and_nothing_is_told_or_thrown_away_too_early(ops) -> None:
    follower = Follower()
    for op in ops:
        if follower.bench.job.status is JobStatus.FAILED:
            break
        follower.do(*op)
    assert follower.written == sorted(set(follower.written))
    assert max(follower.discarded.values(), default=1) == 1


@given(st.lists(OPS, max_size=30))
@example([("trigger",)] * 4)
def test_after_any_trouble_the_next_checkpoint_can_be_completed(ops) -> None:
    follower = Follower()
    for op in ops:
        follower.do(*op)
    for _ in range(3):
        if follower.bench.job.status is not JobStatus.RUNNING:
            follower.recover()
    if follower.bench.job.status is not JobStatus.RUNNING:
        return  # its restarts are used up
    before = -1
    while before < len(follower.written):  # what waited for its turn comes then
        before = len(follower.written)
        follower.acknowledge_all_pending()
    follower.do("trigger")
    follower.acknowledge_all_pending()
    assert len(follower.written) == before + 1
