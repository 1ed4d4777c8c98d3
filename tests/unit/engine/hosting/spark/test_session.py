"""What the command line says of the Spark session that is started here, without one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from penstock.engine.hosting.program import spark_host as session
from penstock.engine.hosting.spark import session as spark_session
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import SparkOptions
from penstock.ops.cli import cli
from tests.tools.terminal import ROOT

PROGRAM = """
import os, signal, sys
from penstock.engine.hosting.spark.session import log_folder
before = [signal.getsignal(one) for one in signal.valid_signals()]
folder = log_folder()
assert log_folder() == folder
assert [signal.getsignal(one) for one in signal.valid_signals()] == before
(folder / "spark.log").write_text("told")
print(folder.name, flush=True)
"""


@pytest.fixture
def program_started(tmp_path):
    """`program_started(code)`: a program with a folder that goes on with this code, and the folder's name."""
    processes = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        processes.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("ending", ["", "raise ValueError('its own')", "sys.exit(3)"])
def test_the_folder_goes_with_the_program(program_started, tmp_path, ending):
    process, _ = program_started(ending)
    process.wait()
    assert names(tmp_path) == set()


def test_the_folder_goes_after_ctrl_c(program_started, tmp_path):
    process, name = program_started("sys.stdin.read()")
    assert names(tmp_path) == {name}
    process.send_signal(signal.SIGINT)
    process.wait()
    assert names(tmp_path) == set()


def test_a_forked_child_leaves_its_parents_folder_alone(program_started, tmp_path):
    process, name = program_started(
        "if os.fork() == 0:\n    sys.exit(0)\nos.wait()\n"
        "print('child ended', flush=True)\nsys.stdin.read()"
    )
    assert process.stdout.readline() == "child ended\n"
    assert names(tmp_path) == {name}


def test_what_a_killed_program_left_goes_when_the_next_one_begins(program_started, tmp_path):
    """Those of programs that still run stay, and those of others' programs, which have no claim."""
    killed, left = program_started("sys.stdin.read()")
    _, of_another = program_started("sys.stdin.read()")
    (tmp_path / "penstock-spark-unknown").mkdir()
    killed.kill()
    killed.wait()
    assert left in names(tmp_path)
    _, newest = program_started("sys.stdin.read()")
    assert names(tmp_path) == {of_another, newest, "penstock-spark-unknown"}


@pytest.mark.parametrize(
    ("master", "is_on_loopback"),
    [("local[4]", True), ("local-cluster[2,2,1024]", True), ("spark://there:7077", False), ("yarn", False)],
)  # fmt: skip
def test_on_a_cluster_spark_finds_the_drivers_address_itself(master, is_on_loopback):
    conf = spark_session.default_conf({}, master)
    assert ("spark.driver.host" in conf) is is_on_loopback
    assert ("spark.driver.bindAddress" in conf) is is_on_loopback


def test_what_the_launcher_has_set_stays(monkeypatch):
    monkeypatch.setattr(spark_session.Embedded, "log_file", None)
    launched = {"spark.app.name": "mine", "spark.driver.host": "there", "spark.ui.enabled": "true"}
    assert not spark_session.default_conf(launched, "local[4]").keys() & launched.keys()
    assert spark_session.default_conf({"spark.app.name": "pyspark-shell"}, "yarn") == {
        "spark.app.name": "penstock"
    }


def test_on_kubernetes_penstock_waits_for_executors_itself_and_they_keep_their_size():
    conf = spark_session.default_conf({}, "k8s://https://there")
    assert conf["spark.scheduler.maxRegisteredResourcesWaitingTime"] == "0s"
    key = "spark.kubernetes.allocation.recoveryMode.enabled"
    assert conf[key] == "false"
    assert key not in spark_session.default_conf({key: "true"}, "k8s://https://there")


@pytest.mark.parametrize(
    ("wanted", "master", "python"),
    [
        ({}, "spark://there:7077", sys.executable),
        ({"python.executable": "/opt/py/bin/python"}, "yarn", "/opt/py/bin/python"),
        ({"python.executable": "python"}, "yarn", sys.executable),
        ({"python.executable": "/opt/py/bin/python"}, "local[2]", sys.executable),
    ],
    ids=["not set", "on a cluster", "Flink's default", "local"],
)
def test_a_spark_that_is_started_here_runs_the_programs_interpreter(wanted, master, python):
    assert spark_session.python_for(master, Settings(wanted)) == python


@pytest.mark.parametrize(
    ("remote", "master"), [("sc://there", "local[2]"), (None, "sc://there:15002")]
)
def test_a_connect_client_is_refused_with_the_way_out(monkeypatch, remote, master):
    monkeypatch.setattr(spark_session, "ensure_java", lambda: None)
    if remote is not None:
        monkeypatch.setenv("SPARK_REMOTE", remote)
    settings = Settings({"penstock.spark.master": master})
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(
        ConfigurationError, match=r"sc://there.*is a Spark Connect server.*--master"
    ):
        spark_session.session_for(settings, 2, {})


def test_yarn_without_its_configuration_is_refused(monkeypatch):
    """Spark would ask port 8032 of this machine for minutes."""
    system = SimpleNamespace(getenv={"PATH": "/bin"}.get)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    monkeypatch.setattr(spark_session, "launched_configuration", lambda *_: {})
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    settings = Settings({"penstock.spark.master": "yarn"})
    with pytest.raises(ConfigurationError, match=r"HADOOP_CONF_DIR.*yarn-site\.xml"):
        spark_session.session_for(settings, 2, {})


class JavaRefuses(Exception):
    """As Py4J tells an exception of Java's: with its frames."""

    class java_exception:  # noqa: N801 - Py4J's name
        @staticmethod
        def getMessage():
            return "Name node is in safe mode.\nTurn it off.\n\tat org.apache.Frame(Frame.java:1)"


def test_a_spark_that_does_not_start_says_javas_reason_and_keeps_its_log(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = spark_session.log_folder() / "spark.log"
    with (
        pytest.raises(ConfigurationError) as told,
        spark_session.errors_to(log),
    ):
        os.write(2, b"what Spark has logged")
        raise JavaRefuses(
            "An error occurred while calling None\n\tat org.apache.Frame(Frame.java:1)"
        )
    first, second, place = str(told.value).splitlines()
    assert (first, second) == (
        "Spark did not start: Name node is in safe mode.",
        "Turn it off.",
    )
    kept = Path(place.removeprefix("Its log: "))
    assert kept.parent == tmp_path
    assert kept.read_text() == "what Spark has logged"


REFUSED = (
    "KubernetesClientException: Failure executing: POST at: https://there/api/v1/namespaces/"
    'a/pods. Message: pods "penstock-1-exec-2" is forbidden: exceeded quota: small, used: '
    "pods=0, limited: pods=0. Received status: Status(apiVersion=v1, code=403, details="
)
IN_ITS_WORDS = (
    'pods "penstock-1-exec-2" is forbidden: exceeded quota: small, used: pods=0, limited: pods=0'
)


def test_pods_that_kubernetes_refuses_after_the_start_are_told_in_its_words(monkeypatch, tmp_path):
    """Spark refuses nothing: it ends a session that is there already. What former programs have logged does not count."""
    log = tmp_path / "spark.log"
    log.write_text(REFUSED.replace("small", "former"))
    monkeypatch.setattr(spark_session.Embedded, "log_file", log)
    monkeypatch.setattr(spark_session.Embedded, "log_begun", log.stat().st_size)
    assert spark_session.why_it_ended() == ""
    with log.open("a") as file:
        file.write(REFUSED)
    assert spark_session.why_it_ended() == IN_ITS_WORDS
    log.unlink()
    assert spark_session.why_it_ended() == ""


def test_pods_that_kubernetes_refuses_are_told_in_its_words(tmp_path):
    """Spark's own reason is that its context has been stopped. The log is Spark's 4.3."""

    class Stopped(Exception):
        java_exception = SimpleNamespace(getMessage=lambda: "Spark context stopped", toString=str)

    log = tmp_path / "spark.log"
    with pytest.raises(ConfigurationError) as told, spark_session.errors_to(log):
        os.write(2, REFUSED.encode())
        raise Stopped
    assert str(told.value).splitlines()[0] == f"Spark did not start: {IN_ITS_WORDS}"


def test_a_spark_that_does_not_start_yet_is_told(monkeypatch, tmp_path):
    """On the terminal, while what Spark writes goes to its log."""
    monkeypatch.setattr(spark_session, "LATE_S", 0)
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        with spark_session.errors_to(tmp_path / "spark.log"):
            told = os.read(reading, 1000).decode()
    finally:
        os.dup2(kept, 2)
        for file in (reading, writing, kept):
            os.close(file)
    assert told.startswith("penstock: Spark has not started after 0 s: its master starts slowly")
    assert told.endswith(f"its log: {tmp_path / 'spark.log'}\n")


def test_a_spark_whose_java_does_not_live_shows_the_end_of_its_log(tmp_path):
    with (
        pytest.raises(ConfigurationError, match="did not start: no gateway\nno room$"),
        spark_session.errors_to(tmp_path / "spark.log"),
    ):
        os.write(2, b"no room")
        raise RuntimeError("no gateway")


@pytest.fixture
def started(monkeypatch):
    """(master, Spark's settings) of each session that would have been started."""
    found = []

    def start(settings, cores, conf):
        found.append((settings.get(SparkOptions.MASTER), dict(conf)))
        raise ConfigurationError("no Spark in this test")

    monkeypatch.setattr(session, "active_session", lambda: None)
    monkeypatch.setattr(session, "launched_configuration", lambda _settings, conf: conf)
    monkeypatch.setattr(session, "session_for", start)
    return found


def test_master_and_conf_are_for_the_session_that_is_started(started, capsys):
    options = ["--master", "spark://there:7077", "--conf", "spark.cores.max=8", "--conf", "a=b=c"]
    assert cli.main(["doctor", *options]) == 1
    assert started == [("spark://there:7077", {"spark.cores.max": "8", "a": "b=c"})]
    assert "no Spark in this test" in capsys.readouterr().err
    assert cli.main(["doctor"]) == 1
    assert started[1] == (None, {})


def test_conf_takes_pairs(capsys):
    assert cli.main(["doctor", "--conf", "spark.cores.max"]) == 1
    assert "--conf takes KEY=VALUE, got 'spark.cores.max'" in capsys.readouterr().err
