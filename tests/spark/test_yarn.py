"""Jobs on YARN itself, with HDFS beside it: each TaskManager in a container of YARN's."""

import sys
from pathlib import Path

import pyspark
import pytest

from tests.tools.hadoop import hadoop
from tests.tools.output_files import committed_lines

pytestmark = pytest.mark.spark
JARS = Path(pyspark.__file__).parent / "jars"
SETTINGS = {
    "spark.yarn.jars": f"local:{JARS}/*",  # Else each start uploads them.
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.pyspark.python": sys.executable,
}
# A keyed count; each result ends with the container that it was made in.
PROGRAM = """
import os, sys
from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.enable_checkpointing(500)
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build()
pairs = env.from_collection([(number % 97, 1) for number in range(10_000)])
counts = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
texts = counts.map(lambda pair: f"{pair[0]} {pair[1]} {os.environ.get('CONTAINER_ID')}")
texts.sink_to(sink)
env.execute("counts")
"""
EXPECTED = sorted((number % 97, number // 97 + 1) for number in range(10_000))


@pytest.fixture(scope="module")
def yarn():
    with hadoop() as running:
        yield running


def test_each_taskmanager_is_in_a_container(yarn, tmp_path):
    program = tmp_path / "counts.py"
    program.write_text(PROGRAM)
    conf = [f"--conf={key}={value}" for key, value in SETTINGS.items()]
    conf.append(f"-Dexecution.checkpointing.dir=file://{tmp_path}/checkpoints")
    run = (str(Path(sys.executable).with_name("penstock")), "run", "--master", "yarn", *conf)
    done = yarn.sandbox.run(
        *run, str(program), "--", str(tmp_path / "out"), env=yarn.environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in committed_lines(tmp_path / "out")]
    assert sorted((int(key), int(count)) for key, count, _ in lines) == EXPECTED
    containers = {container for _, _, container in lines}
    assert len(containers) == 2
    assert all(one.startswith("container_") for one in containers)
