"""What is done to a run: each fault a function that does it, waits until it is done, and says what it was.

None: there was nothing to do it to just now. What a fault costs is the controller's to find out.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import psutil

from audit import clocks, processes, wire
from audit.disks import Disks
from audit.drivers import DriverFailed, Drivers

LEASE_S: Final = 4.0
"""Of the driver that leads; who is away for longer may find another one in its place."""
HEARTBEAT_TIMEOUT_S: Final = 3.0
"""Of Penstock on Spark: a TaskManager that nobody has heard for so long is lost."""
DECOMMISSION_S: Final = 3
"""What is decommissioned and still at work is killed by Spark after so long."""
_SETTLES_S: Final = 1.0
_LINKS_TRIED: Final = 6
_JUMPS_S: Final = (-86_400.0, -3600.0, -30.0, 30.0, 3600.0, 86_400.0)


class Run(Protocol):
    """What a fault may use. `mark`: of the run's processes. `parallelisms`: what the job may be rescaled to.
    `mark_start`: the fault begins now, not before. `clocks`: the folder of `audit.clocks`.
    """

    mark: str
    clocks: Path
    disks: Disks
    chance: random.Random
    parallelisms: tuple[int, ...]
    drivers: Drivers

    def draws_unaligned(self) -> bool: ...
    def draws_tcp(self) -> bool: ...
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


@fault_of_one(processes.executors)
def decommission_executor(victim: psutil.Process, _chance: random.Random) -> str:
    """As a cluster does that wants its machine back. Spark gives the executor no more tasks, and
    kills it when it is not done.
    """
    victim.send_signal(signal.SIGPWR)
    psutil.wait_procs([victim], timeout=4.0 * DECOMMISSION_S)
    return ", and it ended" if not victim.is_running() else ", and it stayed"


@fault
def freeze_supervisor(run: Run) -> str | None:
    """The TaskManager is heard all the time, so nobody may end it."""
    found = sorted(processes.supervisors(run.mark), key=lambda process: process.pid)
    if not found:
        return None
    victim = run.chance.choice(found)
    theirs = [one for one in processes.taskmanagers(run.mark) if one.ppid() == victim.pid]
    seconds = HEARTBEAT_TIMEOUT_S + run.chance.uniform(1.0, 3.0)
    since = time.monotonic()
    processes.freeze(victim, seconds).join()
    time.sleep(_SETTLES_S)  # It sees how late it is: that is not the driver's silence.
    lost = run.drivers.lost_since(since)
    ended = [one.pid for one in theirs if not processes.is_alive(one)]
    if lost or ended:
        text = (
            f"supervisor {victim.pid} stood still for {seconds:.1f} s while its TaskManager was "
            f"heard, and the job lost {lost or ended}"
        )
        raise DriverFailed(text, run.drivers.leader)
    pids = ", ".join(str(one.pid) for one in theirs)
    return f"of process {pids} for {seconds:.1f} s: nothing was lost"


# ------------------------------------------------------------------ bytes on the wire


@fault
def flip_bytes(run: Run) -> str | None:
    return _on_the_wire(run, wire.Damage.FLIP)


@fault
def drop_bytes(run: Run) -> str | None:
    return _on_the_wire(run, wire.Damage.DROP)


@fault
def repeat_bytes(run: Run) -> str | None:
    return _on_the_wire(run, wire.Damage.REPEAT)


@fault
def truncate_bytes(run: Run) -> str | None:
    return _on_the_wire(run, wire.Damage.TRUNCATE)


def _on_the_wire(run: Run, damage: wire.Damage) -> str | None:
    """Of the control or of the data connections, whichever is drawn, where there are both."""
    found = wire.links(run.mark)
    run.chance.shuffle(found)
    first = run.chance.choice(("control", "data"))
    found.sort(key=lambda link: link.carries != first)
    for link in found[:_LINKS_TRIED]:
        run.mark_start()
        done = wire.harm(link, damage, run.chance)
        if done is not None:
            return done
    return None


# ------------------------------------------------------------------ what a machine lacks


@fault
def fill_disk(run: Run) -> str | None:
    """Of checkpoints, of the sink's files or of what tasks write for a while: ENOSPC."""
    if not run.disks.names:
        return None
    name = run.chance.choice(run.disks.names)
    seconds = run.chance.uniform(2.0, 5.0)
    since = time.monotonic()
    try:
        run.disks.fill(name)
        time.sleep(seconds)
    except OSError:
        return None  # Whoever writes there was faster all the time.
    finally:
        run.disks.empty(name)
    seen = run.drivers.heard_since(since, "No space left on device")
    told = f"the driver told {seen} times that no space was left"
    return f"{name} for {seconds:.1f} s: {told}{_how(run)}"


@fault
def exhaust_descriptors(run: Run) -> str | None:
    """EMFILE for whatever a TaskManager or a driver opens."""
    found = processes.taskmanagers(run.mark) + processes.drivers(run.mark)
    if not found:
        return None
    victim = run.chance.choice(sorted(found, key=lambda process: process.pid))
    seconds = run.chance.uniform(0.5, 4.0)
    timer = processes.starve_of_descriptors(victim, seconds)
    if timer is None:
        return None
    timer.join()
    return f"of process {victim.pid} for {seconds:.1f} s"


@fault
def jump_clock(run: Run) -> str | None:
    """The wall clock of a TaskManager or of a driver, as `audit.clocks` can: from now on, or for a while."""
    found = processes.taskmanagers(run.mark) + processes.drivers(run.mark)
    found = [one for one in found if clocks.has_clock(run.clocks, one.pid)]
    if not found:
        return None
    victim = run.chance.choice(sorted(found, key=lambda process: process.pid))
    seconds = run.chance.choice(_JUMPS_S)
    wrong_by = clocks.jump(run.clocks, victim.pid, seconds)
    text = f"process {victim.pid} by {seconds:+,.0f} s, {wrong_by:+,.0f} s from the true time"
    if run.chance.random() < 0.5:
        return text
    time.sleep(run.chance.uniform(0.5, 3.0))
    clocks.jump(run.clocks, victim.pid, -seconds)
    return f"{text}, and back"


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
    submission = run.drivers.submission
    text = ", unaligned checkpoints" if submission.unaligned else ""
    return f"{text}, over TCP" if submission.tcp else text


def _drawn(run: Run) -> dict[str, bool]:
    """What differs from one job to the next."""
    return {"unaligned": run.draws_unaligned(), "tcp": run.draws_tcp()}


@fault
def kill_jvm(run: Run) -> str | None:
    """Of the leader, whose Python process is left without Spark. It has to see that; then another driver is started."""
    how = _how(run)
    former = run.drivers.leader
    found = [one for one in processes.driver_jvms(run.mark) if one.ppid() == former.process.pid]
    if not found:
        return None
    for one in found:
        processes.kill(one)
    told = run.drivers.expect_end(former)
    former.end()
    run.drivers.begin()
    return f"process {found[0].pid}; the driver said {told}, and another one was started{how}"


# ------------------------------------------------------------------ savepoints


@fault
def rescale(run: Run) -> str:
    """Stopped with a savepoint, begun again with another parallelism, and other checkpoints perhaps."""
    before = run.drivers.submission.parallelism
    path = run.drivers.stop_with_savepoint()
    others = [one for one in run.parallelisms if one != before]
    after = run.chance.choice(others or [before])
    run.drivers.submit(savepoint=path, parallelism=after, **_drawn(run))
    return f"from {before} to {after}{_how(run)}"


@fault
def rescale_running(run: Run) -> str | None:
    """The job goes on with other numbers of subtasks, from where it stands."""
    asked = _asked_to_rescale(run)
    if asked is None:
        return None
    before, after, moment = asked
    run.drivers.expect_generation(after, moment)
    return f"from {before} to {after} in {time.monotonic() - moment:.1f} s{_how(run)}"


@fault
def rescale_and_kill(run: Run) -> str | None:
    """A TaskManager is killed at any moment of a rescale."""
    asked = _asked_to_rescale(run)
    if asked is None:
        return None
    before, after, moment = asked
    time.sleep(run.chance.uniform(0.0, 2.0))
    found = sorted(processes.taskmanagers(run.mark), key=lambda process: process.pid)
    killed = "none"
    if found:
        victim = run.chance.choice(found)
        run.mark_start()
        processes.kill(victim)
        killed = str(victim.pid)
    run.drivers.expect_generation(after, moment)
    return f"from {before} to {after}, and killed process {killed}{_how(run)}"


def _asked_to_rescale(run: Run) -> tuple[int, int, float] | None:
    """Returns: parallelism before, the one that is asked for, and when. None: the job has it."""
    after = run.chance.choice(run.parallelisms)
    moment = time.monotonic()
    before = run.drivers.rescale(after)
    return None if before is None else (before, after, moment)


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
    run.drivers.submit(savepoint=path, **_drawn(run))
    return f"byte {place} of {victim.name}: refused, and put right"


def flip(path: Path, place: int) -> None:
    """All bits of one byte."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


_CARDS: Final = {
    "kill_taskmanager": 4, "kill_executor": 2, "freeze_taskmanager": 2, "cut_connections": 3,
    "fail_writes": 2, "freeze_driver": 2, "kill_driver": 1, "kill_leader": 1, "freeze_leader": 1,
    "rescale": 2, "rescale_running": 2, "rescale_and_kill": 2, "damage": 1, "flip_bytes": 1,
    "drop_bytes": 1, "repeat_bytes": 1,
    "truncate_bytes": 1, "fill_disk": 2, "exhaust_descriptors": 2, "jump_clock": 1,
    "freeze_supervisor": 1, "kill_jvm": 1, "decommission_executor": 1,
}  # fmt: skip
DECK: Final = tuple(kind for kind, count in _CARDS.items() for _ in range(count))
