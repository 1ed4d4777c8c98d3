"""Laws of the TaskManager's control plane, for any order of messages from two leaders and of its own tasks' ends."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.engine.model.ids import AllocationId
from penstock.engine.model.messages import (
    JobManagerLost,
    OfferSlots,
    RegistrationAccepted,
    SlotFreed,
    SlotTimedOut,
    StartTask,
    StopTask,
)
from penstock.engine.model.states import SlotState
from tests.tools.machines.task_executor_bench import FORMER, JOB, LEADER, OTHER, Bench, attempt

ALLOCATIONS = st.sampled_from([AllocationId(f"a{i}") for i in range(5)])
ATTEMPTS = st.sampled_from([attempt(name, number) for name in "uv" for number in range(3)])
JOBS, TOKENS = st.sampled_from([JOB, OTHER]), st.sampled_from([LEADER, LEADER, LEADER, FORMER])
INDICES = st.integers(-1, 2)


class TaskManagers(RuleBasedStateMachine):
    """`runs`: what was started and has not ended, with its slot; kept apart from the machine's own books."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(slots=2)
        self.leader = LEADER
        self.is_over = False
        self.runs = {}
        self.started = set()
        self.freed = []
        self.jobs = {}

    def told(self, effects, token=None):
        if token is not None and (token != self.leader or self.is_over):
            assert effects == []
        for effect in effects:
            if isinstance(effect, StartTask):
                self.starts(effect.deployment)
            elif isinstance(effect, SlotFreed):
                assert effect.allocation_id not in self.freed, "a slot is given back once"
                assert effect.allocation_id not in self.runs.values(), "and empty"
                self.freed.append(effect.allocation_id)
            elif isinstance(effect, StopTask):
                assert effect.attempt_id in self.runs
            elif isinstance(effect, OfferSlots):
                assert effect.offers[0].allocation_id not in self.freed

    def starts(self, deployment):
        assert deployment.attempt_id not in self.started, "an attempt starts once"
        slot = self.bench.executor.slots.slot(deployment.allocation_id)
        assert slot.state is SlotState.ACTIVE
        assert slot.job_id == deployment.job_id
        self.started.add(deployment.attempt_id)
        self.runs[deployment.attempt_id] = deployment.allocation_id

    @rule(allocation_id=ALLOCATIONS, index=INDICES, job_id=JOBS, token=TOKENS)
    def request(self, allocation_id, index, job_id, token):
        self.told(self.bench.request(allocation_id, index, job_id, token), token)

    @rule(accepted=st.lists(ALLOCATIONS, max_size=2), rejected=st.lists(ALLOCATIONS, max_size=1))
    def answer(self, accepted, rejected):
        self.told(self.bench.answer(accepted, rejected, self.leader), self.leader)

    @rule(allocation_id=ALLOCATIONS, attempt_id=ATTEMPTS, job_id=JOBS, token=TOKENS)
    def deploy(self, allocation_id, attempt_id, job_id, token):
        if attempt_id not in self.started or attempt_id in self.runs:  # else it is never sent
            self.told(self.bench.deploy(attempt_id, allocation_id, job_id, token), token)

    @rule(allocation_id=ALLOCATIONS, token=TOKENS)
    def free(self, allocation_id, token):
        self.told(self.bench.free(allocation_id, token), token)

    @rule(allocation_id=ALLOCATIONS)
    def time_out(self, allocation_id):
        before = self.bench.state(allocation_id)
        self.told(self.bench.step(SlotTimedOut(allocation_id)))
        assert before is SlotState.ALLOCATED or self.bench.state(allocation_id) is before

    @rule(attempt_id=ATTEMPTS, token=TOKENS)
    def cancel(self, attempt_id, token):
        effects = self.bench.cancel(attempt_id, token)
        self.told(effects, token)
        counts = token == self.leader and not self.is_over
        assert bool(effects) == (counts and attempt_id in self.runs)

    @rule(attempt_id=ATTEMPTS)
    def end(self, attempt_id):
        self.runs.pop(attempt_id, None)
        self.told(self.bench.ended(attempt_id))

    @rule(token=st.sampled_from([LEADER, LEADER + "-2"]))
    def register(self, token):
        if not self.is_over and token > self.leader:
            self.leader = token
            self.told(self.bench.step(RegistrationAccepted(token)))

    @rule(is_meant=st.integers(0, 9))
    def lose(self, is_meant):
        if is_meant == 0:
            self.told(self.bench.step(JobManagerLost("gone")))
            self.is_over = True

    @invariant()
    def every_task_sits_in_one_slot_of_its_own(self):
        seats = {a: slot.allocation_id for slot in self.bench.executor.slots for a in slot.attempts}
        assert seats == self.runs

    @invariant()
    def a_place_has_one_allocation(self):
        places = [slot.index for slot in self.bench.executor.slots]
        assert len(places) == len(set(places))
        assert not {slot.allocation_id for slot in self.bench.executor.slots} & set(self.freed)


TestTaskManagers = TaskManagers.TestCase
