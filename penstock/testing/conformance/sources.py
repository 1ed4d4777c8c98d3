"""check_source: a source is stopped after every batch, given back, and restored at another parallelism.

Source: Flink SourceTestSuiteBase (testSourceSingleSplit, testSavepoint, testScaleUp, testTaskManagerFailure); differs:
no cluster, every point instead of one, and it says what was seen instead of only pass or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.connectors.api.base import Boundedness, Source
from penstock.engine.model.errors import CancelSignal
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.testing.conformance.report import Conformance, missing, spread
from penstock.testing.conformance.source_run import Kept, SourceRun

MOST_TIMES: Final = 10
MOST_MORE: Final = 1000
_LOST_BATCHES = 2
_AT_ONCE: Final = ""
_LATE: Final = ", of which it was notified when it had read on"
_NEVER: Final = ", of which nobody was notified"


def check_source(
    make: Callable[[], Source],
    expected: Iterable[Any],
    *,
    parallelisms: Sequence[int] = (1, 2, 3),
    most_points: int = 12,
    patience_s: float = 10.0,
) -> Conformance:
    """Find out what a source guarantees after failures. Not in PyFlink.

    Every scenario reads `expected`, in any order, and each record has to come exactly once: what an attempt gave after
    the checkpoint that the next one begins with does not count, as in a job whose state is restored.

    Args:
        make: returns a new source that will give all of `expected`, whatever a former one has read or acknowledged. For a
            queue it makes a new queue and fills it.
        expected: the records.
        parallelisms: of the readers, each restored at itself and at the next one.
        most_points: the most batches after which the source is stopped, 2 or more; make it give small batches.
        patience_s: the longest time in seconds to wait for a record that is expected.

    Returns: the report; `report.require(DeliveryGuarantee.EXACTLY_ONCE)` makes a test of it.
    """
    wanted = list(expected)
    plan = _Plan(make, wanted, patience_s, Conformance(type(make()).__name__))
    for number, parallelism in enumerate(parallelisms):
        other = parallelisms[(number + 1) % len(parallelisms)]
        batches = plan.read_through(parallelism)
        for point in spread(batches, most_points):
            for restored in dict.fromkeys((parallelism, other)):
                plan.restored(parallelism, restored, point, _AT_ONCE)
            plan.restored(parallelism, parallelism, point, _LATE)
            plan.restored(parallelism, parallelism, point, _NEVER)
            plan.restored_to_the_one_before(parallelism, point)
            plan.begun_anew(parallelism, point)
            plan.given_back(parallelism, point)
    return plan.report


@dataclass(slots=True)
class _Plan:
    """The scenarios of one source. `wanted`: the records. Each method is a scenario, with a source of its own."""

    make: Callable[[], Source]
    wanted: list[Any]
    patience_s: float
    report: Conformance

    def read_through(self, parallelism: int) -> int:
        """Returns: the number of batches."""
        batches = 0
        with (
            self._noted(f"read to the end at parallelism {parallelism}") as found,
            closing(self._run(self._made(), parallelism)) as run,
        ):
            self._to_the_end(run, [])
            batches = run.batches
            found.extend(run.records)
        return batches

    def restored(self, parallelism: int, other: int, point: int, notified: str) -> None:
        """`notified`: when the readers hear that the checkpoint is complete. In a job they have usually read on by then."""
        title = (
            f"restored at parallelism {other} from a checkpoint after batch {point} at "
            f"parallelism {parallelism}{notified}"
        )
        with self._noted(title) as found:
            source = self._made()
            with closing(self._run(source, parallelism)) as first:
                first.read(batches=point, records=len(self.wanted))
                before, kept = first.records, first.checkpoint(1)
                if notified == _AT_ONCE:
                    first.complete(1)
                first.read(batches=_LOST_BATCHES, records=len(self.wanted))
                if notified == _LATE:
                    first.complete(1)
                    first.look_on(1)  # Some have a thread that acknowledges.
            found.extend(before + self._rest(source, other, kept, before))

    def restored_to_the_one_before(self, parallelism: int, point: int) -> None:
        title = (
            f"restored at parallelism {parallelism} after batch {point}, after a checkpoint that "
            "failed"
        )
        with self._noted(title) as found:
            source = self._made()
            with closing(self._run(source, parallelism)) as first:
                first.read(batches=point, records=len(self.wanted))
                before, kept = first.records, first.checkpoint(1)
                first.complete(1)
                first.read(batches=1, records=len(self.wanted))
                first.checkpoint(2)  # it never completes
                first.read(batches=1, records=len(self.wanted))
            found.extend(before + self._rest(source, parallelism, kept, before))

    def begun_anew(self, parallelism: int, point: int) -> None:
        title = f"begun anew at parallelism {parallelism} after batch {point}, without a checkpoint"
        with self._noted(title) as found:
            source = self._made()
            with closing(self._run(source, parallelism)) as first:
                first.read(batches=point, records=len(self.wanted))
                first.checkpoint(1)  # it never completes
            found.extend(self._rest(source, parallelism, None, []))

    def given_back(self, parallelism: int, point: int) -> None:
        """Each subtask fails alone, one after the other; the enumerator continues."""
        title = f"splits given back by each of {parallelism} subtasks after batch {point}"
        with self._noted(title) as found, closing(self._run(self._made(), parallelism)) as run:
            run.read(batches=point, records=len(self.wanted))
            kept = run.checkpoint(1)
            run.complete(1)
            for subtask in range(parallelism):
                run.read(batches=1, records=len(self.wanted))
                run.fail(subtask, kept)
            self._to_the_end(run, [])
            found.extend(run.records)

    def _rest(
        self, source: Source, parallelism: int, kept: Kept | None, before: list[Any]
    ) -> list[Any]:
        with closing(self._run(source, parallelism, kept)) as run:
            self._to_the_end(run, before)
            return run.records

    def _to_the_end(self, run: SourceRun, before: list[Any]) -> None:
        """`before`: what counts of a former run. A source that never ends is left when far more has come than anything explains."""
        most = MOST_TIMES * len(self.wanted) + MOST_MORE
        if run.boundedness is Boundedness.BOUNDED:
            run.read(records=most)
            return
        run.read(records=len(self.wanted) - len(before))
        # If some came twice, others are still to come.
        while missing(self.wanted, [*before, *run.records]):
            batches = run.batches
            run.read(batches=1)
            if run.batches == batches or len(run.records) >= most:
                return
        run.look_on()

    def _made(self) -> Source:
        """A source, checked as at submit."""
        source = self.make()
        source.validate()
        return source

    def _run(self, source: Source, parallelism: int, kept: Kept | None = None) -> SourceRun:
        return SourceRun(source, parallelism, kept, self.patience_s, cuts_batches=True)

    @contextmanager
    def _noted(self, scenario: str) -> Generator[list[Any]]:
        """Note how a scenario ends. It adds the records that count to the list."""
        found: list[Any] = []
        try:
            yield found
        except CancelSignal:
            raise
        except Exception as error:
            # A connector may raise anything.
            self.report.fail(scenario, f"{type(error).__name__}: {bounded_str(error)}")
        else:
            self.report.compare(scenario, self.wanted, found)
