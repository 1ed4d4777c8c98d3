"""Programs with a session of their own whose workers have another Python: told before anything starts, or it runs."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.tools.terminal import ROOT

pytestmark = pytest.mark.spark

_PATIENCE_S = 300
PROGRAM = """
import os, sys
if "line" in sys.argv:
    import os, sys; os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").getOrCreate()
from penstock.common import Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
jobs_before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
if "batch" in sys.argv or "to_spark" in sys.argv:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
if "from_spark" in sys.argv:
    numbers = env.from_spark(spark.range(3)).map(lambda row: row[0], output_type=Types.LONG())
else:
    numbers = env.from_collection([0, 1, 2], type_info=Types.LONG())
try:
    if "to_spark" in sys.argv:
        print(sorted(row[0] for row in numbers.to_spark().collect()))
    else:
        with numbers.execute_and_collect() as rows:
            print(sorted(rows))
except Exception as error:
    print("refused:", type(error).__name__, error)
spark.stop()
"""


PRETENDS = """
import collections, sys
kind = collections.namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = kind({}, {}, 0, "final", 0)
"""


def environment(folder: Path, pyarrow: str | None = None, version: str | None = None) -> Path:
    """A Python environment without packages; with a `pyarrow` of that version, or of a Python that says it is that version."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    if pyarrow is not None:
        (packages / "pyarrow.py").write_text(f"__version__ = {pyarrow!r}\n")
    if version is not None:
        (packages / "pretends.py").write_text(PRETENDS.format(*version.split(".")))
        (packages / "pretends.pth").write_text("import pretends\n")
    return folder / "bin"


def run(tmp_path, bin_folder, *arguments):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    variables = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=tmp_path,
        env={**variables, "PATH": path, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("bare") / "env")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long) for kind in ("batch", "from_spark", "to_spark")],
)
def test_workers_without_pyarrow_are_told_with_the_line_to_write(tmp_path, bare, kind):
    said = run(tmp_path, bare, "local[3]", kind).stdout
    assert said.startswith("refused: ConfigurationError")
    assert f"{bare}/python3" in said
    assert "without pyarrow" in said
    assert sys.executable in said
    assert 'import os, sys; os.environ["PYSPARK_PYTHON"] = sys.executable' in said


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ("batch", "line"),
        pytest.param(("from_spark", "line"), marks=pytest.mark.long),
        pytest.param(("streaming",), marks=pytest.mark.long),
    ],
)
def test_with_that_line_they_run_and_streaming_jobs_do_without_it(tmp_path, bare, arguments):
    """TaskManagers on the driver's machine run the driver's own Python."""
    found = run(tmp_path, bare, "local[3]", *arguments)
    assert found.stdout == "[0, 1, 2]\n", found.stderr


@pytest.mark.long
def test_an_old_pyarrow_on_executors_is_refused_with_both_versions(tmp_path):
    import pyarrow as pa

    old = environment(tmp_path / "env", pyarrow="14.0.2")
    said = run(tmp_path, old, "local-cluster[1,2,1024]", "batch").stdout
    assert said.startswith("refused: ConfigurationError")
    assert "pyarrow 14.0.2" in said
    assert f"pyarrow {pa.__version__}" in said
    assert "Tasks need pyarrow 15 or newer" in said


@pytest.mark.parametrize(
    "master", ["local[3]", pytest.param("local-cluster[1,2,1024]", marks=pytest.mark.long)]
)
def test_another_python_on_executors_is_refused_with_both_versions(tmp_path, master):
    other = environment(tmp_path / "env", version="3.9")
    said = run(tmp_path, other, master, "streaming").stdout
    assert said.startswith("refused: ConfigurationError")
    assert "Python 3.9" in said
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in said
