"""The commands of the guide's part on YARN, word by word: a packed environment, in which the TaskManagers are, and the driver in cluster mode."""

import shutil
import sys
import sysconfig
from importlib.metadata import distribution, requires
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from tests.tools.clusters.yarn_jobs import EXPECTED, PROGRAM, SETTINGS, lines_of, yarn
from tests.tools.guides import commands_of

__all__ = ["yarn"]

pytestmark = [pytest.mark.spark, pytest.mark.long]  # A minute each, and a packed environment.
MAKE, INSTALL, PACK, *STARTS = commands_of("clusters.md", "YARN")
PROJECT = Path(__file__).parents[3]


def needed(name):
    """The names of a distribution and of all that it depends on."""
    found = {name}
    for line in requires(name) or ():
        one = Requirement(line)
        applies = one.marker is None or one.marker.evaluate({"extra": ""})
        if applies:
            found |= needed(one.name)
    return found


def install(environment):
    """What pip would bring, from the packages that the tests run with."""
    (target,) = environment.glob("lib/python*/site-packages")
    shutil.copytree(PROJECT / "penstock", target / "penstock")
    source = Path(sysconfig.get_path("purelib"))
    for name in sorted(needed("penstock") - {"penstock"}):
        files = distribution(name).files
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if (source / top).is_dir():
                # Half a gigabyte that containers have from spark.yarn.jars.
                jars = shutil.ignore_patterns("jars")
                shutil.copytree(source / top, target / top, ignore=jars, dirs_exist_ok=True)
            else:
                shutil.copy(source / top, target)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, yarn):
    """Where the commands run, with what the first three of them have made."""
    folder = tmp_path_factory.mktemp("guide")
    own = SETTINGS | {"spark.penstock.execution.checkpointing.dir": f"file://{folder}/checkpoints"}
    del own["spark.pyspark.python"]
    lines = "".join(f"{name} {value}\n" for name, value in own.items())
    (folder / "spark-defaults.conf").write_text(lines)
    assert INSTALL == ["environment/bin/pip", "install", "penstock"]
    for command in (MAKE, PACK):
        done = follow(yarn, folder, command)
        assert done.returncode == 0, done.stderr
        if command is MAKE:
            install(folder / "environment")
    return folder


def follow(yarn, folder, command):
    """Run a command in the folder, with Spark's and Penstock's programs."""
    programs = (Path(sys.executable).parent, Path(pyspark.__file__).parent / "bin")
    path = ":".join(map(str, (*programs, yarn.environment["PATH"])))
    environment = yarn.environment | {"PATH": path, "SPARK_CONF_DIR": str(folder)}
    there = ("sh", "-c", 'cd "$0" && exec "$@"', str(folder))
    return yarn.sandbox.run(*there, *command, env=environment)


@pytest.mark.parametrize(
    "command", STARTS, ids=["in a container", "spark-submit here", "penstock run"]
)
def test_a_job_is_started_as_the_guide_says(yarn, folder, tmp_path, command):
    program = f"import sys\nsys.argv = ['my_job.py', {str(tmp_path / 'out')!r}]\n{PROGRAM}"
    where = program.replace("os.environ.get('CONTAINER_ID')", "sys.prefix")
    assert where != program
    (folder / "my_job.py").write_text(where)
    done = follow(yarn, folder, command)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert all("environment" in prefix for _, _, prefix in lines), lines[0]
