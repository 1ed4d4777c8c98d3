"""Spark's Python workers of a session that Penstock starts keep large blocks, as processes of TaskManagers do."""

import os
import subprocess
import sys

import pytest

from penstock.engine.hosting.taskmanager.child import KEPT_BLOCKS
from tests.tools.terminal import ROOT

pytestmark = pytest.mark.spark

_PATIENCE_S = 300
PROGRAM = f"""
import os
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

def found(name):
    import pyarrow
    return [name, os.environ.get(name, ""), pyarrow.default_memory_pool().backend_name]

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
with env.from_collection({list(KEPT_BLOCKS)!r}).map(found).execute_and_collect() as rows:
    print(sorted(rows))
"""


def test_tasks_of_batch_jobs_keep_large_blocks_unless_the_user_says_how(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    own = {"MALLOC_TOP_PAD_": "100000"}
    ran = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **own},
    )  # fmt: skip
    expected = sorted([name, value, "system"] for name, value in {**KEPT_BLOCKS, **own}.items())
    assert ran.stdout == f"{expected}\n", ran.stderr
