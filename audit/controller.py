"""Runs the audited job on Spark and breaks what runs it, in an order that the seed decides. See `python -m audit --help`.

A deck of faults is shuffled and dealt, again and again, until the log is complete; after each fault the next one waits until
the auditor has seen what two new checkpoints made visible, and until it is due. Then the job has to finish, and the auditor has the last word.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from audit import clocks, processes
from audit.children import Child
from audit.disks import Disks
from audit.drivers import DriverFailed, Drivers, Submission
from audit.event_log import Plan
from audit.faults import DECK, FAULTS
from audit.job import create_tables
from audit.verdict import Minimum, Report

_POLL_S: Final = 0.1
_PAUSE_S: Final = (0.2, 2.0)
CHECKPOINTS: Final = {"aligned": 0.0, "unaligned": 1.0, "mixed": 0.5}
"""The share of jobs, one after each savepoint, that take unaligned checkpoints."""
DISKS: Final = ("checkpoints", "out", "tmp")
"""Folders of a run that can be full: of checkpoints, of the sink's files, and io.tmp.dirs."""
LINKS: Final = {"local": 0.0, "tcp": 1.0, "mixed": 0.5}
"""The share of jobs whose TaskManagers exchange data over TCP; others use Unix sockets, which no network can damage."""


class AuditFailed(Exception):
    """The text says what went wrong, and where to look."""


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long the log grows. `rate`: a records a second. `parallelisms`: the first one to begin with.

    `faults`: dealt from these, one every `every_s` seconds on the average, if the job is back by then. `checkpoints`: of
    `CHECKPOINTS`. `links`: of `LINKS`. `minimum`: of faults, below which nothing is shown; None: the usual one.
    """

    folder: Path
    seconds: float = 60.0
    seed: int = 1
    rate: int = 4000
    parallelisms: tuple[int, ...] = (2, 1, 3)
    interval_ms: int = 1000
    master: str = "local-cluster[2,2,1024]"
    url: str | None = None
    checkpoints: str = "mixed"
    links: str = "mixed"
    faults: tuple[str, ...] = DECK
    every_s: float = 6.0
    stall_s: float = 180.0
    minimum: Minimum | None = None


class Controller:
    """One run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = options.folder.resolve()
        self.plan = Plan(rate=options.rate, seed=options.seed)
        self.url = options.url or f"sqlite:///{self.folder}/output.db"
        self.mark = f"{os.getpid()}-{self.folder.name}"
        self.chance = random.Random(options.seed)
        self.parallelisms = options.parallelisms
        self.report = Report(
            minimum=options.minimum or Minimum.usual(options.seconds, options.faults)
        )
        self.drivers = Drivers(
            self._child,
            Submission(
                options.parallelisms[0],
                options.interval_ms,
                self.draws_unaligned(),
                self.draws_tcp(),
            ),
            options.master,
            options.stall_s,
        )
        self.auditor: Child
        self.disks: Disks
        self.clocks = self.folder / clocks.FOLDER
        self._children: list[Child] = []
        self._started = time.monotonic()
        self._fault_since = 0.0

    def run(self) -> Report:
        """Raises: AuditFailed."""
        self.folder.mkdir(parents=True)
        self.clocks.mkdir()
        self.disks = Disks(self.folder, DISKS)
        told = {"sources": self.plan.sources(), "url": self.url, "plan": asdict(self.plan)}
        (self.folder / "audit.json").write_text(json.dumps(told), encoding="utf-8")
        create_tables(self.url)
        self.auditor = self._child("auditor", "audit.auditor", "--follow")
        try:
            self.drivers.begin()
            generator = self._child(
                "generator", "audit.generator",
                "--rate", str(self.plan.rate), "--seed", str(self.plan.seed),
            )  # fmt: skip
            ends_at = time.monotonic() + self.options.seconds
            self._wait_for_output(0.0, "the start")
            began = time.monotonic()
            self._break_things(ends_at)
            self.report.dealt_s = time.monotonic() - began
            generator.end(self.options.stall_s)
            self._finish()
        except DriverFailed as error:
            self.fail(str(error), error.child)
        finally:
            self.report.seconds = time.monotonic() - self._started
            processes.end_all(self.mark)
            for child in self._children:
                child.end()
            self.disks.close()
        return self.report

    # ------------------------------------------------------------------ what faults use

    def draws_unaligned(self) -> bool:
        return self.chance.random() < CHECKPOINTS[self.options.checkpoints]

    def draws_tcp(self) -> bool:
        return self.chance.random() < LINKS[self.options.links]

    def mark_start(self) -> None:
        """The fault begins now: what came before was its preparation."""
        self._fault_since = time.monotonic()

    # ------------------------------------------------------------------ the run

    def _break_things(self, ends_at: float) -> None:
        deck: list[str] = []
        while time.monotonic() < ends_at:
            if not self.options.faults:
                self._wait_until(ends_at)
                return
            if not deck:
                deck = list(self.options.faults)
                self.chance.shuffle(deck)
            due = time.monotonic() + self.chance.uniform(0.5, 1.5) * self.options.every_s
            if self._carry_out(deck.pop()):
                least = time.monotonic() + self.chance.uniform(*_PAUSE_S)
                self._wait_until(min(ends_at, max(due, least)))
            else:  # what it is done to is just being started: another fault, soon
                time.sleep(_POLL_S)

    def _carry_out(self, kind: str) -> bool:
        """False: there was nothing to do it to."""
        self.mark_start()
        what = FAULTS[kind](self)
        if what is None:
            return False
        since = self._fault_since
        fault = {"kind": kind, "at_s": round(since - self._started, 1), "what": what}
        with (self.folder / "faults.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(fault) + "\n")
        again = self._wait_for_output(since, f"{kind} ({what})")
        fault["output_again_s"] = round(again - since, 2)
        self.report.faults.append(fault)
        print(json.dumps(fault), flush=True)
        return True

    def _finish(self) -> None:
        """What is behind is caught up. Raises: AuditFailed, DriverFailed."""
        while not self.drivers.has_finished:
            self._check()
            last = self.auditor.lines[-1][0]
            if time.monotonic() - last > self.options.stall_s:
                text = f"no output for {self.options.stall_s:.0f} s after the log was complete"
                self.fail(text, self.drivers.leader)
            time.sleep(_POLL_S)
        self.drivers.leader.end(self.options.stall_s)
        (self.folder / "finished").touch()
        status = self.auditor.end(self.options.stall_s)
        self.check_auditor()
        if status != 0:
            self.fail(f"the auditor ended with {status}", self.auditor)
        self.report.audited = self.auditor.lines[-1][1]

    # ------------------------------------------------------------------ what there is to see

    def _wait_until(self, moment: float) -> None:
        """Raises: AuditFailed, DriverFailed."""
        while time.monotonic() < moment:
            self._check()
            time.sleep(_POLL_S)

    def _wait_for_output(self, since: float, after: str) -> float:
        """Until the auditor has seen what two checkpoints made visible that were completed after `since`, and after the job
        was RUNNING again, if it was not. One could be complete before anybody has noticed a fault.

        Returns: when it saw the first. Raises: AuditFailed, DriverFailed.
        """
        deadline = time.monotonic() + self.options.stall_s
        while True:
            self._check()
            completed = self.drivers.completed_since(since)
            seen = [at for at, what in list(self.auditor.lines) if "log" in what]
            if len(completed) > 1 and seen and seen[-1] > completed[1]:
                return next(at for at in seen if at > completed[0])
            if time.monotonic() > deadline:
                text = f"no output for {self.options.stall_s:.0f} s after {after}"
                self.fail(text, self.drivers.leader)
            time.sleep(_POLL_S)

    def _check(self) -> None:
        """Raises: AuditFailed, DriverFailed."""
        self.check_auditor()
        self.drivers.check()

    def check_auditor(self) -> None:
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
        log = self.folder / f"{name}.log"
        child = Child(self.mark, log, module, str(self.folder), *arguments)
        self._children.append(child)
        return child
