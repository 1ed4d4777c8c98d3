"""Reads the log and what is committed, and says what is wrong: `python -m audit.auditor DIRECTORY --follow`.

A process of its own that shares no code with Penstock. It looks at committed output only: finished files, and rows
that the database shows. While it follows, it writes a line of JSON after each look that found something new; it ends with 1 at the
first problem, and with 0 when `finished` is there and everything is right and complete.

DIRECTORY/audit.json: {"sources": [...], "url": "..."}; DIRECTORY/log, DIRECTORY/out/<name>; DIRECTORY/finished is made when
the job has ended by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from audit.checks import CHAIN, MILESTONES, PAIRS, SLOTS, Problem, all_checks
from audit.expected import Log
from audit.outputs import Files, Output, Table

TABLES = {"windows": SLOTS, "pairs": PAIRS, "milestones": MILESTONES}
FILES = {"chain": CHAIN, "timers": SLOTS}


class Auditor:
    """Everything of one run."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        told = json.loads((self.folder / "audit.json").read_text(encoding="utf-8"))
        self.log = Log(folder, told["sources"])
        self.checks = all_checks(self.log)
        self.files = {
            name: Files(self.folder / "out" / name, columns) for name, columns in FILES.items()
        }
        self.outputs: dict[str, Output] = {
            **self.files,
            **{name: Table(told["url"], name, columns) for name, columns in TABLES.items()},
        }

    def look(self) -> int:
        """At what is new. Returns: how many rows that was."""
        # The log last: what a row was made of was in the log before the row was there.
        found = {name: output.read_on() for name, output in self.outputs.items()}
        self.log.read_on()
        new = 0
        for name, rows in found.items():
            count = len(next(iter(rows.values())))
            if count:
                self.checks[name].add(rows)
                new += count
        return new

    def finish(self) -> None:
        """The job has ended by itself: is everything there?"""
        self.look()
        for check in self.checks.values():
            check.finish()
        if not self.log.is_complete:
            text = "the job finished before the log was complete"
            self.checks["chain"].problems.append(Problem("log", "lost", text))

    @property
    def problems(self) -> list[Problem]:
        return [problem for check in self.checks.values() for problem in check.problems]

    def status(self) -> dict[str, Any]:
        return {
            "log": self.log.size,
            "rows": {name: check.rows for name, check in self.checks.items()},
            "parts": {name: files.parts for name, files in self.files.items()},
        }


def audit(folder: str) -> list[Problem]:
    """Of a job that has ended by itself."""
    auditor = Auditor(folder)
    auditor.finish()
    return auditor.problems


def follow(folder: str, every_s: float) -> int:
    """Looks again and again until the job has finished or something is wrong. Returns: the exit status."""
    auditor = Auditor(folder)
    while True:
        is_finished = (auditor.folder / "finished").exists()
        started = time.monotonic()
        new = auditor.look()
        if is_finished:
            auditor.finish()
        for problem in auditor.problems:
            print(json.dumps({"problem": str(problem)}), flush=True)
        if new or is_finished:
            took = round(time.monotonic() - started, 3)
            print(json.dumps({**auditor.status(), "new": new, "took_s": took}), flush=True)
        if is_finished or auditor.problems:
            return 1 if auditor.problems else 0
        time.sleep(every_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument(
        "--follow", action="store_true", help="while the job runs, until DIRECTORY/finished"
    )
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two looks")
    args = parser.parse_args()
    if args.follow:
        status = follow(args.folder, args.every)
    else:
        problems = audit(args.folder)
        for problem in problems:
            print(problem)
        status = 1 if problems else 0
    engine = sorted(name for name in sys.modules if name.split(".")[0] in {"penstock", "pyspark"})
    if engine:
        print(f"the auditor must share no code with the engine, but has {engine}")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
