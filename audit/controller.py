"""Runs the audited job on Spark and breaks what runs it, in an order that the seed decides. See `python -m audit --help`.

A deck of faults is shuffled and dealt, again and again, until the log is complete; after each fault the next one waits until
the auditor has seen new output twice. Then the job has to finish, and the auditor has the last word.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from audit import processes
from audit.children import Child
from audit.event_log import Plan
from audit.job import create_tables

DECK = (
    "kill_taskmanager", "kill_taskmanager", "kill_executor", "freeze_taskmanager", "freeze_driver",
    "cut_connections", "cut_connections", "fail_writes", "kill_driver", "rescale", "damage",
)  # fmt: skip


class AuditFailed(Exception):
    """The text says what went wrong, and where to look."""


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long the log grows. `rate`: a records a second. `faults`: dealt from these."""

    folder: Path
    seconds: float = 60.0
    seed: int = 1
    rate: int = 4000
    parallelism: int = 2
    interval_ms: int = 1000
    master: str = "local-cluster[2,2,1024]"
    url: str | None = None
    unaligned: bool = False
    faults: tuple[str, ...] = DECK
    stall_s: float = 180.0


@dataclass(slots=True)
class Report:
    """What happened. `output_again_s`: of each fault, seconds until there was output again."""

    faults: list[dict[str, Any]] = field(default_factory=list)
    audited: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def text(self) -> str:
        kinds = Counter(fault["kind"] for fault in self.faults)
        lines = [
            f"{sum(kinds.values())} faults: "
            + ", ".join(f"{n} {k}" for k, n in sorted(kinds.items()))
        ]
        for kind in sorted(kinds):
            waits = sorted(f["output_again_s"] for f in self.faults if f["kind"] == kind)
            lines.append(
                f"  {kind}: output again after {waits[len(waits) // 2]:.1f} s, at most {waits[-1]:.1f} s"
            )
        lines.append(f"audited: {json.dumps(self.audited)}")
        return "\n".join(lines)


class Controller:
    """One run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = options.folder.resolve()
        self.plan = Plan(rate=options.rate, seed=options.seed)
        self.url = options.url or f"sqlite:///{self.folder}/output.db"
        self.mark = f"{os.getpid()}-{self.folder.name}"
        self.chance = random.Random(options.seed)
        self.report = Report()
        self.parallelism = options.parallelism
        self.savepoint: str | None = None
        self.driver: Child
        self.auditor: Child
        self._drivers = 0
        self._started = time.monotonic()

    def run(self) -> Report:
        """Raises: AuditFailed."""
        self.folder.mkdir(parents=True)
        told = {"sources": self.plan.sources(), "url": self.url, "plan": asdict(self.plan)}
        (self.folder / "audit.json").write_text(json.dumps(told), encoding="utf-8")
        create_tables(self.url)
        self.auditor = self._child("auditor", "audit.auditor", str(self.folder), "--follow")
        try:
            self.start_driver()
            self.expect_running()
            generator = self._child(
                "generator", "audit.generator", str(self.folder),
                "--seconds", str(self.options.seconds), "--rate", str(self.plan.rate),
                "--seed", str(self.plan.seed),
            )  # fmt: skip
            self._wait_for_output(2, "the start")
            self._break_things(generator)
            generator.end(self.options.stall_s)
            self._finish()
        finally:
            self.report.seconds = time.monotonic() - self._started
            processes.end_all(self.mark)
        return self.report

    # ------------------------------------------------------------------ the job

    def start_driver(self) -> None:
        self._drivers += 1
        options = self.options
        arguments = [
            str(self.folder), "--parallelism", str(self.parallelism), "--master", options.master,
            "--interval-ms", str(options.interval_ms),
        ]  # fmt: skip
        if self.savepoint is not None:
            arguments += ["--savepoint", self.savepoint]
        if options.unaligned:
            arguments.append("--unaligned")
        self.driver = self._child(f"driver-{self._drivers}", "audit.driver", *arguments)

    def stop_with_savepoint(self) -> str:
        """Raises: AuditFailed."""
        self.expect_running()
        self.driver.tell("stop")
        answer = self.driver.wait_for(
            lambda what: "savepoint" in what or "savepoint_failed" in what, 0, self.options.stall_s
        )
        if answer is None or "savepoint" not in answer:
            self.fail(f"the job was not stopped with a savepoint: {answer}", self.driver)
        if self.driver.end(self.options.stall_s) != 0:
            self.fail("the driver did not end well after a savepoint", self.driver)
        return str(answer["savepoint"])

    def expect_running(self) -> None:
        if self.driver.wait_for(lambda what: "running" in what, 0, self.options.stall_s) is None:
            self.fail("the driver did not start the job", self.driver)

    def _finish(self) -> None:
        if (
            self.driver.wait_for(lambda what: "finished" in what, 0, 2 * self.options.stall_s)
            is None
        ):
            self.fail("the job did not finish after its log was complete", self.driver)
        self.driver.end(self.options.stall_s)
        (self.folder / "finished").touch()
        status = self.auditor.end(self.options.stall_s)
        self._check_auditor()
        if status != 0:
            self.fail(f"the auditor ended with {status}", self.auditor)
        self.report.audited = self.auditor.lines[-1][1]

    # ------------------------------------------------------------------ faults

    def _break_things(self, generator: Child) -> None:
        deck: list[str] = []
        while generator.is_alive:
            if not self.options.faults:
                generator.process.wait()
                return
            if not deck:
                deck = list(self.options.faults)
                self.chance.shuffle(deck)
            kind = deck.pop()
            started = time.monotonic()
            what = FAULTS[kind](self)
            if what is None:  # it is just being started: another fault, soon
                time.sleep(0.1)
                continue
            fault = {"kind": kind, "at_s": round(started - self._started, 1), "what": what}
            with (self.folder / "faults.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(fault) + "\n")
            self._wait_for_output(2, f"{kind} ({what})")
            fault["output_again_s"] = round(self._output_again(started) - started, 2)
            self.report.faults.append(fault)
            print(json.dumps(fault), flush=True)
            time.sleep(self.chance.uniform(0.2, 2.0))

    def _output_again(self, since: float) -> float:
        """When there was output, after the job was RUNNING again if it was not."""
        running = [
            at for at, what in self.driver.lines if at > since and what.get("status") == "RUNNING"
        ]
        seen = [
            at for at, what in self.auditor.lines if at > max([since, *running]) and "log" in what
        ]
        return seen[0] if seen else time.monotonic()

    def _wait_for_output(self, times: int, after: str) -> None:
        """Until the auditor has found something new so often. Raises: AuditFailed."""
        known = len(self.auditor.lines)
        deadline = time.monotonic() + self.options.stall_s
        while len(self.auditor.lines) < known + times:
            self._check_auditor()
            if not self.driver.is_alive:
                self.fail(f"the driver ended after {after}", self.driver)
            if time.monotonic() > deadline:
                self.fail(f"no output for {self.options.stall_s:.0f} s after {after}", self.driver)
            time.sleep(0.1)
        self._check_auditor()

    def _check_auditor(self) -> None:
        problems = [what["problem"] for _, what in list(self.auditor.lines) if "problem" in what]
        if problems:
            self.fail("the auditor found:\n  " + "\n  ".join(problems), self.auditor)
        if not self.auditor.is_alive and self.auditor.process.returncode != 0:
            self.fail("the auditor broke", self.auditor)

    def fail(self, text: str, child: Child) -> None:
        faults = [
            f"  {fault['at_s']} s {fault['kind']}: {fault['what']}" for fault in self.report.faults
        ]
        raise AuditFailed(
            f"seed {self.options.seed}, after {time.monotonic() - self._started:.0f} s: {text}\nfaults so far:\n"
            + "\n".join(faults)
            + f"\nend of {child.log}:\n{child.tail()}\nAll files are in {self.folder}."
        )

    def _child(self, name: str, module: str, *arguments: str) -> Child:
        return Child(self.mark, self.folder / f"{name}.log", module, *arguments)

    def one_of(self, found: list[psutil.Process]) -> psutil.Process | None:
        found.sort(key=lambda process: process.pid)
        return self.chance.choice(found) if found else None


# ------------------------------------------------------------------ what a fault does; None: there was nothing to do it to


def _kill_taskmanager(run: Controller) -> str | None:
    victim = run.one_of(processes.taskmanagers(run.mark))
    if victim is None:
        return None
    processes.kill(victim)
    return f"process {victim.pid}"


def _kill_executor(run: Controller) -> str | None:
    victim = run.one_of(processes.executors(run.mark))
    if victim is None:
        return None
    processes.kill(victim)
    return f"process {victim.pid}"


def _freeze_taskmanager(run: Controller) -> str | None:
    victim = run.one_of(processes.taskmanagers(run.mark))
    if victim is None:
        return None
    seconds = run.chance.uniform(0.5, 6.0)
    processes.freeze(victim, seconds).join()
    return f"process {victim.pid} for {seconds:.1f} s"


def _freeze_driver(run: Controller) -> str:
    seconds = run.chance.uniform(0.5, 6.0)
    processes.freeze(psutil.Process(run.driver.process.pid), seconds).join()
    return f"for {seconds:.1f} s"


def _cut_connections(run: Controller) -> str | None:
    victim = run.one_of(processes.taskmanagers(run.mark))
    if victim is None:
        return None
    choose = [run.chance.random() for _ in range(8)]
    return f"{processes.cut_connections(victim, 0.5, choose)} of process {victim.pid}"


def _fail_writes(run: Controller) -> str | None:
    victim = run.one_of(processes.taskmanagers(run.mark))
    if victim is None:
        return None
    seconds = run.chance.uniform(0.5, 2.5)
    processes.fail_writes(victim, seconds).join()
    return f"process {victim.pid} for {seconds:.1f} s"


def _kill_driver(run: Controller) -> str:
    """Another driver takes the job over: it waits until the dead one's lease is over."""
    run.expect_running()
    run.driver.process.kill()
    run.driver.end()
    run.start_driver()
    return "and started another one"


def _rescale(run: Controller) -> str:
    run.savepoint = run.stop_with_savepoint()
    before = run.parallelism
    run.parallelism = run.chance.choice([one for one in (1, 2, 3) if one != before])
    run.start_driver()
    return f"from {before} to {run.parallelism}"


def _damage(run: Controller) -> str:
    """A byte of a savepoint is flipped: nobody may start from it, and whoever tries is told which file it is."""
    run.savepoint = run.stop_with_savepoint()
    root = Path(run.savepoint.removeprefix("file://"))
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    victim = run.chance.choice(files)
    place = run.chance.randrange(victim.stat().st_size)
    flip(victim, place)
    run.start_driver()
    status = run.driver.end(run.options.stall_s)
    if status == 0 or victim.name not in run.driver.log.read_text(errors="replace"):
        run.fail(
            f"byte {place} of {victim} was flipped, and a driver that should start from there ended with {status} "
            "without naming the file",
            run.driver,
        )
    flip(victim, place)
    run.start_driver()
    return f"byte {place} of {victim.name}: refused, and put right"


def flip(path: Path, place: int) -> None:
    """All bits of one byte."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


FAULTS: dict[str, Callable[[Controller], str | None]] = {
    "kill_taskmanager": _kill_taskmanager,
    "kill_executor": _kill_executor,
    "freeze_taskmanager": _freeze_taskmanager,
    "freeze_driver": _freeze_driver,
    "cut_connections": _cut_connections,
    "fail_writes": _fail_writes,
    "kill_driver": _kill_driver,
    "rescale": _rescale,
    "damage": _damage,
}
