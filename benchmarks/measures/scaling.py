"""Scaling: the rate of a job on 1, 2 and 4 TaskManagers of 1, 2 and 4 slots.

Word count on rows and Nexmark query 5 on columns, as in `word_count` and `q5`, on an embedded Spark of this machine. The floor is the
same job on one TaskManager of one slot, in the same turn: a ratio says how often one slot's rate the job reaches. It can reach the
number of this machine's cores at most, and slots of one TaskManager share one GIL. `CPU`: of all TaskManagers, for a million records,
so what more slots cost besides. Every result is held against the one of the floor. `--events`: words and events, default 4 million.
Call it alone: it starts a Spark of more cores than the others do.
"""

import os
from collections.abc import Callable
from typing import Final

from benchmarks.figures import Figure
from benchmarks.measures.q5 import COLUMNS, EVENTS_PER_SECOND, SEED
from benchmarks.measures.word_count import WORDS_PER_LINE, lines_of, running_counts
from benchmarks.probes import TimedRun, timed_run
from benchmarks.workloads.range_source import RangeSource
from examples.nexmark_q5 import hot_items
from penstock.common import WatermarkStrategy
from penstock.connectors.nexmark import NexmarkSource
from penstock.engine.model.options.cluster import SparkOptions

RECORDS: Final = 4_000_000
TASKMANAGERS: Final = (1, 2, 4)
SLOTS: Final = (1, 2, 4)
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()

Grid = dict[tuple[int, int], list[TimedRun]]


def measure(records: int | None, runs: int) -> list[Figure]:
    records = records or RECORDS
    jobs = {"word_count": _word_count, "q5": _q5}
    return [
        figure
        for name, job in jobs.items()
        for figure in _figures(name, _grid(job, records, runs), records)
    ]


def _grid(job: Callable[[int, int, int], TimedRun], records: int, runs: int) -> Grid:
    job(records, 1, 1)  # warms up
    done: Grid = {(t, s): [] for t in TASKMANAGERS for s in SLOTS}
    for _ in range(runs):
        for (taskmanagers, slots), found in done.items():
            found.append(job(records, taskmanagers, slots))
            _compare(found[-1], done[1, 1][0])
    return done


def _compare(run: TimedRun, first: TimedRun) -> None:
    kept, expected = run.kept, first.kept
    if isinstance(kept, list):
        kept, expected = sorted(kept), sorted(expected)
    if kept != expected or run.records != first.records:
        raise SystemExit("scaling: the results depend on the number of slots")


def _figures(name: str, done: Grid, records: int) -> list[Figure]:
    rates = {at: [records / one.data_seconds for one in found] for at, found in done.items()}
    figures = []
    for (taskmanagers, slots), values in rates.items():
        cpu = [one.cpu_seconds / records * 1e6 for one in done[taskmanagers, slots]]
        settings = {"records": records, "cores": os.cpu_count()}
        settings["CPU s/M records"] = f"{sorted(cpu)[len(cpu) // 2]:.2f}"
        title = f"scaling {name}, TaskManagers: {taskmanagers}, slots of each: {slots}"
        figures.append(Figure(title, values, "records/s", rates[1, 1], settings))
    return figures


def _options(slots: int) -> dict[str, object]:
    return {
        SparkOptions.MASTER.key: f"local[{max(TASKMANAGERS) + 1}]",
        "taskmanager.numberOfTaskSlots": slots,
    }


def _word_count(words: int, taskmanagers: int, slots: int) -> TimedRun:
    return timed_run(
        RangeSource(words // WORDS_PER_LINE, lines_of),
        WatermarkStrategy.no_watermarks(),
        running_counts,
        dict,
        "benchmark scaling of word count",
        taskmanagers * slots,
        _options(slots),
    )


def _q5(events: int, taskmanagers: int, slots: int) -> TimedRun:
    return timed_run(
        NexmarkSource(events, SEED, EVENTS_PER_SECOND, columns=COLUMNS),
        WatermarkStrategy.for_monotonous_timestamps(),
        hot_items,
        list,
        "benchmark scaling of q5",
        taskmanagers * slots,
        _options(slots),
    )
