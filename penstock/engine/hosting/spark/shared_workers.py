"""The workers of one Spark session: the shell of the machine `WorkerPool`, on a thread with an
asyncio loop.

Workers dial the pool, as TaskManagers dial their JobManager, and prove that they belong to it
before anything is unpickled. The order to host a TaskManager travels over this connection, with the
certificate and key of the TaskManager's job. The pool looks after workers only: whether a
TaskManager lives is the business of its JobManager, to which its supervisor has another connection.

Other threads reach the loop by `call_soon` and `ask`. A port starts and stops the workers. Source:
Flink ResourceManager and its shell. Call `start` first. All methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from penstock.engine.hosting.jobmanager.control_server import ControlLink, ControlServer
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.dialling import Ticket, Tickets
from penstock.engine.hosting.network.wire.handshake import ROLE_SUPERVISOR, Credentials
from penstock.engine.hosting.network.wire.tls import new_identity
from penstock.engine.hosting.os.clock import monotonic_ms
from penstock.engine.machines.workers import WorkerPool
from penstock.engine.model import messages
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.messages import workers as worker_messages

_ASK_S: Final = 10.0
"""How long a caller waits for an answer of the loop, which is never busy for long."""
T = TypeVar("T")


class LoopThread:
    """Runs one coroutine to its end."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._name = name
        self._thread: threading.Thread | None = None

    def start(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        """Return when `main` has called `is_ready`. `on_end`: called on the thread, in any case.
        Raises: the error of a `main` that did not become ready.
        """
        self._thread = threading.Thread(
            target=self._run, args=(main, on_end), name=self._name, daemon=True
        )
        self._thread.start()
        self._ready.result()

    def is_ready(self) -> None:
        self._ready.set_result(None)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have the loop do this. Lost if the loop is over."""
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self.loop.call_soon_threadsafe(call)

    def ask(self, question: Callable[[], T], otherwise: T) -> T:
        """Return the answer of the loop; `otherwise` if the loop is over."""
        answer: Future[T] = Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:  # Whatever it is, the caller must not wait for ever.
                answer.set_exception(error)
                raise

        self.call_soon(reply)
        if not self.is_alive:
            return otherwise
        try:
            return answer.result(_ASK_S)
        except TimeoutError:
            return otherwise

    def _run(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        asyncio.set_event_loop(self.loop)
        failure: Exception | None = None
        try:
            self.loop.run_until_complete(main())
        except Exception as error:  # Of any kind: it belongs to who starts, or to the log.
            failure = error
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            on_end(failure)
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # What is left must not keep the loop open.
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


OnLost = Callable[[worker_messages.WorkerId, str], None]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What all who share a worker have in common. `order`: of `engine.hosting.taskmanager_order.WorkerOrder`, as plain data."""

    kind: worker_messages.WorkerKind
    order: Mapping[str, Any]
    heartbeat_interval_s: float
    silence_timeout_s: float


@dataclass(frozen=True, slots=True)
class WantedStart:
    """A TaskManager that a job wants. `order`: of `engine.hosting.taskmanager_order.ChildOrder`, without secrets. `on_ended`: takes why
    it is over; any thread. `after_sized`: as in `StartWanted`.
    """

    start_id: worker_messages.StartId
    job_id: JobId
    settings: WorkerSettings
    slots: int
    lower_bound: int
    idle_ms: int
    order: Mapping[str, Any]
    credentials: Credentials = field(repr=False)
    on_ended: Callable[[str], None] = field(repr=False)
    after_sized: int = 0


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """Where workers dial, and the ticket of one of them."""

    host: str
    port: int
    ticket: Ticket


class Launcher(Protocol):
    """Starts workers. Any thread; nothing raises."""

    def launch(
        self,
        worker_id: worker_messages.WorkerId,
        settings: WorkerSettings,
        pool: PoolAddress,
        on_lost: OnLost,
    ) -> None:
        """Start a worker. `on_lost`: called when the worker has ended, or could not be started."""

    def is_up(self, worker_id: worker_messages.WorkerId) -> None:
        """It has connected."""

    def lack_places(self, workers: set[worker_messages.WorkerId]) -> bool:
        """Whether some of these wait for a place and there is none for them."""

    def stop(self, worker_id: worker_messages.WorkerId, *, is_notified: bool) -> None:
        """Make sure that a worker ends. `is_notified`: it was ordered to end, and gets time for
        that. Returns at once.
        """

    def waiting(self) -> int:
        """Return how many tasks wait for a place that workers may hold. Asks the host, so it takes a moment."""

    def await_ends(self, workers: set[ResourceId], timeout_s: float) -> None:
        """Return when these are over, or the time is."""


_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.1
_LAST_WORDS_S: Final = 0.5
CLUSTER: Final = "workers"
"""The cluster id of the connections of workers: that of a job has 32 digits."""


class WorkerLinks:
    """The connections of workers, and when each was heard last. Times are of the monotonic clock, in s."""

    def __init__(self) -> None:
        self._links: dict[worker_messages.WorkerId, ControlLink] = {}
        self._heard: dict[worker_messages.WorkerId, float] = {}
        self._beaten_at = 0.0

    def __contains__(self, worker_id: worker_messages.WorkerId) -> bool:
        return worker_id in self._links

    def __getitem__(self, worker_id: worker_messages.WorkerId) -> ControlLink:
        return self._links[worker_id]

    def heard(self, worker_id: worker_messages.WorkerId, control: ControlLink, now: float) -> bool:
        """Note a sign of life. Returns: whether it is the first."""
        self._heard[worker_id] = now
        is_first = worker_id not in self._links
        self._links.setdefault(worker_id, control)
        return is_first

    def silent_since(self, now: float) -> list[tuple[worker_messages.WorkerId, float]]:
        """Return for how long each has been silent."""
        return [(worker_id, now - heard_at) for worker_id, heard_at in self._heard.items()]

    def send(self, worker_id: worker_messages.WorkerId, message: object) -> None:
        """Send a message. Dropped if the worker is not connected; the loss is reported
        elsewhere.
        """
        link = self._links.get(worker_id)
        if link is not None:
            link.send(message)

    def beat(self, now: float, every_s: float) -> None:
        """Send a heartbeat to all, if it is due."""
        if now - self._beaten_at >= every_s:
            self._beaten_at = now
            for link in self._links.values():
                link.send(messages.MasterHeartbeat())

    def forget(self, worker_id: worker_messages.WorkerId) -> None:
        """It is lost: close its connection."""
        self._heard.pop(worker_id, None)
        link = self._links.pop(worker_id, None)
        if link is not None:
            link.close()


class SharedWorkers:
    """Owns a thread until `close` and the end of its last worker."""

    def __init__(self, endpoint: Endpoint, launcher: Launcher) -> None:
        """`endpoint`: where workers dial."""
        self._endpoint = endpoint
        self._launcher = launcher
        self._machine = WorkerPool()
        self.credentials = Credentials(new_identity(), secrets.token_hex(8), CLUSTER)
        self._tickets = Tickets(self.credentials)
        self._port = 0
        self.wanted: dict[worker_messages.StartId, WantedStart] = {}
        self._kinds: dict[worker_messages.WorkerKind, WorkerSettings] = {}
        self._links = WorkerLinks()
        self._closed_because = ""
        self._is_over = False
        self._loop = LoopThread("penstock-workers")
        self._busy = asyncio.Event()
        self._over = threading.Condition()

    def start(self) -> None:
        """Listen. Raises: ExternalError: there is no free port."""
        self._loop.start(self._main, self._finish)

    # ------------------------------------------------------------------ the side of the jobs

    def want(self, start: WantedStart) -> None:
        """Host this TaskManager somewhere. Returns at once."""
        self._loop.call_soon(lambda: self._on_want(start))

    def registered(self, start_id: worker_messages.StartId) -> None:
        self._loop.call_soon(lambda: self._feed(worker_messages.StartRegistered(start_id)))

    def drop(self, start_id: worker_messages.StartId, cause: str) -> None:
        """See that a TaskManager ends."""
        self._loop.call_soon(lambda: self._on_drop(start_id, cause))

    def leave(self, start_id: worker_messages.StartId, cause: str) -> None:
        """Have the worker of a TaskManager host nobody else."""
        self._loop.call_soon(lambda: self._on_leave(start_id, cause))

    def await_gone(self, start_ids: set[worker_messages.StartId], timeout_s: float) -> bool:
        """Wait until these TaskManagers are over. Returns: whether they are."""

        def are_gone() -> bool:
            return self._is_over or not start_ids & self._machine.starts.keys()

        self._loop.ask(lambda: None, None)  # What was called before has run then.
        with self._over:
            return self._over.wait_for(are_gone, timeout_s)

    def fits(self, kind: worker_messages.WorkerKind, sizes: Sequence[int]) -> int:
        """Return how many TaskManagers of these sizes ready workers of the kind could host now."""
        return self._loop.ask(lambda: self._machine.fits(kind, sizes), 0)

    def idle(self) -> list[worker_messages.WorkerKind]:
        """Return the kinds of the workers that nobody uses, one for each."""
        return self._loop.ask(lambda: [one.kind for one in self._machine.idle], [])

    def make_room(self, workers: int, kind: worker_messages.WorkerKind | None = None) -> None:
        """End `workers` idle workers, so that others get their places. `kind`: whose workers stay.
        Returns at once.
        """
        self._loop.call_soon(
            lambda: self._feed(worker_messages.RoomWanted(workers, kind, monotonic_ms()))
        )

    def lack_places(self, start_ids: set[worker_messages.StartId]) -> bool:
        """Whether some of them wait for workers for which there is no place."""

        def planned() -> set[worker_messages.WorkerId]:
            found = (self._machine.starts.get(one) for one in start_ids)
            return {one.planned for one in found if one is not None and one.planned is not None}

        none: set[worker_messages.WorkerId] = set()
        return self._launcher.lack_places(self._loop.ask(planned, none))

    def close(self, cause: str, timeout_s: float) -> None:
        """End the idle workers, and start none any more. Those that are used go on until their jobs are over."""
        nobody: set[ResourceId] = set()
        self._launcher.await_ends(self._loop.ask(lambda: self._on_close(cause), nobody), timeout_s)

    @property
    def is_open(self) -> bool:
        return not self._closed_because and self._loop.is_alive

    # ------------------------------------------------------------------ the loop

    async def _main(self) -> None:
        server = ControlServer(self.credentials, self, self._tickets, reports=ROLE_SUPERVISOR)
        self._port = await server.open(self._endpoint)
        self._loop.is_ready()
        while not (self._closed_because and not self._machine.workers):
            await self._busy.wait()
            await asyncio.sleep(_TICK_S)
            await self._tick()
            if not self._machine.workers and not self._closed_because:
                self._busy.clear()
        await server.close()

    def _finish(self, failure: Exception | None) -> None:
        """Nobody must wait for a pool that is gone."""
        if failure is not None:
            _LOG.error("workers=BROKEN", exc_info=failure)
        self._closed_because = self._closed_because or "the pool of workers is gone"
        for start_id in list(self.wanted):
            self._on_ended(start_id, self._closed_because)
        with self._over:
            self._is_over = True
            self._over.notify_all()

    async def _tick(self) -> None:
        now = time.monotonic()
        for worker_id, silent_s in self._links.silent_since(now):
            worker = self._machine.workers.get(worker_id)
            most_s = 0.0 if worker is None else self._kinds[worker.kind].silence_timeout_s
            if silent_s >= most_s:
                self._lose(worker_id, f"nothing was heard of it for {most_s:g} s")
        intervals = [one.heartbeat_interval_s for one in self._kinds.values()]
        self._links.beat(now, min(intervals, default=_TICK_S))
        self._feed(worker_messages.WorkersTick(monotonic_ms()))
        if self._machine.idle:
            await self.look_who_waits()

    async def look_who_waits(self) -> None:
        """Give up idle workers where others wait for room."""
        try:
            asked = self._loop.loop.run_in_executor(None, self._launcher.waiting)
        except RuntimeError:  # Python ends: its executors take no calls any more.
            return
        waiting = await asked
        if waiting:
            self._feed(worker_messages.RoomWanted(waiting, None, monotonic_ms()))

    # ------------------------------------------------------------------ the machine

    def _feed(self, event: worker_messages.WorkersEvent) -> None:
        """Step, and carry out the effects. Those that have effects of their own come after these."""
        for effect in self._machine.step(event):
            match effect:
                case worker_messages.LaunchWorker(worker_id, kind):
                    self._launch(worker_id, kind)
                case worker_messages.HostStart(worker_id, start_id, slots):
                    self.host_jobmanager(worker_id, start_id, slots)
                case worker_messages.DropStart(worker_id, start_id, cause):
                    self._links.send(worker_id, worker_messages.DropTaskManager(start_id, cause))
                case worker_messages.EndWorker(worker_id, cause):
                    self._end(worker_id, cause)
                case worker_messages.StartEnded(start_id, cause):
                    self._on_ended(start_id, cause)
        for start_id in self.wanted.keys() - self._machine.starts.keys():
            del self.wanted[start_id]
        with self._over:
            self._over.notify_all()

    def _on_want(self, start: WantedStart) -> None:
        if self._closed_because:
            start.on_ended(self._closed_because)
            return
        self.wanted[start.start_id] = start
        self._kinds.setdefault(start.settings.kind, start.settings)
        self._busy.set()
        self._feed(
            worker_messages.StartWanted(
                start.start_id,
                start.job_id,
                start.settings.kind,
                start.slots,
                start.lower_bound,
                start.idle_ms,
                monotonic_ms(),
                start.after_sized,
            )
        )

    def _on_drop(self, start_id: worker_messages.StartId, cause: str) -> None:
        self._feed(worker_messages.StartDropped(start_id, cause, monotonic_ms()))

    def _on_leave(self, start_id: worker_messages.StartId, cause: str) -> None:
        start = self._machine.starts.get(start_id)
        if start is not None and start.worker is not None:
            self._feed(worker_messages.WorkerUnfit(start.worker, cause, monotonic_ms()))

    def _on_close(self, cause: str) -> set[ResourceId]:
        """Return the workers that end now."""
        self._closed_because = cause
        self._busy.set()
        idle = {one.worker_id for one in self._machine.idle}
        self._feed(worker_messages.RoomWanted(len(idle), None, monotonic_ms()))
        return idle

    def _launch(
        self, worker_id: worker_messages.WorkerId, kind: worker_messages.WorkerKind
    ) -> None:
        address = PoolAddress(self._endpoint.dialled_host, self._port, self._tickets.new())
        _LOG.info("worker=%s REQUESTED", worker_id)
        self._launcher.launch(worker_id, self._kinds[kind], address, self._on_host_ended)

    def host_jobmanager(
        self, worker_id: worker_messages.WorkerId, start_id: worker_messages.StartId, slots: int
    ) -> None:
        start, link = self.wanted[start_id], self._links[worker_id]
        order = json.dumps({
            **start.order,
            "taskmanager": {**start.order["taskmanager"], "slots": slots},
        })
        _LOG.info("worker=%s HOSTS taskmanager=%s slots=%d", worker_id, start_id, slots)
        link.send(
            worker_messages.HostTaskManager(
                start_id, order.encode(), start.credentials.identity.pem
            )
        )

    def _end(self, worker_id: worker_messages.WorkerId, cause: str) -> None:
        _LOG.info("worker=%s ENDS cause=%s", worker_id, cause)
        self._links.send(worker_id, messages.Shutdown(cause))
        self._launcher.stop(worker_id, is_notified=worker_id in self._links)

    def _on_ended(self, start_id: worker_messages.StartId, cause: str) -> None:
        start = self.wanted.pop(start_id, None)
        if start is not None:
            start.on_ended(cause)

    # ------------------------------------------------------------------ the side of the workers

    def received(self, _role: int, message: Any, control: ControlLink) -> ResourceId | None:
        """As `control_server.Listener`."""
        match message:
            case messages.Heartbeat(worker_id):
                self._on_heartbeat(worker_id, control)
                return worker_id
            case messages.ProcessStopped(worker_id):
                self._on_stopped(worker_id, control)
                return worker_id
            case messages.ProcessEnded(worker_id, cause):
                self.disconnected(worker_id, cause)
            case worker_messages.HostedEnded(start_id, cause, was_refused):
                _LOG.info("taskmanager=%s ENDED cause=%s", start_id, cause)
                self._feed(worker_messages.HostedGone(start_id, cause, was_refused, monotonic_ms()))
            case worker_messages.WorkerUsedUp(worker_id, cause):
                _LOG.info("worker=%s USED_UP cause=%s", worker_id, cause)
                self._feed(worker_messages.WorkerUnfit(worker_id, cause, monotonic_ms()))
            case _:
                raise ExternalError(f"a pool of workers does not accept {type(message).__name__}")
        return None

    def _on_stopped(self, worker_id: worker_messages.WorkerId, control: ControlLink) -> None:
        """It may go on. While it hosts TaskManagers, their JobManagers decide what becomes of it; it gets no others."""
        cause, worker = "its process was stopped", self._machine.workers.get(worker_id)
        if worker is not None and worker.starts:
            self._feed(worker_messages.WorkerUnfit(worker_id, cause, monotonic_ms()))
        else:
            control.send(messages.KillTaskManager(cause))
            self._lose(worker_id, cause)

    def _on_heartbeat(self, worker_id: worker_messages.WorkerId, control: ControlLink) -> None:
        if self._links.heard(worker_id, control, time.monotonic()):
            self._launcher.is_up(worker_id)
            self._feed(worker_messages.WorkerConnected(worker_id, monotonic_ms()))

    def disconnected(self, resource_id: ResourceId, cause: str) -> None:
        """As `control_server.Listener`."""
        worker = self._machine.workers.get(resource_id)
        if worker is not None and any(start.is_registered for start in worker.starts):
            # Its supervisor reports the cause to the JobManagers, and that report has to come
            # first.
            self._loop.loop.call_later(_LAST_WORDS_S, self._lose, resource_id, cause)
        else:
            self._lose(resource_id, cause)

    def _on_host_ended(self, worker_id: worker_messages.WorkerId, cause: str) -> None:
        """The Spark job of a worker is over. Any thread."""
        self._loop.call_soon(lambda: self._lose(worker_id, cause))

    def _lose(self, worker_id: worker_messages.WorkerId, cause: str) -> None:
        self._links.forget(worker_id)
        if worker_id in self._machine.workers:
            _LOG.info("worker=%s LOST cause=%s", worker_id, cause)
            self._launcher.stop(worker_id, is_notified=True)
            self._feed(worker_messages.WorkerLost(worker_id, cause, monotonic_ms()))
