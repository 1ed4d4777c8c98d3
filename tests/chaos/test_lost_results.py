"""A TaskManager process dies after it has finished a blocking result that others still read: it is made anew."""

import os
import signal
from collections import Counter

import pytest

from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.file_system import FileSink
from penstock.datastream import StreamExchangeMode
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from tests.chaos.test_killed_taskmanager import RUNS, Trap, Watcher
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment
from tests.tools.output_files import files_below, lines_in
from tests.tools.programs.blocking_programs import BLOCKING_TYPE

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
NUMBERS = 20_000


def mixed_program(env, folder, trap):
    """Blocking into the readers, pipelined out of them: two regions after one another."""
    source = NumberSequenceSource(1, NUMBERS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    made = numbers.map(lambda n: (n % 7, n)).with_exchange_mode(StreamExchangeMode.BATCH)
    read = made.key_by(lambda pair: pair[0]).map(lambda pair: pair[1]).map(trap)
    lines = read.rebalance().map(str)
    lines.sink_to(FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build())


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "kind",
    ["file", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("auto", "mmap"))],
)
def test_a_result_that_is_lost_while_it_is_read_is_made_anew(spark, tmp_path, kind, run):
    trap = Trap(tmp_path, lambda number: number == NUMBERS // 2)
    watcher, results = Watcher(), tmp_path / "results"
    options = {"io.tmp.dirs": str(results), BLOCKING_TYPE: kind}
    env = environment(2, **options).use_executor(ClusterExecutor(SparkHost(), watcher))
    mixed_program(env, tmp_path / "out", trap)
    client = env.execute_async("lost results")
    pid = trap.wait()
    assert any(results.rglob("*.result"))
    os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    assert watcher.restarts >= 1
    written = files_below(tmp_path / "out")
    counts = Counter(int(line) for line in lines_in(written))
    assert counts == Counter(range(1, NUMBERS + 1))
    assert not taskmanagers_left()
    # What the killed one left went when the one in its place started, the rest with the others.
    assert list(results.rglob("*.result")) == []
