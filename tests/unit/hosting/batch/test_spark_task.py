"""Which allocator Arrow takes in Spark's worker: it chooses once in a process, so each case has one of its own."""

import os
import subprocess
import sys

import pytest

from tests.tools.terminal import ROOT

NAME = "ARROW_DEFAULT_MEMORY_POOL"
PROGRAM = """
import os, sys
if sys.argv[1] == "loaded":
    import pyarrow
from penstock.hosting.batch.spark_task import load_arrow
load_arrow()
load_arrow()
import pyarrow as pa
print(pa.default_memory_pool().backend_name, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


def pool(chosen=None, how="not loaded"):
    clean = {name: value for name, value in os.environ.items() if name != NAME}
    if chosen is not None:
        clean[NAME] = chosen
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True,
        env={**clean, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.split()


def test_arrow_allocates_by_the_c_library():
    assert pool() == ["system", "None"]


@pytest.mark.parametrize("chosen", ["mimalloc", "system"])
def test_the_choice_of_the_user_counts(chosen):
    assert pool(chosen) == [chosen, chosen]


def test_arrow_that_is_loaded_already_stays_as_it_is():
    assert pool(how="loaded") != ["system", "None"]
