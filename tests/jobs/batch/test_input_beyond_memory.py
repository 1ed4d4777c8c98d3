"""Input that is larger than memory: what a keyed subtask of a BATCH job takes at most stays within `execution.sorted-inputs.memory`.

That is measured in a process of its own, over what it has when all is imported; the budget is for everything in it, the operator's state
too. One key has half of the rows.
"""

import json
import subprocess
import sys

import pytest

KEYS = 10_000
MB, BUDGET = 300, 60


def measured(kind, megabytes, budget):
    command = [sys.executable, "-m", "tests.tools.programs.spooled_task"]
    done = subprocess.run(
        [*command, kind, str(megabytes), str(budget)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "kind", ["columns", pytest.param("process", marks=LONG), pytest.param("window", marks=LONG)]
)
def test_five_times_the_memory_and_one_key_with_half_of_it(kind):
    found = measured(kind, MB, BUDGET)
    assert found["in"] > 1_000_000
    assert found["out"] == KEYS + 1
    assert found["peak"] - found["base"] < BUDGET


@LONG
def test_ten_times_the_memory():
    found = measured("process", MB, MB // 10)
    assert found["out"] == KEYS + 1
    assert found["peak"] - found["base"] < MB // 10


@LONG
def test_ten_million_keys():
    """Nearly all of them once."""
    found = measured("many", MB // 2, BUDGET)
    assert found["in"] > 10_000_000
    assert found["out"] > 0.999 * found["in"]
    assert found["peak"] - found["base"] < BUDGET
