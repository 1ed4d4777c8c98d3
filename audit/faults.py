"""What is done to a run: each fault a function that does it, waits until it is done, and says what it was.

None: there was nothing to do it to just now. What a fault costs is the controller's to find out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import psutil

from audit import processes
from audit.drivers import DriverFailed, Drivers

LEASE_S: Final = 4.0
"""Of the driver that leads; who is away for longer may find another one in its place."""


class Run(Protocol):
    """What a fault may use. `mark`: of the run's processes. `parallelisms`: what the job may be rescaled to.
    `mark_start`: the fault begins now, not before.
    """

    mark: str
    chance: random.Random
    parallelisms: tuple[int, ...]
    drivers: Drivers

    def draws_unaligned(self) -> bool: ...
    def mark_start(self) -> None: ...


Fault = Callable[[Run], str | None]
FAULTS: Final[dict[str, Fault]] = {}


def fault(carry_out: Fault) -> Fault:
    FAULTS[carry_out.__name__] = carry_out
    return carry_out


def fault_of_one(
    find: Callable[[str], list[psutil.Process]],
) -> Callable[[Callable[[psutil.Process, random.Random], str | None]], Fault]:
    """A fault of a process that is drawn among those found by the run's mark. What it says stands behind the process."""

    def wrap(carry_out: Callable[[psutil.Process, random.Random], str | None]) -> Fault:
        def on_one(run: Run) -> str | None:
            found = sorted(find(run.mark), key=lambda process: process.pid)
            if not found:
                return None
            victim = run.chance.choice(found)
            done = carry_out(victim, run.chance)
            return None if done is None else f"process {victim.pid}{done}"

        on_one.__name__ = carry_out.__name__
        return fault(on_one)

    return wrap


# ------------------------------------------------------------------ TaskManagers and executors


@fault_of_one(processes.taskmanagers)
def kill_taskmanager(victim: psutil.Process, _chance: random.Random) -> str:
    processes.kill(victim)
    return ""


@fault_of_one(processes.executors)
def kill_executor(victim: psutil.Process, _chance: random.Random) -> str:
    processes.kill(victim)
    return ""


@fault_of_one(processes.taskmanagers)
def freeze_taskmanager(victim: psutil.Process, chance: random.Random) -> str:
    seconds = chance.uniform(0.5, 6.0)
    processes.freeze(victim, seconds).join()
    return f" for {seconds:.1f} s"


@fault_of_one(processes.taskmanagers)
def cut_connections(victim: psutil.Process, chance: random.Random) -> str | None:
    choose = [chance.random() for _ in range(8)]
    cut = processes.cut_connections(victim, 0.5, choose)
    return f", {cut} connections" if cut else None


@fault_of_one(processes.taskmanagers)
def fail_writes(victim: psutil.Process, chance: random.Random) -> str:
    seconds = chance.uniform(0.5, 2.5)
    processes.fail_writes(victim, seconds).join()
    return f" for {seconds:.1f} s"


# ------------------------------------------------------------------ drivers


@fault
def freeze_driver(run: Run) -> str:
    """Nobody takes its place: it goes on."""
    seconds = run.chance.uniform(0.5, LEASE_S + 2.0)
    processes.freeze(psutil.Process(run.drivers.leader.process.pid), seconds).join()
    return f"for {seconds:.1f} s{_how(run)}"


@fault
def kill_driver(run: Run) -> str:
    """Another one is started then, and waits until the dead one's lease is over."""
    how = _how(run)
    run.drivers.kill_leader()
    run.drivers.begin()
    return f"and started another one{how}"


@fault
def kill_leader(run: Run) -> str:
    """Another driver waits beside it already."""
    how = _how(run)
    standby = run.drivers.standby()
    run.mark_start()
    run.drivers.kill_leader()
    run.drivers.promote(standby)
    return f"beside a standby{how}"


@fault
def freeze_leader(run: Run) -> str:
    """A standby takes its place; when it goes on it has to see that, and let the job be."""
    how = _how(run)
    standby = run.drivers.standby()
    former = run.drivers.leader
    run.mark_start()
    seconds = LEASE_S + run.chance.uniform(2.0, 4.0)
    frozen = processes.freeze(psutil.Process(former.process.pid), seconds)
    run.drivers.promote(standby)
    frozen.join()
    run.drivers.expect_suspended(former)
    processes.kill(psutil.Process(former.process.pid))
    former.end()
    return f"for {seconds:.1f} s beside a standby{how}"


def _how(run: Run) -> str:
    return ", unaligned checkpoints" if run.drivers.submission.unaligned else ""


# ------------------------------------------------------------------ savepoints


@fault
def rescale(run: Run) -> str:
    """Stopped with a savepoint, begun again with another parallelism, and other checkpoints perhaps."""
    before = run.drivers.submission.parallelism
    path = run.drivers.stop_with_savepoint()
    others = [one for one in run.parallelisms if one != before]
    after = run.chance.choice(others or [before])
    run.drivers.submit(savepoint=path, parallelism=after, unaligned=run.draws_unaligned())
    return f"from {before} to {after}{_how(run)}"


@fault
def damage(run: Run) -> str:
    """A byte of a savepoint is flipped: nobody may start from it, and whoever tries is told which file it is."""
    path = run.drivers.stop_with_savepoint()
    root = Path(path.removeprefix("file://"))
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.stat().st_size)
    victim = run.chance.choice(files)
    place = run.chance.randrange(victim.stat().st_size)
    flip(victim, place)
    refusal = run.drivers.refusal(savepoint=path)
    if victim.name not in refusal:
        text = (
            f"byte {place} of {victim} was flipped, and it is not what the refusal names: {refusal}"
        )
        raise DriverFailed(text, run.drivers.leader)
    flip(victim, place)
    run.drivers.submit(savepoint=path, unaligned=run.draws_unaligned())
    return f"byte {place} of {victim.name}: refused, and put right"


def flip(path: Path, place: int) -> None:
    """All bits of one byte."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


DECK: Final = (
    *["kill_taskmanager"] * 4, *["kill_executor"] * 2, *["freeze_taskmanager"] * 2, *["cut_connections"] * 3,
    *["fail_writes"] * 2, *["freeze_driver"] * 2, "kill_driver", "kill_leader", "freeze_leader", *["rescale"] * 2, "damage",
)  # fmt: skip
