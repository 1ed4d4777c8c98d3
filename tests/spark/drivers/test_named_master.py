"""Whoever names a master gets it: asked is where the TaskManagers are, and not only what comes out."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.standalone import standalone
from tests.tools.hosting.commands import COMMAND
from tests.tools.terminal import ROOT

pytestmark = pytest.mark.spark

_PATIENCE_S = 300
_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
_RUN = (*COMMAND, "run")
_EXECUTOR = "CoarseGrainedExecutorBackend"
NAMED = "local-cluster[2,1,1024]"
PROGRAM = """
import os, pathlib
from penstock.datastream import StreamExecutionEnvironment

def ancestors(_):
    process, found = os.getpid(), []
    while process > 1:
        folder = pathlib.Path(f"/proc/{process}")
        found.append((process, (folder / "cmdline").read_text().replace(chr(0), " ")))
        process = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    return os.getpid(), found

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
with env.from_collection(range(40)).rebalance().map(ancestors).execute_and_collect() as rows:
    places = dict(rows)
executors = {next((p for p, c in found if EXECUTOR in c), 0) for found in places.values()}
from pyspark import SparkContext
context = SparkContext._active_spark_context
print("MASTER", context.master)
print("APPLICATION", context.appName)
print("EXECUTORS", 0 if executors == {0} else len(executors))
print("CONF", context.getConf().get("spark.given", "none"))
print("OWN", all(os.getpid() in dict(found) for found in places.values()))
"""


@pytest.fixture
def words(tmp_path):
    """Runs the program, and returns what it found."""
    program = tmp_path / "words.py"
    program.write_text(f"EXECUTOR = {_EXECUTOR!r}\n{PROGRAM}", "utf-8")

    def run(*command, **environment):
        ran = subprocess.run(
            [part if part != "PROGRAM" else str(program) for part in command],
            capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=tmp_path,
            env={
                **os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_DRIVER_PYTHON": sys.executable,
                **environment,
            },
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-4000:]
        lines = [line.partition(" ") for line in ran.stdout.splitlines()]
        return {key: value for key, _, value in lines if key.isupper()}, ran.stdout + ran.stderr

    return run


def defaults(folder, **settings):
    lines = [f"{key.replace('_', '.')} {value}\n" for key, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), "utf-8")
    return str(folder)


@pytest.mark.parametrize(
    "launcher",
    ["spark-submit", "PYSPARK_SUBMIT_ARGS", "spark-defaults.conf", "--master", "--conf", "-D"],
)
def test_each_launcher_gets_the_master_that_it_names(words, tmp_path, launcher):
    given = "spark.given=yes"
    commands = {
        "spark-submit": (_SUBMIT, "--master", NAMED, "--conf", given, "PROGRAM"),
        "PYSPARK_SUBMIT_ARGS": (sys.executable, "PROGRAM"),
        "spark-defaults.conf": (sys.executable, "PROGRAM"),
        "--master": (*_RUN, "PROGRAM", "--master", NAMED, "--conf", given),
        "--conf": (*_RUN, "PROGRAM", "--conf", f"spark.master={NAMED}", "--conf", given),
        "-D": (*_RUN, "PROGRAM", "-D", f"penstock.spark.master={NAMED}", "--conf", given),
    }
    environments = {
        "PYSPARK_SUBMIT_ARGS": {
            "PYSPARK_SUBMIT_ARGS": f"--master {NAMED} --conf {given} pyspark-shell"
        },
        "spark-defaults.conf": {
            "SPARK_CONF_DIR": defaults(tmp_path, spark_master=NAMED, spark_given="yes")
        },
    }
    found, said = words(*commands[launcher], **environments.get(launcher, {}))
    name = "words.py" if launcher == "spark-submit" else "penstock"
    del found["OWN"]  # Spark's JVM is the parent of the driver, or its child.
    assert found == {"MASTER": NAMED, "APPLICATION": name, "EXECUTORS": "2", "CONF": "yes"}
    assert f"jobs run on Spark master {NAMED}: 2 executors" in said


def test_the_embedded_spark_starts_where_nobody_has_named_a_master(words):
    found, said = words(sys.executable, "PROGRAM")
    assert found["MASTER"] == "local[3]"
    assert found["EXECUTORS"] == "0"
    assert found["OWN"] == "True"
    assert "jobs run on Spark master local[3], in this process" in said


def test_the_submitters_name_and_local_master_stay(words):
    found, _ = words(_SUBMIT, "--master", "local[4]", "--name", "of mine", "PROGRAM")
    assert (found["MASTER"], found["APPLICATION"]) == ("local[4]", "of mine")


def test_a_flag_counts_more_than_spark_defaults(words, tmp_path):
    folder = defaults(tmp_path, spark_master="spark://nowhere:7077", spark_given="file")
    found, _ = words(*_RUN, "PROGRAM", "--master", "local[4]", SPARK_CONF_DIR=folder)
    assert (found["MASTER"], found["CONF"]) == ("local[4]", "file")


@pytest.mark.parametrize("launcher", ["spark-submit", "spark-defaults.conf"])
def test_on_a_standalone_master_taskmanagers_are_no_processes_of_the_driver(
    words, tmp_path, launcher
):
    with standalone(tmp_path, ["127.0.0.1", "127.0.0.1"], 1) as master:
        memory = "spark.executor.memory=512m"
        if launcher == "spark-submit":
            found, _ = words(_SUBMIT, "--master", master, "--conf", memory, "PROGRAM")
        else:
            folder = defaults(tmp_path, spark_master=master, spark_executor_memory="512m")
            found, _ = words(sys.executable, "PROGRAM", SPARK_CONF_DIR=folder)
    assert found["MASTER"] == master
    assert (found["EXECUTORS"], found["OWN"]) == ("2", "False")


def test_executors_run_the_python_that_spark_is_told_to_run(tmp_path, words):
    """As `--conf spark.pyspark.python` does with spark-submit; here it is a link, whose own name is seen."""
    python = tmp_path / "other-python"
    python.write_text(f'#!/bin/sh\nOF_EXECUTORS=yes exec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    program = tmp_path / "python.py"
    program.write_text(
        "import os\n"
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)\n"
        "ask = lambda _: os.environ.get('OF_EXECUTORS', 'no')\n"
        "with env.from_collection([1]).map(ask).execute_and_collect() as rows:\n"
        "    print('PYTHON', *rows)\n",
        "utf-8",
    )
    found, _ = words(
        *_RUN, str(program), "--master", "local-cluster[1,2,1024]",
        "--conf", f"spark.pyspark.python={python}",
    )  # fmt: skip
    assert found == {"PYTHON": "yes"}


def test_a_session_of_the_programs_own_has_sparks_default_after_a_job_was_refused(tmp_path, words):
    """Spark's JVM has begun by then, without a name of a master."""
    program = tmp_path / "refused.py"
    program.write_text(
        "from pyspark.sql import SparkSession\n"
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.get_configuration().set_string('pipeline.fixed-job-id', 'no id')\n"
        "env.from_collection([1]).print()\n"
        "try:\n"
        "    env.execute()\n"
        "except Exception as error:\n"
        "    print('REFUSED', type(error).__name__)\n"
        "print('MASTER', SparkSession.builder.getOrCreate().sparkContext.master)\n",
        "utf-8",
    )
    found, _ = words(sys.executable, str(program))
    assert found == {"REFUSED": "ConfigurationError", "MASTER": "local[*]"}
