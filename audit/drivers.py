"""The driver processes of a run: which one leads, how another takes its place, and with what the job is submitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from audit.children import Child, Starter

_WAITS = "waiting for its end"
"""What a standby says on its stderr when it has seen that another driver leads the job."""
_FINISHED = frozenset({"finished"})
_NEVER = frozenset({"failed", "suspended", "savepoint_failed", "rescale_failed"})


class DriverFailed(Exception):
    """A driver did not do what it was told. `child`: which, for its last words."""

    def __init__(self, text: str, child: Child) -> None:
        super().__init__(text)
        self.child = child


@dataclass(frozen=True, slots=True)
class Submission:
    """What a driver is told to run. `tcp`: between TaskManagers of one machine. `savepoint`: to begin with."""

    parallelism: int
    interval_ms: int
    unaligned: bool = False
    tcp: bool = False
    savepoint: str | None = None

    def command(self) -> dict[str, Any]:
        return {
            "run": {name: getattr(self, name) for name in self.__slots__},
        }


class Drivers:
    """`leader`: the one that runs the job. `limit_s`: how long anything may take."""

    def __init__(self, start: Starter, first: Submission, master: str, limit_s: float) -> None:
        self.submission = first
        self.leader: Child
        self._start = start
        self._master = master
        self._limit_s = limit_s
        self._started = 0
        self._since: dict[Child, int] = {}

    # ------------------------------------------------------------------ processes

    def begin(self) -> None:
        """A new process leads; the one before is gone. Raises: DriverFailed."""
        self.promote(self._new())

    def kill_leader(self) -> None:
        self.leader.process.kill()
        self.leader.end()

    def standby(self) -> Child:
        """A process that has seen that the job is led by another. Raises: DriverFailed."""
        child = self._new()
        if not child.says(_WAITS, self._limit_s):
            raise DriverFailed("a second driver did not wait for the leader's end", child)
        return child

    def promote(self, standby: Child) -> None:
        """It leads, or is about to. Raises: DriverFailed."""
        self.leader = standby
        self.expect_running()

    def _new(self) -> Child:
        """A process with Spark, told to run the job. Raises: DriverFailed."""
        self._started += 1
        child = self._start(f"driver-{self._started}", "audit.driver", "--master", self._master)
        self._since[child] = 0
        self.expect(child, "ready")
        child.tell(self.submission.command())
        return child

    # ------------------------------------------------------------------ jobs

    def expect_running(self) -> None:
        """Raises: DriverFailed."""
        self.expect(self.leader, "running")

    def expect_suspended(self, former: Child) -> None:
        """It has seen that another leads. Raises: DriverFailed."""
        self.expect(former, "suspended", never=_FINISHED)

    def expect_end(self, former: Child) -> str:
        """It leads no more: its job has ended, or the process has. Returns: what it said. Raises: DriverFailed."""

        def is_over(what: dict[str, Any]) -> bool:
            return bool(_NEVER & set(what))

        told = former.wait_for(is_over, self._since[former], self._limit_s)
        if told is not None:
            return f"'{next(iter(_NEVER & set(told)))}'"
        if former.is_alive:
            raise DriverFailed(f"a driver without Spark went on for {self._limit_s:.0f} s", former)
        return "nothing, and ended"

    def completed_since(self, moment: float) -> list[float]:
        """When the leader completed checkpoints of the job, after that and after the job was last RUNNING anew."""
        lines = [(at, what) for at, what in list(self.leader.lines) if at > moment]
        running = [at for at, what in lines if what.get("status") == "RUNNING"]
        last = running[-1] if running else moment
        return [at for at, what in lines if at > last and "size" in what]

    def lost_since(self, moment: float) -> list[str]:
        """Which TaskManagers the leader has lost after that, and why."""
        lines = list(self.leader.lines)
        return [
            f"{what['lost']}: {what['cause']}"
            for at, what in lines
            if at > moment and "lost" in what
        ]

    def heard_since(self, moment: float, text: str) -> int:
        """How many lines of the leader have this text in what they say."""
        lines = list(self.leader.lines)
        return sum(at > moment and text in str(what) for at, what in lines)

    @property
    def has_finished(self) -> bool:
        """The leader's job."""
        return any("finished" in what for what in self._said())

    def _said(self) -> list[dict[str, Any]]:
        """What the leader has said of its last job."""
        return [what for _, what in self.leader.lines[self._since[self.leader] :]]

    def check(self) -> None:
        """Raises: DriverFailed: the leader is gone, or its job, though nobody told them to."""
        if not self.leader.is_alive:
            raise DriverFailed("the driver has ended", self.leader)
        for what in self._said():
            if _NEVER & set(what):
                raise DriverFailed(f"the job ended: {what}", self.leader)

    def expect_finished(self) -> None:
        """Raises: DriverFailed."""
        self.expect(self.leader, "finished")

    def stop_with_savepoint(self) -> str:
        """And wait until nothing of the job is left. Raises: DriverFailed."""
        self.leader.tell({"stop": True})
        answer = self.expect(self.leader, "savepoint")
        self.expect_finished()
        return str(answer["savepoint"])

    def rescale(self, most: int) -> int | None:
        """Ask for so many subtasks of each vertex of the running job. Returns: how many it has; None: as many. Raises: DriverFailed."""
        since = len(self.leader.lines)
        self.leader.tell({"rescale": most})
        before = int(self.expect(self.leader, "rescales", since=since)["before"])
        return None if before == most else before

    def expect_generation(self, most: int, moment: float) -> None:
        """The job has so many subtasks of each vertex, since that moment or later. Raises: DriverFailed."""

        def is_there(what: dict[str, Any]) -> bool:
            return what.get("generation") == most or bool(_NEVER & set(what))

        since = sum(at <= moment for at, _ in list(self.leader.lines))
        told = self.leader.wait_for(is_there, since, self._limit_s)
        if told is None or "generation" not in told:
            raise DriverFailed(f"the job should have {most} subtasks, got {told}", self.leader)

    def submit(self, **changed: Any) -> None:
        """The next job of the leader's process, whose last one has ended. Raises: DriverFailed."""
        self.submission = replace(self.submission, **changed)
        self._submit(self.submission)
        self.expect_running()

    def refusal(self, **changed: Any) -> str:
        """Why a job that must not run did not. Raises: DriverFailed: it did, or nothing was said."""
        self._submit(replace(self.submission, **changed))
        answer = self.expect(self.leader, "failed", never=_FINISHED)
        return str(answer["failed"])

    def _submit(self, submission: Submission) -> None:
        self._since[self.leader] = len(self.leader.lines)
        self.leader.tell(submission.command())

    def expect(
        self,
        child: Child,
        wanted: str,
        never: frozenset[str] = _NEVER,
        since: int | None = None,
    ) -> dict[str, Any]:
        """Of its last job, or behind its first `since` lines. Raises: DriverFailed."""
        either, since = {wanted, *never}, self._since[child] if since is None else since
        answer: dict[str, Any] | None = child.wait_for(
            lambda what: bool(either & set(what)), since, self._limit_s
        )
        if answer is None and child.is_alive:
            child.show_stacks()
        if answer is None or wanted not in answer:
            raise DriverFailed(f"a driver should say '{wanted}', got {answer}", child)
        return answer
