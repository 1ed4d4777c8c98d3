"""The status with which a program ends, by which a cluster decides whether it starts it again."""

import subprocess
import sys

import pytest

from tests.tools.hosting.commands import COMMAND
from tests.tools.terminal import ROOT

_PATIENCE_S = 100
PROGRAM = """
import atexit, sys
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import MiniCluster

atexit.register(lambda: print("the program's own end"))
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.use_executor(MiniCluster().executor())
env.from_collection([0]).map(lambda v: 1 // v if sys.argv[1] == "fail" else v).print()
client = env.execute_async("numbers")
if sys.argv[1] == "cancel":
    client.cancel().result()
client.get_job_execution_result().result()
"""
ENDLESS = (
    PROGRAM
    .replace(
        "env.from_collection([0])",
        "from penstock.common import WatermarkStrategy\\n"
        "from penstock.connectors.datagen import NumberSequenceSource\\n"
        "env.from_source(NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), 'n')",
    )
    .replace(".print()", ".filter(lambda _: False).print()")
    .replace("\\n", "\n")
)


@pytest.mark.parametrize(("end", "status"), [("finish", 0), ("fail", 1), ("cancel", 0)])
@pytest.mark.parametrize(
    "starts", [(sys.executable,), (*COMMAND, "run")], ids=["python", "penstock run"]
)
def test_only_a_failure_asks_for_another_start(tmp_path, starts, end, status):
    program = tmp_path / "program.py"
    program.write_text(ENDLESS if end == "cancel" else PROGRAM, "utf-8")
    command = [*starts, str(program), *(["--"] if starts[1:] else []), end]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True,
        timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    assert ran.returncode == status, ran.stderr
    assert "the program's own end" in ran.stdout
    assert ("was cancelled" in ran.stderr) is (end == "cancel")
