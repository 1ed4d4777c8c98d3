"""check_sink: a sink's job is stopped between any two steps, restored, committed twice and aborted.

Source: Flink SinkTestSuiteBase; differs: no cluster, every step instead of one, and it says what was seen instead of
only pass or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from penstock.connectors.api.base import Sink
from penstock.engine.model.errors import CancelSignal
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.testing.conformance.report import Conformance, distinct, spread
from penstock.testing.conformance.sink_run import (
    KeptSink,
    SinkRun,
    commit,
    committables_of,
    committer_of,
    kept_sink,
)

Look: TypeAlias = Callable[[], Iterable[Any]]
Made: TypeAlias = tuple[Sink, Look] | tuple[Sink, Look, Look]
_CHECKPOINTS: Final = 3
_JOB: Final = "job-1."
_OTHER_JOB: Final = "job-2."
_RECORDS: Final = tuple(f"record {number}" for number in range(24))


def check_sink(
    make: Callable[[], Made],
    records: Sequence[Any] = _RECORDS,
    *,
    parallelisms: Sequence[int] = (1, 2),
    most_points: int = 30,
    input_type: Any = None,
    by_key: bool = False,
) -> Conformance:
    """Find out what a sink guarantees after failures. Not in PyFlink.

    Args:
        make: returns a sink whose target is empty, and a function that returns the records that are visible there. A third one, if
            there is one, returns what is there and not visible, such as names of hidden files: `abort` has to remove it.
        records: what is written, each different from the others; 24 texts by default.
        parallelisms: of the writers, each restored at itself and at the next one.
        most_points: after about how many steps the job is stopped, 2 or more; by default after all of them. The moment in
            which a checkpoint is prepared and not complete is always among them.
        input_type: the TypeInformation of the records; None: not declared.
        by_key: the target keeps one of equal records, because they have the same key.

    Returns: the report; `report.require(DeliveryGuarantee.EXACTLY_ONCE)` makes a test of it.
    """
    report = Conformance(type(make()[0]).__name__)
    for number, parallelism in enumerate(parallelisms):
        other = parallelisms[(number + 1) % len(parallelisms)]
        plan = _Plan(make, list(records), parallelism, input_type, report, by_key)
        plan.run_through()
        plan.without_checkpoints()
        plan.committed_twice()
        plan.aborted_with_another()
        steps = len(plan.steps())
        for point in sorted({*spread(steps, most_points), plan.prepared()}):
            for restored in dict.fromkeys((parallelism, other)):
                plan.restored(point, restored, is_closed=True)
            plan.restored(point, parallelism, is_closed=False)
            plan.aborted(point)
    return report


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of a job. `what`: write, finish, prepare, complete or notify. `subtask` -1: all of them."""

    what: str
    subtask: int
    number: int

    def __str__(self) -> str:
        at = "" if self.subtask < 0 else f" of subtask {self.subtask}"
        return f"'{self.what} {self.number}'{at}"


class _Progress:
    """How far a job has come. `covered`: how many checkpoints are complete."""

    def __init__(self) -> None:
        self.parts: list[dict[str, tuple[bytes, ...]]] = []
        self.kept: KeptSink | None = None
        self.covered = 0


class _Case:
    """One target. `expected`: what has to be visible there at the end. `early`: what was visible too early."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self.expected = plan.records
        self.early: list[Any] = []

    @cached_property
    def made(self) -> Made:
        """What the test has made, checked as at submit."""
        made = self._plan.make()
        made[0].validate()
        made[0].validate_input(self._plan.input_type)
        return made

    @property
    def sink(self) -> Sink:
        return self.made[0]

    def read(self) -> Iterable[Any]:
        return self.made[1]()


@dataclass(slots=True)
class _Plan:
    """Each method is a scenario, with a target of its own. Piece n of the records is written before checkpoint n."""

    make: Callable[[], Made]
    records: list[Any]
    parallelism: int
    input_type: Any
    report: Conformance
    by_key: bool

    def piece(self, number: int) -> list[Any]:
        return self.records[number - 1 :: _CHECKPOINTS]

    def pieces(self, numbers: Iterable[int]) -> list[Any]:
        return [record for number in numbers for record in self.piece(number)]

    def steps(self) -> list[_Step]:
        """Subtasks prepare one after the other, and hear of the complete checkpoint one after the other."""
        made = []
        subtasks = range(self.parallelism)
        for number in range(1, _CHECKPOINTS + 1):
            made += [_Step("write", subtask, number) for subtask in subtasks]
            if number == _CHECKPOINTS:
                made += [_Step("finish", subtask, number) for subtask in subtasks]
            made += [_Step("prepare", subtask, number) for subtask in subtasks]
            made.append(_Step("complete", -1, number))
            made += [_Step("notify", subtask, number) for subtask in subtasks]
        return made

    def prepared(self) -> int:
        """How many steps there are until all subtasks have prepared the first checkpoint."""
        return 1 + max(
            at for at, one in enumerate(self.steps()) if (one.what, one.number) == ("prepare", 1)
        )

    def run_through(self) -> None:
        """To the end without a failure. What is visible is looked at after every step."""
        with self._noted(f"to the end at parallelism {self.parallelism}") as case:
            has_committer = committer_of(case.sink) is not None
            progress, early = _Progress(), case.early
            with closing(self._begin(case.sink, self.parallelism, 0, None)) as run:
                for step in self.steps():
                    self._do(run, step, progress)
                    uncovered = self.pieces(range(progress.covered + 1, _CHECKPOINTS + 1))
                    if has_committer and uncovered:
                        early += [
                            one for one in case.read() if one in uncovered and one not in early
                        ]

    def without_checkpoints(self) -> None:
        """The first attempt fails, the second one's output is committed by the driver at the end."""
        title = f"a job without checkpoints at parallelism {self.parallelism}, begun twice"
        with self._noted(title, leaves_nothing=True) as case:
            sink, committer = case.sink, committer_of(case.sink)
            for attempt in range(2):
                run = SinkRun(
                    sink, self.parallelism, _JOB, attempt,
                    input_type=self.input_type, takes_checkpoints=False,
                )  # fmt: skip
                with closing(run):
                    for subtask in range(self.parallelism):
                        run.write(subtask, self.records[subtask :: self.parallelism])
                    if attempt:
                        for subtask in range(self.parallelism):
                            run.finish(subtask)
                if committer is not None and not attempt:
                    committer.abort(_JOB)
            if committer is not None:
                commit(committer, run.reported)
                committer.abort(_JOB)
                committer.close()

    def committed_twice(self) -> None:
        """Every checkpoint's committables are committed again, by another committer, after all others."""
        with self._noted(f"committed twice at parallelism {self.parallelism}") as case:
            sink, progress = case.sink, _Progress()
            kept: list[KeptSink] = []
            with closing(self._begin(sink, self.parallelism, 0, None)) as run:
                for step in self.steps():
                    self._do(run, step, progress)
                    if step.what == "complete" and progress.kept is not None:
                        kept.append(progress.kept)
            for one in kept:
                committer = committer_of(sink)
                if committer is not None:
                    commit(committer, committables_of(one))
                    committer.close()

    def restored(self, point: int, parallelism: int, *, is_closed: bool) -> None:
        """Stop the job after `point` steps, and continue from its last complete checkpoint to the end."""
        how = "closed" if is_closed else "left alone"
        title = (
            f"{how} at parallelism {self.parallelism} {self._after(point)}, restored at "
            f"parallelism {parallelism}"
        )
        with self._noted(title) as case:
            sink, progress = case.sink, _Progress()
            with closing(self._begin(sink, self.parallelism, 0, None)) as first:
                for step in self.steps()[:point]:
                    self._do(first, step, progress)
                if is_closed:
                    first.close()
                with closing(self._begin(sink, parallelism, 1, progress.kept)) as second:
                    self._to_the_end(second, parallelism, progress.covered)

    def aborted(self, point: int) -> None:
        """Stop the job after `point` steps for good; another job then writes everything."""
        title = f"aborted at parallelism {self.parallelism} {self._after(point)}, and another job"
        with self._noted(title) as case:
            sink, progress = case.sink, _Progress()
            run = self._begin(sink, self.parallelism, 0, None)
            committer = committer_of(sink)
            if committer is None:
                run.close()
                case.expected = []
                return
            notified: set[int] = set()
            with closing(run):
                for step in self.steps()[:point]:
                    self._do(run, step, progress)
                    if step.what == "notify":
                        notified.add(step.number)
            committer.abort(_JOB)
            committer.close()
            visible = list(case.read())
            case.early = early = [
                one for one in visible if one in self.pieces(_later(progress.covered))
            ]
            # Whether those of a checkpoint that not all subtasks have heard of are committed is open.
            done = [one for one in visible if one not in early]
            with closing(self._begin(sink, self.parallelism, 0, None, _OTHER_JOB)) as other:
                self._to_the_end(other, self.parallelism, 0)
            heard = self.pieces(number for number in notified if number < max(notified, default=0))
            missing = [one for one in heard if one not in done]
            case.expected = [*done, *missing, *self.records]

    def aborted_with_another(self) -> None:
        """Two jobs have the same target. One has prepared a checkpoint and is aborted, and the other one continues."""
        title = (
            f"aborted at parallelism {self.parallelism} together with another job that continues"
        )
        with self._noted(title, leaves_nothing=True) as case:
            sink, committer = case.sink, committer_of(case.sink)
            if committer is None:
                case.expected = []
                return
            gone = self._begin(sink, self.parallelism, 0, None)
            other = self._begin(sink, self.parallelism, 0, None, _OTHER_JOB)
            progress = _Progress()
            with closing(gone), closing(other):
                for step in self.steps()[: self.prepared()]:
                    self._do(gone, step, _Progress())
                    self._do(other, step, progress)
                committer.abort(_JOB)
                committer.close()
                for step in self.steps()[self.prepared() :]:
                    self._do(other, step, progress)
            last = committer_of(sink)
            if last is not None:
                last.abort(_OTHER_JOB)
                last.close()

    def _after(self, point: int) -> str:
        return f"after step {self.steps()[point - 1]}" if point else "before the first step"

    def _begin(
        self, sink: Sink, parallelism: int, attempt: int, kept: KeptSink | None, job: str = _JOB
    ) -> SinkRun:
        return SinkRun(sink, parallelism, job, attempt, kept, input_type=self.input_type)

    def _do(self, run: SinkRun, step: _Step, progress: _Progress) -> None:
        if step.what == "write":
            run.write(step.subtask, self.piece(step.number)[step.subtask :: self.parallelism])
        elif step.what == "finish":
            run.finish(step.subtask)
        elif step.what == "prepare":
            progress.parts.append(run.prepare(step.subtask, step.number))
        elif step.what == "complete":
            progress.kept = kept_sink(step.number, progress.parts)
            progress.parts, progress.covered = [], step.number
        else:
            run.notify(step.subtask, step.number)

    def _to_the_end(self, run: SinkRun, parallelism: int, covered: int) -> None:
        """What no checkpoint covers comes again, and with it the last checkpoint."""
        subtasks = range(parallelism)
        rest = self.pieces(_later(covered))
        for subtask in subtasks:
            if rest[subtask::parallelism]:
                run.write(subtask, rest[subtask::parallelism])
            run.finish(subtask)
        for subtask in subtasks:
            run.prepare(subtask, _CHECKPOINTS + 1)
        for subtask in subtasks:
            run.notify(subtask, _CHECKPOINTS + 1)

    @contextmanager
    def _noted(self, scenario: str, *, leaves_nothing: bool = False) -> Generator[_Case]:
        """Note how a scenario ends. `leaves_nothing`: its jobs are over, and nothing of them may be restored."""
        case = _Case(self)
        try:
            yield case
            made, found = case.made, list(case.read())
            left = tuple(made[2]()) if leaves_nothing and len(made) == 3 else ()
        except CancelSignal:
            raise
        except Exception as error:
            # A connector may raise anything.
            self.report.fail(scenario, f"{type(error).__name__}: {bounded_str(error)}")
        else:
            expected = distinct(case.expected) if self.by_key else case.expected
            self.report.compare(scenario, expected, found, tuple(case.early), left)


def _later(covered: int) -> range:
    return range(covered + 1, _CHECKPOINTS + 1)
