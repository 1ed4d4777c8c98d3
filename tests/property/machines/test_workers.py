"""Whatever happens to workers and jobs, in whatever order: no start is lost or hosted twice, and everybody is served in the end."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.workers import SIZED_FIRST_MS, WorkerPool
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages.workers import (
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
from penstock.engine.model.slot_size import slot_size
from simulation.bookkeeping import check_workers

LARGE = WorkerKind("c", 1, slot_size({"cpu": 2}))
KINDS = (WorkerKind("a", 3), WorkerKind("b", 1), LARGE)
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
        check_workers(self.pool)

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
                self.room(number)
            case "tick":
                self.feed(WorkersTick(self.now_ms))

    def pick(self, among, number):
        return among[number % len(among)]

    def want(self, number: int) -> None:
        kind = KINDS[number % 3]
        start_id = StartId(f"start-{len(self.wanted)}")
        self.wanted.append(start_id)
        slots = 1 + number % kind.slots
        job_id = JobId(str(number % 3))
        sized = 0 if kind.size else number % 2
        self.feed(StartWanted(start_id, job_id, kind, slots, 2, IDLE_MS, self.now_ms, sized))

    def room(self, number: int) -> None:
        """As many end as are wanted, if so many are idle and not of the kind that stays."""
        kept = None if number % 2 else KINDS[0]
        idle = sum(one.kind != kept for one in self.pool.idle)
        ending = len(self.ending)
        self.feed(RoomWanted(number % 3, kept, self.now_ms))
        assert len(self.ending) == ending + min(number % 3, idle)

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
    world.now_ms += SIZED_FIRST_MS
    world.feed(WorkersTick(world.now_ms))
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


CORES = {KINDS[0]: 1, KINDS[1]: 1, LARGE: 2}
EXECUTORS, CORES_EACH = 2, 3


class Executors:
    """Spark with executors of three cores. It places a task where it fits first, never moves one, and tells how many wait."""

    def __init__(self) -> None:
        self.pool = WorkerPool()
        self.now_ms = 0
        self.queue: list[tuple[WorkerId, WorkerKind]] = []
        self.free = [CORES_EACH] * EXECUTORS
        self.where: dict[WorkerId, tuple[int, int]] = {}
        self.hosted: set[StartId] = set()

    def feed(self, event) -> None:
        for effect in self.pool.step(event):
            match effect:
                case LaunchWorker(worker_id, kind):
                    self.queue.append((worker_id, kind))
                case HostStart(_, start_id):
                    self.hosted.add(start_id)
                case EndWorker(worker_id):
                    self.end(worker_id)
        check_workers(self.pool)

    def end(self, worker_id: WorkerId) -> None:
        self.queue = [entry for entry in self.queue if entry[0] != worker_id]
        place, cores = self.where.pop(worker_id, (0, 0))
        self.free[place] += cores
        self.feed(WorkerLost(worker_id, "ended", self.now_ms))

    def place(self) -> None:
        for worker_id, kind in list(self.queue):
            cores = CORES[kind]
            found = next((i for i, free in enumerate(self.free) if free >= cores), None)
            if found is not None and (worker_id, kind) in self.queue:
                self.queue.remove((worker_id, kind))
                self.free[found] -= cores
                self.where[worker_id] = found, cores
                self.feed(WorkerConnected(worker_id, self.now_ms))

    def turn(self) -> None:
        """What the shell does in an interval."""
        self.now_ms += 100
        self.place()
        self.feed(WorkersTick(self.now_ms))
        if self.queue:
            self.feed(RoomWanted(len(self.queue), None, self.now_ms))


@st.composite
def jobs(draw):
    """What fits into empty executors, the large ones placed first; in any order."""
    larges = draw(st.integers(0, EXECUTORS))
    kind = draw(st.sampled_from(KINDS[:2]))
    smalls = draw(st.integers(0, EXECUTORS * CORES_EACH - 2 * larges))
    kinds = draw(st.permutations([LARGE] * larges + [kind] * smalls))
    return larges, kinds


@given(st.lists(jobs(), max_size=6))
def test_one_job_after_the_other_finds_room_beside_what_the_former_ones_have_left(programs) -> None:
    spark = Executors()
    for number, (larges, kinds) in enumerate(programs):
        began_ms = spark.now_ms
        wanted = [StartId(f"start-{number}-{index}") for index in range(len(kinds))]
        for start_id, kind in zip(wanted, kinds, strict=True):
            sized = 0 if kind.size else larges
            slots, job_id = kind.slots, JobId(str(number))
            event = StartWanted(start_id, job_id, kind, slots, 99, 10**9, spark.now_ms, sized)
            spark.feed(event)
        while not spark.hosted >= set(wanted) and spark.now_ms < began_ms + SIZED_FIRST_MS:
            spark.turn()
        assert spark.hosted >= set(wanted), "a job waits although nobody else runs"
        for start_id in wanted:
            spark.feed(HostedGone(start_id, "over", False, spark.now_ms))
