"""Control connections of the simulated TaskManagers, and what a network can do to them.

A connection is TCP. If a message is lost, all later ones are lost too, and sooner or later the
connection itself. Delayed messages come later, in order. Two things go beyond TCP, because machines
must tolerate them all the same: a message may come twice, and one may overtake a message of another
task. Knows no machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.engine.hosting.jobmanager.control_server import Links
from penstock.engine.model.ids import FencingToken, ResourceId
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CancelTask,
    DeclineCheckpoint,
    DeployTask,
    MasterHeartbeat,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RegisterTaskManager,
    TaskStateChanged,
    TriggerCheckpoint,
    WaitsForFinalCheckpoint,
)
from simulation.clock import SimClock

_DELAYS_MS: Final = (0, 0, 1, 1, 2, 5, 20, 120)
_SLOW_MS: Final = (200, 1_000, 4_000, 12_000)
_OVERTAKEN_MS: Final = (1, 20, 400)
_REPEATED_MS: Final = (0, 1, 20, 500, 5_000)
_BREAKS_MS: Final = (5, 300, 3_000, 10_000)
DUPLICATED_SHARE: Final = 0.5
REORDERED_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True)
class Closed:
    """The other end has closed the connection, or it broke."""

    cause: str


def _keys_of(message: object) -> tuple[object, ...]:
    """Return who wrote a message. Messages of one key never overtake each other, like those of one thread."""
    if isinstance(message, DeployTask):
        return (message.deployment.attempt_id,)
    if isinstance(message, _OF_TASKS):
        return message.attempt_ids
    return (message.attempt_id if isinstance(message, _OF_ONE_TASK) else None,)


_OF_ONE_TASK: Final = (
    TaskStateChanged,
    CancelTask,
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    WaitsForFinalCheckpoint,
)
_OF_TASKS: Final = (TriggerCheckpoint, NotifyCheckpointComplete, NotifyCheckpointAborted)
Receiver = Callable[[object], None]


@dataclass(slots=True)
class Noise:
    """Until when a pipe misbehaves, by the kind of misbehaviour; times in ms."""

    delayed_until: int = 0
    doubled_until: int = 0
    reordered_until: int = 0
    lost_until: int = 0


@dataclass(slots=True)
class Pipe:
    """One direction of a connection. `note`: called with the noise that affected a message. `on_loss`: called when one is lost."""

    clock: SimClock
    name: str
    receive: Receiver
    note: Callable[[str], None]
    on_loss: Callable[[], None]
    noise: Noise = field(default_factory=Noise)
    is_over: bool = False
    _last_ms: int = 0
    _last_of: dict[object, int] = field(default_factory=dict)
    _blocked_until: int = 0

    def send(self, message: object) -> None:
        if self.is_over:
            return
        now_ms, noise, draw = self.clock.now_ms, self.noise, self.clock.random
        is_plain = isinstance(message, Closed | RegisterTaskManager)
        if now_ms < noise.lost_until and not is_plain:
            self.is_over = True
            self.note("loss")
            self.on_loss()
            return
        arrives_ms = now_ms + draw.choice(_DELAYS_MS)
        if now_ms < noise.delayed_until:
            arrives_ms = now_ms + draw.choice(_SLOW_MS)
            self.note("delay")
        keys = _keys_of(message)
        former_ms = max(self._last_of.get(key, 0) for key in keys)
        arrives_ms = max(arrives_ms, self._blocked_until, former_ms)
        if now_ms < noise.reordered_until and not is_plain and self.clock.chance(REORDERED_SHARE):
            self.note("reordering")  # Messages that are sent later need not wait for it.
            arrives_ms += draw.choice(_OVERTAKEN_MS)
        else:
            arrives_ms = self._last_ms = max(arrives_ms, self._last_ms)
        self._last_of.update(dict.fromkeys(keys, arrives_ms))
        self._deliver_at(arrives_ms, message)
        if now_ms < noise.doubled_until and not is_plain and self.clock.chance(DUPLICATED_SHARE):
            self.note("duplication")
            self._deliver_at(arrives_ms + draw.choice(_REPEATED_MS), message)

    def block(self, until_ms: int) -> None:
        """Hold all messages until then."""
        self._blocked_until = max(self._blocked_until, until_ms)

    @property
    def is_blocked(self) -> bool:
        return self.clock.now_ms < self._blocked_until

    def _deliver_at(self, at_ms: int, message: object) -> None:
        kind = type(message).__name__
        self.clock.at(at_ms, kind, lambda: self._deliver(message))

    def _deliver(self, message: object) -> None:
        if self.clock.now_ms < self._blocked_until:
            self._deliver_at(self._blocked_until, message)
        else:
            self.receive(message)


class Connection:
    """Both directions between the driver and one TaskManager. `Links` uses the driver's end."""

    def __init__(
        self,
        clock: SimClock,
        resource_id: ResourceId,
        at_driver: Callable[[object, Connection], None],
        at_taskmanager: Receiver,
        note: Callable[[str], None],
    ) -> None:
        self.resource_id = resource_id
        self._clock = clock
        self._at_driver = at_driver
        self._at_taskmanager = at_taskmanager
        self._is_driver_closed = False
        self._is_taskmanager_closed = False
        self.has_kernel = True
        """Whether the TaskManager's machine answers while its processes do not."""
        self.down = Pipe(
            clock, f"driver->{resource_id}", self._to_taskmanager, note, self._break_soon
        )
        self.up = Pipe(clock, f"{resource_id}->driver", self._to_driver, note, self._break_soon)

    # ------------------------------------------------------------------ the driver's end

    @property
    def is_closing(self) -> bool:
        return self._is_driver_closed

    def answers(self, _within_ms: int) -> bool:
        is_through = not (self.down.is_blocked or self.up.is_blocked)
        return is_through and self.has_kernel and not self._is_taskmanager_closed

    def close(self) -> None:
        if not self._is_driver_closed:
            self._is_driver_closed = True
            self.down.send(Closed("the driver closed the connection"))

    # ------------------------------------------------------------------ the TaskManager's end

    def close_taskmanager(self, cause: str, *, is_told: bool = True) -> None:
        """Close the TaskManager's end. `is_told` False: its host is gone, so that no end is sent."""
        if not self._is_taskmanager_closed:
            self._is_taskmanager_closed = True
            if is_told:
                self.up.send(Closed(cause))

    # ------------------------------------------------------------------ what the network does

    def break_at_both_ends(self, cause: str) -> None:
        self.down.is_over = self.up.is_over = True
        self._to_driver(Closed(cause))
        self._to_taskmanager(Closed(cause))

    def _break_soon(self) -> None:
        """Break the connection after ten seconds without an answer, if nothing breaks it before."""
        delay_ms = self._clock.random.choice(_BREAKS_MS)
        call = partial(self.break_at_both_ends, "connection reset")
        self._clock.later(delay_ms, "Reset", call)

    def _to_driver(self, message: object) -> None:
        if not self._is_driver_closed:
            self._at_driver(message, self)

    def _to_taskmanager(self, message: object) -> None:
        if not self._is_taskmanager_closed:
            self._at_taskmanager(message)


class SimLinks(Links):
    """The driver's own book of connections. Messages are passed as objects, not as bytes."""

    def __init__(
        self, fencing_token: FencingToken, on_send: Callable[[ResourceId, object], None]
    ) -> None:
        super().__init__(fencing_token)
        self._on_send = on_send

    def beat(self) -> None:
        for resource_id in self.by_id:
            self.send(resource_id, MasterHeartbeat())

    def send(self, resource_id: ResourceId, message: object) -> None:
        link = self.by_id.get(resource_id)
        if link is None:
            return
        connection: object = link.control
        assert isinstance(connection, Connection)
        if not connection.is_closing:
            connection.down.send(self.stamped(message))
            self._on_send(resource_id, message)
