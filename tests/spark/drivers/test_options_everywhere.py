"""Each option reaches the settings of a job, by each way that docs/reference/configuration.md names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from penstock.engine.model.options.catalogue import OPTIONS
from penstock.engine.model.options.option import NAME
from tests.tools.hosting.commands import COMMAND
from tests.tools.terminal import ROOT

pytestmark = pytest.mark.spark

_PATIENCE_S = 200
_RUN = (*COMMAND, "run", "PROGRAM")
_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
_TEXTS = {
    "duration": "7 s", "fine duration": "7 ms", "size": "7 mb", "whole number": "7",
    "number": "7.5", "text": "seven", "list of texts": "seven;eight", "pairs of texts": "seven:7",
}  # fmt: skip
_IN_BOUNDS = {
    "execution.checkpointing.data-inline-threshold": "7 kb",
    "state.storage.fs.memory-threshold": "7 kb",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.mode": "AT_LEAST_ONCE",
    "execution.state-recovery.claim-mode": "CLAIM",
    "execution.savepoint-restore-mode": "CLAIM",
    "jobmanager.scheduler": "Adaptive",
    "jobmanager.partition.hybrid.partition-data-consume-constraint": "UNFINISHED_PRODUCERS",
    "jobmanager.execution.failover-strategy": "full",
    "restart-strategy.type": "failure-rate",
    "restart-strategy.exponential-delay.jitter-factor": "0.7",
    "penstock.elastic.profile": "flink",
    "scheduler-mode": "REACTIVE",
    "taskmanager.load-balance.mode": "SLOTS",
    "jobmanager.rpc.port": "50777",
    "jobmanager.rpc.bind-port": "50777",
    "taskmanager.data.port": "50777",
    "taskmanager.data.bind-port": "50777",
    "cleanup-strategy": "fixed-delay",
    "metrics.latency.granularity": "subtask",
    "penstock.log.format": "json",
}
"""Options that take certain values only, or a number within bounds."""
_WITH_A_MEANING = {
    "penstock.spark.master": "local[7]", "penstock.spark.log-file": "seven.log",
    "execution.runtime-mode": "BATCH",
    "execution.buffer-timeout.enabled": "true",
}  # fmt: skip
"""They act when Spark starts, or when the graph of the program is made."""
_OF_GRAPH = ["seven", False, 7, 7000, True]
"""Name, chaining, maximum parallelism, buffer timeout in ms, runtime mode BATCH: what the graph has of the options."""
PROGRAM = """
import json, os
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.program import spark_host as host
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.model.program import ProgramSettings

def show(executor, graph, program):
    of_graph = [graph.job_name, graph.is_chaining_enabled, graph.max_parallelism,
                graph.buffer_timeout_ms, graph.is_batch]
    settings = executor.settings_of(program).as_text()
    print("SETTINGS", json.dumps([settings, of_graph]), flush=True)
    raise SystemExit(0)

ClusterExecutor._submit = show
given = Configuration.from_dict(json.loads(os.environ.get("OF_PROGRAM", "{}")))
env = StreamExecutionEnvironment.get_execution_environment(given)
env.from_collection([1]).print()
env.execute()
"""


def wanted():
    """A text for each option that is not its default."""
    found = {}
    for key, option in OPTIONS.items():
        value = _IN_BOUNDS.get(key) or _TEXTS.get(option.kind.name)
        if option.kind.name == "true or false":
            value = "false" if option.default == "true" else "true"
        assert value is not None, (key, option.kind.name)
        if option.default is None or option.parse(value) != option.parse(option.default):
            found[key.replace(NAME, "seven")] = value
    return found | _WITH_A_MEANING


@pytest.fixture
def settings_by(tmp_path):
    """The settings of a job whose program is started by a command."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")

    def run(*command, **environment):
        ran = subprocess.run(
            [part if part != "PROGRAM" else str(program) for part in command],
            capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )  # fmt: skip
        lines = [line for line in ran.stdout.splitlines() if line.startswith("SETTINGS ")]
        assert lines, ran.stderr[-4000:]
        return json.loads(lines[0].removeprefix("SETTINGS "))

    return run


def of_spark(options):
    """As docs/reference/configuration.md has it: `spark.penstock.x` for `penstock.x` too."""
    return {
        f"spark.penstock.{key.removeprefix('penstock.')}": value for key, value in options.items()
    }


@pytest.mark.parametrize(
    "way",
    ["program", "-D", "--conf", "spark-submit", "PYSPARK_SUBMIT_ARGS", "spark-defaults.conf"],
)
def test_each_option_reaches_the_job(settings_by, tmp_path, way):
    options = wanted()
    if way not in {"program", "-D"}:
        # A program that submits its jobs to a session starts no Spark that could say so.
        del options["execution.target"]
    spark = of_spark(options)
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in spark.items()), "utf-8"
    )
    confs = [part for key, value in spark.items() for part in ("--conf", f"{key}={value}")]
    defines = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    found = {
        "program": lambda: settings_by(
            sys.executable, "PROGRAM", OF_PROGRAM=json.dumps(options)
        ),
        "-D": lambda: settings_by(*_RUN, *defines),
        "--conf": lambda: settings_by(*_RUN, *confs),
        "spark-submit": lambda: settings_by(_SUBMIT, *confs, "PROGRAM"),
        "PYSPARK_SUBMIT_ARGS": lambda: settings_by(
            sys.executable, "PROGRAM",
            PYSPARK_SUBMIT_ARGS=" ".join(map(quoted, [*confs, "pyspark-shell"])),
        ),
        "spark-defaults.conf": lambda: settings_by(
            sys.executable, "PROGRAM", SPARK_CONF_DIR=str(tmp_path)
        ),
    }[way]()  # fmt: skip
    settings, of_graph = found
    assert {key: settings.get(key) for key in options} == options
    assert of_graph == _OF_GRAPH


def quoted(text):
    return f"'{text}'"


def test_a_target_that_spark_cannot_say_in_time_is_refused(settings_by):
    with pytest.raises(AssertionError, match=r"execution\.target is 'remote' in Spark's conf"):
        settings_by(*_RUN, "--conf", "spark.penstock.execution.target=remote")
