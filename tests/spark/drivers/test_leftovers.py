"""What a program with the embedded Spark leaves behind: nothing, by whatever signal it is killed."""

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark

_PATIENCE_S = 300
STAY = re.compile(rf"penstock-{os.getuid()}")
"""Where drivers tell their addresses."""
SWEPT_BY_THE_NEXT = re.compile(rf"{STAY.pattern}|penstock-driver-.*|penstock-[0-9]+-.*")
"""What a killed process leaves, of a driver and of a worker: the next of its kind removes it."""
PROGRAM = """
import signal, sys
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource

mine = lambda *_: sys.exit("ended by my handler")
if "handles" in sys.argv:
    signal.signal(signal.SIGTERM, mine)
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
if "warm" in sys.argv:
    env.from_collection([1]).print()
    env.execute()
    signal.pause()
source = DataGeneratorSource(lambda number: number, None, 10.0)
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").print()
job = env.execute_async("numbers")
assert signal.getsignal(signal.SIGTERM) is (mine if "handles" in sys.argv else signal.SIG_DFL)
if "ends" in sys.argv:
    job.cancel().result()
else:
    job.get_job_execution_result().result()
"""


def left_in(folder):
    """Of ours; Spark's own folders are the affair of Spark."""
    return sorted(path.name for path in folder.glob("penstock-*"))


@pytest.mark.parametrize(
    ("how", "argument", "said"),
    [
        pytest.param(None, "ends", "", id="ends", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, "", "KeyboardInterrupt", id="ctrl-c"),
        pytest.param(
            signal.SIGINT, "twice", "KeyboardInterrupt", id="ctrl-c twice", marks=pytest.mark.long
        ),
        pytest.param(signal.SIGTERM, "", "", id="terminated", marks=pytest.mark.long),
        pytest.param(
            signal.SIGTERM,
            "handles",
            "ended by my handler",
            id="terminated with a handler",
            marks=pytest.mark.long,
        ),
        pytest.param(signal.SIGKILL, "", "", id="killed", marks=pytest.mark.long),
        pytest.param(
            signal.SIGINT,
            "warm",
            "KeyboardInterrupt",
            id="ctrl-c with warm workers",
            marks=pytest.mark.long,
        ),
        pytest.param(
            signal.SIGKILL, "warm", "", id="killed with warm workers", marks=pytest.mark.long
        ),
    ],
)
def test_no_folder_of_the_embedded_spark_is_left(tmp_path, how, argument, said):
    errors = tmp_path / "errors"
    folder = tmp_path / "temporary"
    folder.mkdir()
    with errors.open("wb") as stderr:
        driver = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, argument],
            stdout=subprocess.PIPE, stderr=stderr,
            env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    with driver:
        assert how is None or driver.stdout.readline(), errors.read_text()
        processes = psutil.Process(driver.pid).children(recursive=True)
        if how is not None:
            assert list(folder.glob("penstock-spark-*/spark.log"))
            driver.send_signal(how)
        if argument == "twice":
            wait_until(lambda: "Ctrl-C again" in errors.read_text(), "nothing is said")
            driver.send_signal(how)
        driver.communicate(timeout=_PATIENCE_S)
    _, alive = psutil.wait_procs(processes, timeout=_PATIENCE_S)
    assert not alive
    swept_later = SWEPT_BY_THE_NEXT if how is signal.SIGKILL else STAY
    assert [name for name in left_in(folder) if not swept_later.fullmatch(name)] == []
    assert said in errors.read_text()
