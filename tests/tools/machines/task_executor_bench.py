"""A TaskExecutor with its JobManager's words at hand."""

from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    ExecutionVertexId,
    FencingToken,
    JobId,
    ResourceId,
    VertexId,
)
from penstock.engine.model.messages import (
    AnswerOffers,
    CancelTask,
    DeployTask,
    FreeSlot,
    RegistrationAccepted,
    RequestSlot,
    TaskEnded,
)
from simulation.bookkeeping import check_task_executor

ME, JOB, OTHER = ResourceId("tm"), JobId("job"), JobId("other")
LEADER, FORMER = FencingToken("leader"), FencingToken("former")
A1, A2 = AllocationId("a1"), AllocationId("a2")


def attempt(name: str = "v", number: int = 0) -> AttemptId:
    return AttemptId(ExecutionVertexId(VertexId(name), 0), number)


def deployment(attempt_id: AttemptId, allocation_id=A1, job_id=JOB) -> TaskDeployment:
    blob = BlobKey("blob")
    return TaskDeployment(job_id, "a job", attempt_id, allocation_id, "Map", 1, 1, blob, (), ())


class Bench:
    """Steps that check the machine's laws, with the leader's token by default."""

    def __init__(self, slots: int = 2, *, is_registered: bool = True) -> None:
        self.executor = TaskExecutor(ME, slots)
        if is_registered:
            self.step(RegistrationAccepted(LEADER))

    def step(self, event):
        effects = self.executor.step(event)
        check_task_executor(self.executor)
        return effects

    def request(self, allocation_id=A1, index=0, job_id=JOB, token=LEADER):
        return self.step(RequestSlot(ME, index, allocation_id, job_id, token))

    def answer(self, accepted=(), rejected=(), token=LEADER):
        return self.step(AnswerOffers(ME, tuple(accepted), tuple(rejected), token))

    def deploy(self, attempt_id, allocation_id=A1, job_id=JOB, token=LEADER):
        return self.step(DeployTask(ME, deployment(attempt_id, allocation_id, job_id), token))

    def free(self, allocation_id=A1, token=LEADER):
        return self.step(FreeSlot(ME, allocation_id, "a test", token))

    def cancel(self, attempt_id, token=LEADER):
        return self.step(CancelTask(ME, attempt_id, token))

    def ended(self, attempt_id):
        return self.step(TaskEnded(attempt_id))

    def state(self, allocation_id=A1):
        slot = self.executor.slots.slot(allocation_id)
        return None if slot is None else slot.state

    @property
    def snapshot(self):
        """All that a step can change but the story."""
        return {
            slot.allocation_id: (slot.state, slot.index, slot.job_id, frozenset(slot.attempts))
            for slot in self.executor.slots
        }
