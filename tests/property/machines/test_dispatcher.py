"""Laws of a session's jobs, whatever clients, jobs and clean-ups do, in whatever order. Source: Flink Dispatcher."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.dispatcher import (
    Cancel,
    CancelJob,
    Cancelled,
    CleanUp,
    CleanUpFailed,
    CloseSession,
    Dispatcher,
    DispatcherSettings,
    Duplicate,
    EndSession,
    Initialise,
    JobCleaned,
    JobEnded,
    JobStarted,
    JobStartFailed,
    JobSubmitted,
    NotAccepted,
    Phase,
    Suspend,
    Tick,
)
from penstock.engine.model.states import JobStatus

JOBS = ("a" * 32, "b" * 32, "c" * 32)
MOST, CAPACITY, EXPIRES_MS = 2, 2, 5000
ENDS = (JobStatus.FINISHED, JobStatus.FAILED)
ACTIONS = ("submit", "start", "refuse", "cancel", "end", "clean", "spoil", "tick", "close")


class World:
    """A Dispatcher, and a session that carries out what it wants, each thing when it is its turn."""

    def __init__(self, *, is_kept: bool) -> None:
        settings = DispatcherSettings(EXPIRES_MS, CAPACITY, most_initialising=MOST)
        self.dispatcher = Dispatcher(settings, is_kept=is_kept)
        self.is_kept = is_kept
        self.now_ms = 0
        self.is_closed = False
        self.submitted: list[str] = []
        self.begun: list[str] = []
        self.initialising: list[str] = []
        self.running: dict[str, JobStatus | None] = {}
        self.dirty: list[tuple[str, bool]] = []

    def tell(self, event) -> None:
        self.take(self.dispatcher.step(event, self.now_ms))

    def take(self, effects) -> None:
        for effect in effects:
            match effect:
                case Initialise(job_id):
                    assert job_id not in self.initialising
                    assert job_id not in self.running, "a job runs twice"
                    self.initialising.append(job_id)
                    self.begun.append(job_id)
                case Cancel(job_id):
                    assert job_id in self.running
                    self.running[job_id] = JobStatus.CANCELED
                case Suspend(job_id):
                    assert self.is_kept, "nobody would go on with it"
                    assert self.is_closed
                    self.running[job_id] = self.running[job_id] or JobStatus.SUSPENDED
                case CleanUp(job_id, is_global):
                    assert job_id not in self.running, "it is cleaned up while it runs"
                    assert job_id not in dict(self.dirty), "two clean-ups at once"
                    self.dirty.append((job_id, is_global))
                case EndSession():
                    raise AssertionError("no job was recovered")
        self.check()

    def check(self) -> None:
        phases = {job.job_id: job.phase for job in self.dispatcher.jobs}
        assert len(self.initialising) <= MOST
        for job_id in self.initialising:
            assert phases[job_id] is Phase.INITIALISING
        for job_id in self.running:
            assert phases[job_id] is Phase.RUNNING, "a job that runs was forgotten"
        ended = [job for job in self.dispatcher.jobs if job.phase is Phase.ENDED]
        assert len(ended) <= CAPACITY

    def act(self, action: str, number: int) -> None:
        self.now_ms += number
        match action:
            case "submit":
                self.submit(JOBS[number % len(JOBS)])
            case "start" if self.initialising:
                job_id = self.initialising.pop(number % len(self.initialising))
                self.running[job_id] = None
                self.tell(JobStarted(job_id))
            case "refuse" if self.initialising:
                job_id = self.initialising.pop(number % len(self.initialising))
                self.tell(JobStartFailed(job_id, "no"))
            case "cancel":
                self.cancel(JOBS[number % len(JOBS)])
            case "end" if self.running:
                job_id = sorted(self.running)[number % len(self.running)]
                told = self.running.pop(job_id)
                status = told or ENDS[number % len(ENDS)]
                self.tell(JobEnded(job_id, status))
            case "clean" | "spoil" if self.dirty:
                self.clean(number, is_spoilt=action == "spoil")
            case "tick":
                self.tell(Tick())
            case "close":
                self.is_closed = True
                self.tell(CloseSession())

    def submit(self, job_id: str) -> None:
        known = {job.job_id: job.phase for job in self.dispatcher.jobs}
        is_alive = known.get(job_id, Phase.ENDED) is not Phase.ENDED
        refusal: type[Exception] | None = Duplicate if is_alive else None
        refusal = NotAccepted if self.is_closed else refusal
        try:
            effects = self.dispatcher.step(JobSubmitted(job_id, "job"), self.now_ms)
        except (Duplicate, NotAccepted) as error:
            assert type(error) is refusal
            return
        assert refusal is None, "it was taken"
        self.submitted.append(job_id)
        self.take(effects)

    def cancel(self, job_id: str) -> None:
        before = {job.job_id: job for job in self.dispatcher.jobs}.get(job_id)
        effects = self.dispatcher.step(CancelJob(job_id), self.now_ms)
        assert (self.dispatcher.cancelled(job_id) is Cancelled.UNKNOWN) == (before is None)
        self.take(effects)

    def clean(self, number: int, *, is_spoilt: bool) -> None:
        job_id, is_global = self.dirty.pop(number % len(self.dirty))
        (job,) = [one for one in self.dispatcher.jobs if one.job_id == job_id]
        assert job.status is not None, "nobody knows how it has ended"
        assert is_global == job.status.is_globally_terminal
        if is_spoilt:
            self.tell(CleanUpFailed(job_id))
            assert job.retry_at_ms is not None
        else:
            self.tell(JobCleaned(job_id))

    def settle(self) -> None:
        """Everything that is under way comes to its end, and no clean-up fails any more."""
        while self.initialising or self.running or self.dirty or self.unclean():
            for action in ("start", "end", "clean"):
                self.act(action, 0)
            self.act("tick", 3_600_000)

    def unclean(self) -> bool:
        return any(job.phase is not Phase.ENDED for job in self.dispatcher.jobs)


@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2000)), max_size=60),
)
def test_every_job_begins_in_its_turn_runs_once_and_is_cleaned_up(is_kept, actions) -> None:
    world = World(is_kept=is_kept)
    for action, number in actions:
        world.act(action, number)
    world.settle()
    left = iter(world.submitted)
    assert all(job_id in left for job_id in world.begun), "a later job came first"
    assert len(world.begun) <= len(world.submitted)
    world.act("close", 0)
    assert world.dispatcher.is_done
