"""Programs on a terminal with real TaskManagers: all that they print is there, wherever it comes from."""

import re
from collections import Counter

import pytest

from tests.docs.snippets import ROOT, programs_of
from tests.tools.terminal import PseudoTerminal

pytestmark = pytest.mark.spark

OWN_SESSION = """
import os, sys
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

configuration = Configuration()
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)

def told(number):
    print(f"function {number}.")
    os.system(f"echo process {number}.")
    return number

numbers = env.from_collection(list(range(30))).rebalance().map(told)
with numbers.execute_and_collect("numbers") as rows:
    for row in rows:
        print(f"row {row}.")
        os.system(f"echo driver {row}.")
"""


@pytest.mark.long
def test_the_first_program_shows_all_its_output(tmp_path):
    """The program of the README, as a user runs it: an embedded Spark, and lines of progress."""
    readme = (ROOT / "README.md").read_text("utf-8")
    first = programs_of(ROOT / "README.md")[0].parts[0]
    told = re.search(r"^```text\n(\d> .*?)^```$", readme, re.MULTILINE | re.DOTALL)[1].splitlines()
    program = tmp_path / "words.py"
    program.write_text(first.code, "utf-8")
    with PseudoTerminal(program, columns=80, rows=24) as terminal:
        assert terminal.finish() == 0
        printed = [line for line in terminal.lines() if re.match(r"\d+> ", line)]
    assert Counter(printed) == Counter(told)
    assert len(printed) == 6


@pytest.mark.long
def test_what_other_processes_write_to_the_terminal_is_not_erased(tmp_path):
    """What a TaskManager's own children print comes through Spark's JVM, where the session is the user's."""
    program = tmp_path / "program.py"
    program.write_text(OWN_SESSION, "utf-8")
    with PseudoTerminal(program, columns=100, rows=30) as terminal:
        assert terminal.finish() == 0
        text = terminal.everything()
    for word in ("row", "function", "driver", "process"):
        found = sorted(int(n) for n in re.findall(rf"{word} (\d+)\.", text))
        assert found == list(range(30)), word
