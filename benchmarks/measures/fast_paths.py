"""What each fast path of docs/internals/fast-paths.md gains on the workloads of `make peers`.

The job runs on a MiniCluster of this process, with two subtasks, on the peers' data of size small. Seconds are CPU seconds of
the process. Value: with the fast path; floor: the same job without it, the plain way put into its place. Below 1 the path saves time.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.figures import Figure
from benchmarks.peers.data import Expected, prepared
from benchmarks.peers.programs import penstock_columns, penstock_rows
from benchmarks.peers.programs.checks import each, q1_sum
from benchmarks.peers.programs.penstock_sum import SumSink
from penstock.common import Configuration
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.runtime.operators.windowed.column_partials import Partials
from penstock.engine.runtime.row_functions.known_code import Refused
from penstock.engine.runtime.state.packed import KeyRule
from penstock.testing import MiniCluster

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
DATA = Path("build") / "peers" / "data"
SUBTASKS = 2
_RUNTIME = "penstock.engine.runtime."


@dataclass(frozen=True)
class Workload:
    """A peers' workload. `form`: its folder of the data. `pipeline`, `sum_of`, `is_columnar`: as in the peers' programs."""

    name: str
    form: str
    pipeline: Callable[[Any], Any]
    sum_of: Callable[[Any], int]
    is_columnar: bool = False
    is_batch: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    slots: int = SUBTASKS

    def expected(self, expected: Expected) -> tuple[int, int]:
        is_final = self.is_batch or self.name == "q5"
        return expected.checks[f"{self.name} {'final' if is_final else 'updates'}"]

    def source(self, directory: Path) -> Any:
        if self.is_columnar and self.name == "word_count":
            return penstock_columns.source_of(_Named("word_count", "lines"), directory)
        if self.form == "parquet":
            return penstock_columns.source_of(_Named(self.name, "parquet"), directory)
        return penstock_rows.source_of(self.name, directory)


@dataclass(frozen=True)
class _Named:
    """What the peers' programs read of their arguments."""

    workload: str
    form: str


def by_computed_key(bids: DataStream) -> DataStream:
    """The workload keyed_state with a key that is one to one with the field."""
    return bids.key_by(lambda bid: bid[0] * 2).process(penstock_rows.CountAndLast())


WORD_COUNT = Workload("word_count", "lines", *penstock_rows.WORKLOADS["word_count"])
KEYED_STATE = Workload("keyed_state", "json", *penstock_rows.WORKLOADS["keyed_state"])
KEYED_BY_COMPUTED = Workload(
    "keyed_state", "json", by_computed_key, penstock_rows.WORKLOADS["keyed_state"][1]
)
CHECKPOINTED = Workload(
    *("keyed_state", "json", *penstock_rows.WORKLOADS["keyed_state"]),
    options={"execution.checkpointing.interval": "500 ms"},
)
Q1 = Workload("q1", "json", penstock_rows.q1, q1_sum)
Q5 = Workload("q5", "json", *penstock_rows.WORKLOADS["q5"])
Q5_COLUMNS = Workload("q5", "parquet", *penstock_columns.WORKLOADS["q5"])
WORD_COUNT_BATCH = Workload(
    "word_count", "lines", penstock_rows.word_count, each(penstock_rows.final_word), is_batch=True
)
WORD_COUNT_COLUMNS = Workload(
    *("word_count", "lines", *penstock_columns.WORKLOADS["word_count"]), is_batch=True
)
Q5_COLUMNS_BATCH = Workload(*("q5", "parquet", *penstock_columns.WORKLOADS["q5"]), is_batch=True)


def none(*_: object, **__: object) -> None:
    """The fast path has no answer, so that the plain way is taken."""


def no(*_: object, **__: object) -> bool:
    return False


def refused(*_: object, **__: object) -> None:
    raise Refused("it is switched off")


_SORTED = KeyRule.sorted


def sorted_anew(rule: KeyRule, keys: Any, groups: Any = None) -> Any:
    """The keys without what the last snapshot has left."""
    rule.last = None
    return _SORTED(rule, keys, groups)


@dataclass(frozen=True)
class FastPath:
    """`off`: what stands for which name below `penstock.engine.runtime` while the path is switched off."""

    name: str
    workloads: tuple[Workload, ...]
    off: Mapping[str, Any]


PATHS = (
    FastPath("columns", (Q1,), {"row_functions.plans._as_columns": refused}),
    FastPath("fields", (KEYED_STATE, Q5), {"row_functions.plans.plan_as_fields": refused}),
    FastPath("keys that are read", (KEYED_STATE, Q5), {
        "keys.selection.KeySelection._plain_fields": none,
        "keys.selection.ComputedKeys.of_columns": none,  # It would read the field, too.
    }),
    FastPath("keys that are computed", (KEYED_BY_COMPUTED,), {
        "keys.selection.ComputedKeys.of_columns": none,
    }),
    FastPath("hashes of columns", (Q5_COLUMNS,), {"keys.selection.hash_array": none}),
    FastPath("results that nobody can change", (WORD_COUNT, Q1, KEYED_STATE), {
        "operators.stateless.is_immutable": no, "records.output_copies.is_immutable": no,
    }),
    FastPath("tables of windows", (Q5,), {"operators.windowed.window_operator._is_fast": no}),
    FastPath("dense counts of panes", (Q5_COLUMNS,), {
        "operators.windowed.columns.partials_of": Partials,
    }),
    FastPath("packed snapshots", (CHECKPOINTED,), {"state.packed.packed": none}),
    FastPath("keys of the last snapshot", (CHECKPOINTED,), {
        "state.packed.KeyRule.sorted": sorted_anew,
    }),
    FastPath("BATCH: combining", (WORD_COUNT_BATCH,), {
        "operators.reduce.FinalReduceOperator.before_exchange": none,
    }),
    FastPath("BATCH: reduces in Arrow", (WORD_COUNT_COLUMNS,), {
        "operators.reduce.ColumnReduction.add": no,
    }),
    FastPath("BATCH: combining of windows", (Q5_COLUMNS_BATCH,), {
        "operators.windowed.columns.ColumnWindowOperator.before_exchange": none,
        "operators.windowed.columns.FinalColumnWindowOperator.before_exchange": none,
    }),
)  # fmt: skip


def seconds_of(workload: Workload, directory: Path, expected: Expected) -> float:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        configuration = Configuration()
        for key, value in workload.options.items():
            configuration.set_string(key, value)
        configuration.set_string("execution.checkpointing.dir", f"file://{folder}")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.use_executor(MiniCluster(workload.slots, parallelism=SUBTASKS).executor())
        env.set_parallelism(SUBTASKS)
        if workload.is_batch:
            env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        sink = SumSink(workload.sum_of, is_columnar=workload.is_columnar)
        source = workload.source(directory / workload.form)
        given = env.from_source(source, penstock_rows.watermarks_of(workload.name), "Input")
        workload.pipeline(given).sink_to(sink)
        started = time.process_time()
        env.execute(workload.name)
        used = time.process_time() - started
    # With checkpoints, what commits is a copy of this sink.
    if not workload.options and (sink.rows, sink.sum) != workload.expected(expected):
        raise SystemExit(f"{workload.name}: {sink.rows, sink.sum} is not what numpy counts")
    return used


def without(path: FastPath) -> ExitStack:
    stack = ExitStack()
    for name, replacement in path.off.items():
        stack.enter_context(mock.patch(_RUNTIME + name, replacement))
    return stack


def measure(_events: int | None, runs: int) -> list[Figure]:
    directory, expected = prepared(DATA, "small")
    figures = []
    for path in PATHS:
        for workload in path.workloads:
            run = partial(seconds_of, workload, directory, expected)
            run()
            with_path, plain = [], []
            for _ in range(runs):
                with_path.append(run())
                with without(path):
                    plain.append(run())
            kind = "columns" if workload.is_columnar or workload.form == "parquet" else "rows"
            name = f"{path.name}: {workload.name} on {kind}"
            figures.append(Figure(name, with_path, "s", plain, {"floor": "without it"}))
            print(figures[-1].json_line(), flush=True)
    return figures
