"""Whatever happens to workers and jobs, in whatever order: no start is lost or hosted twice, and everybody is served in the end."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.machines.workers.pool import WorkerPool
from penstock.model.ids import JobId
from penstock.model.messages.workers import (
    EndWorker,
    HostedGone,
    HostStart,
    LaunchWorker,
    RoomWanted,
    StartDropped,
    StartEnded,
    StartId,
    StartRegistered,
    StartWanted,
    WorkerConnected,
    WorkerId,
    WorkerKind,
    WorkerLost,
    WorkersTick,
    WorkerUnfit,
)

KINDS = (WorkerKind("a", 3), WorkerKind("b", 1))
IDLE_MS = 100
ACTIONS = ("want", "connect", "gone", "refuse", "drop", "register", "lose", "unfit", "room", "tick")


class World:
    """A pool, the workers that it has launched, and what each start was told."""

    def __init__(self) -> None:
        self.pool = WorkerPool()
        self.now_ms = 0
        self.launched: list[WorkerId] = []
        self.ending: set[WorkerId] = set()
        self.wanted: list[StartId] = []
        self.dropped: set[StartId] = set()
        self.ended: list[StartId] = []
        self.where: dict[StartId, WorkerId] = {}

    def feed(self, event) -> None:
        for effect in self.pool.step(event):
            match effect:
                case LaunchWorker(worker_id):
                    assert worker_id not in self.launched
                    self.launched.append(worker_id)
                case HostStart(worker_id, start_id):
                    assert worker_id not in self.ending
                    assert start_id not in self.where, "hosted twice"
                    self.where[start_id] = worker_id
                case StartEnded(start_id):
                    assert start_id not in self.ended, "told twice"
                    assert start_id not in self.dropped, "told although its job knows"
                    self.ended.append(start_id)
                case EndWorker(worker_id):
                    self.ending.add(worker_id)
        self.pool.check()

    def act(self, action: str, number: int) -> None:
        self.now_ms += number
        hosted = sorted(self.where)
        match action:
            case "want":
                self.want(number)
            case "connect" if self.launched:
                self.feed(WorkerConnected(self.pick(self.launched, number), self.now_ms))
            case "gone" | "refuse" if hosted:
                self.gone(self.pick(hosted, number), was_refused=action == "refuse")
            case "drop" if self.wanted:
                self.drop(self.pick(self.wanted, number))
            case "register" if hosted:
                self.feed(StartRegistered(self.pick(hosted, number)))
            case "lose" if self.launched:
                self.lose(self.pick(self.launched, number))
            case "unfit" if self.launched:
                self.feed(WorkerUnfit(self.pick(self.launched, number), "left", self.now_ms))
            case "room":
                self.feed(RoomWanted(number % 3, KINDS[0], self.now_ms))
            case "tick":
                self.feed(WorkersTick(self.now_ms))

    def pick(self, among, number):
        return among[number % len(among)]

    def want(self, number: int) -> None:
        kind = KINDS[number % 2]
        start_id = StartId(f"start-{len(self.wanted)}")
        self.wanted.append(start_id)
        slots = 1 + number % kind.slots
        job_id = JobId(str(number % 3))
        self.feed(StartWanted(start_id, job_id, kind, slots, 2, IDLE_MS, self.now_ms))

    def gone(self, start_id, *, was_refused: bool) -> None:
        del self.where[start_id]
        self.feed(HostedGone(start_id, "over", was_refused, self.now_ms))

    def drop(self, start_id) -> None:
        if start_id not in self.ended:
            self.dropped.add(start_id)
            self.feed(StartDropped(start_id, "dropped", self.now_ms))

    def lose(self, worker_id) -> None:
        for start_id in [one for one, where in self.where.items() if where == worker_id]:
            del self.where[start_id]
        self.feed(WorkerLost(worker_id, "lost", self.now_ms))

    def settle(self) -> None:
        """All workers come, and those that are to end do."""
        while missing := [one for one in self.pool.workers.values() if one.state != "READY"]:
            for worker in missing:
                if worker.worker_id in self.ending:
                    self.lose(worker.worker_id)
                elif worker.worker_id in self.pool.workers:
                    self.feed(WorkerConnected(worker.worker_id, self.now_ms))


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 40)), max_size=60))
def test_every_start_is_hosted_or_over_and_workers_end_when_all_are_gone(actions) -> None:
    world = World()
    for action, number in actions:
        world.act(action, number)
    world.settle()
    waiting = set(world.pool.starts) - set(world.where)
    assert not waiting, "somebody waits although every worker has come"
    known = {*world.ended, *world.where} | world.dropped
    assert known == set(world.wanted)
    for start_id in list(world.where):
        world.gone(start_id, was_refused=False)
    world.now_ms += IDLE_MS
    world.feed(WorkersTick(world.now_ms))
    world.settle()
    assert not world.pool.workers
    assert not world.pool.starts
