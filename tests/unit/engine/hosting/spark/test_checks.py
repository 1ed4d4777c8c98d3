"""What is checked of Spark and Java before a job starts, without either."""

import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.os.session_jobs import SessionJob, SessionJobs
from penstock.engine.hosting.program import host
from penstock.engine.hosting.program import spark_host as session
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.hosting.reporting import say
from penstock.engine.hosting.spark import background_jobs
from penstock.engine.hosting.spark import session as spark_session
from penstock.engine.hosting.spark import slots as spark_slots
from penstock.engine.hosting.spark.checks import check_configuration, network_warnings
from penstock.engine.hosting.spark.provider import SparkProvider
from penstock.engine.hosting.spark.session import ensure_java
from penstock.engine.hosting.spark.session_workers import SparkLauncher
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, GraphError, NoResourceAvailable
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import UNSIZED
from penstock.engine.model.states import JobStatus

SCRIPT = Path(__file__).parents[5] / "scripts" / "ensure-java"


class FakeContext:
    """As much of a SparkContext as the checks look at; executors come one by one, a step a look."""

    def __init__(self, master="spark://there:7077", conf=(), looks=((0, 0),)):
        self.master = master
        self.looks = list(looks)
        self.conf = dict(conf)
        self.uiWebUrl = None
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getConf(self):
        return SimpleNamespace(get=self.conf.get, getAll=self.conf.items)

    def isStopped(self):
        return False

    def statusStore(self):
        return self

    def executorList(self, _active_only):
        total, active = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        one = SimpleNamespace(id=lambda: "1", totalCores=lambda: total, activeTasks=lambda: active)
        return SimpleNamespace(size=lambda: 1, apply=lambda _index: one)


def provider_of(**given):
    return SparkProvider(SimpleNamespace(sparkContext=FakeContext(**given)), 1)


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(spark_slots, "_EXECUTORS_WAIT_S", 0.0)
    monkeypatch.setattr(spark_slots, "_FIRST_EXECUTOR_WAIT_S", 0.0)


def test_a_standalone_master_is_waited_for_until_the_wanted_cores_are_there():
    provider = provider_of(looks=[(0, 0), (1, 0), (2, 0), (4, 0)])
    assert provider.max_taskmanagers(4) == 4


def test_the_first_executor_is_waited_for_longer_than_others_and_told_of(monkeypatch, capsys):
    moments = iter([0.0, 20.0, 29.0, 29.5])
    clock = SimpleNamespace(monotonic=lambda: next(moments), sleep=lambda _s: None)
    monkeypatch.setattr(spark_slots, "time", clock)
    provider = provider_of(looks=[(0, 0), (0, 0), (0, 0), (2, 0)])
    assert provider.max_taskmanagers(4) == 2
    assert capsys.readouterr().err.count("waiting for the first executor: Spark master") == 1


def test_tasks_of_the_job_before_are_waited_for():
    provider = provider_of(looks=[(4, 4), (4, 2), (4, 0)])
    assert provider.max_taskmanagers(3) == 4


def test_what_does_not_come_is_refused_with_what_there_is(no_waiting):
    with pytest.raises(
        NoResourceAvailable, match=r"(?s)4 slots.*only 1 .*gives 2 task slots, 1 of"
    ):
        host.check_resources(provider_of(looks=[(2, 1)]), {UNSIZED: 4})


@pytest.mark.parametrize(
    ("is_local", "advice"), [(True, r"cores \(master local\[5\]"), (False, "executors, or larger")]
)
def test_the_advice_has_room_beside_jobs_that_hold_slots(monkeypatch, is_local, advice):
    jobs = SessionJobs()
    control = SimpleNamespace(job_id="held", status=lambda: JobStatus.RUNNING)
    jobs.add(SessionJob(control, "first", 0.0, lambda: 2))
    monkeypatch.setattr(host, "SESSION_JOBS", jobs)
    provider = provider_of(looks=[(3, 2), (3, 2)])
    monkeypatch.setattr(SparkProvider, "is_local", is_local)
    with pytest.raises(NoResourceAvailable, match=rf"'first' .* Give Spark more {advice}"):
        host.check_resources(provider, {UNSIZED: 2})


def test_the_answer_of_the_check_is_kept():
    provider = provider_of(looks=[(4, 0), (4, 4)])
    assert provider.max_taskmanagers(2) == 4
    assert provider.max_taskmanagers() == 4


def test_dynamic_allocation_has_no_bound_that_is_known():
    conf = {"spark.dynamicAllocation.enabled": "true"}
    assert provider_of(conf=conf).max_taskmanagers(100) is None


def test_describing_a_cluster_without_executors_does_not_wait(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _s: pytest.fail("it waits"))
    monkeypatch.setattr(spark_slots, "time", clock)
    assert "gives 0 task slots" in provider_of().describe()


def test_a_job_is_refused_with_what_has_ended_the_session_and_without_advice(monkeypatch):
    monkeypatch.setattr(spark_slots, "why_it_ended", lambda: "exceeded quota: small")
    provider = provider_of()
    provider.context._jsc = None
    text = "the job cannot begin: the SparkSession was stopped: exceeded quota: small$"
    with pytest.raises(NoResourceAvailable, match=text):
        host.check_resources(provider, {UNSIZED: 2})


def test_a_stopped_context_is_told_of_and_has_nothing_to_give():
    provider = provider_of()
    provider.context._jsc = None
    assert provider.describe() == "the SparkSession was stopped"
    assert provider.max_taskmanagers() == provider.max_taskmanagers(3) == 0
    assert provider.spark_slots.total() == 0
    provider.close()


def test_a_process_that_cannot_be_submitted_is_reported():
    provider, ended = provider_of(), queue.Queue()
    provider.context._jsc = None
    provider.on_ended = lambda resource_id, cause: ended.put((resource_id, cause))
    provider.start(ResourceId("tm-1"))
    resource_id, cause = ended.get()
    assert resource_id == "tm-1"
    assert "cannot submit to Spark (the SparkSession was stopped)" in cause
    provider.close()


@pytest.mark.parametrize(
    ("slots", "queued", "has_free"),
    [((3, 0), 2, True), ((3, 2), 2, False), ((2, 2), 0, True), ((0, 0), 1, False)],
    ids=["Spark is slow", "one is missing", "nobody waits", "no executor"],
)
def test_slots_are_missing_only_where_spark_has_none_for_those_that_wait(
    monkeypatch, slots, queued, has_free
):
    """With processes of its own or with shared workers."""
    provider = provider_of()
    launcher = SparkLauncher(provider.context, "workers")
    names = {ResourceId(f"tm-{number}") for number in range(3)}
    for one in provider, launcher:
        monkeypatch.setattr(one.spark_slots, "task_slots", lambda: slots)
        monkeypatch.setattr(
            one.background_jobs, "is_queued", lambda name: name in sorted(names)[:queued]
        )
    monkeypatch.setattr(provider.background_jobs, "running", lambda: names)
    assert provider.has_free_slots() is has_free
    assert launcher.lack_places(names) is not has_free
    provider.background_jobs.running = set


class Backend:
    """What Spark has asked its cluster manager for."""

    def __init__(self, *numbers):
        self.numbers = numbers

    def getRequestedTotalExecutors(self):  # ruff: ignore[invalid-function-name] - Spark's
        left = list(self.numbers)
        numbers = SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0))
        return SimpleNamespace(isEmpty=lambda: not self.numbers, valuesIterator=lambda: numbers)


@pytest.mark.parametrize(
    ("master", "numbers", "conf", "text"),
    [
        ("yarn", (), {}, "1 of 2 executors that Spark has asked YARN for have not come yet"),
        ("k8s://there", (), {"spark.executor.instances": "4"}, "3 of 4 executors"),
        ("yarn", (1, 2), {"spark.dynamicAllocation.enabled": "true"}, "2 of 3 executors"),
        ("yarn", (1,), {}, None),
        ("spark://there:7077", (9,), {}, None),
    ],
)
def test_executors_that_spark_has_asked_for_are_waited_for(
    monkeypatch, master, numbers, conf, text
):
    """And more cores are no advice, unless those that come are too few."""
    conf = {"spark.executor.cores": "2", **conf}
    provider = provider_of(master=master, conf=conf, looks=[(2, 2)])
    provider.context.schedulerBackend = lambda: Backend(*numbers)
    said = provider.describe()
    assert (text in said) if text else ("asked" not in said)
    waiting = {ResourceId(f"tm-{number}") for number in range(7)}
    queue_of = provider.background_jobs
    monkeypatch.setattr(queue_of, "is_queued", lambda name: name in waiting)
    assert queue_of.lack_places(waiting)
    assert queue_of.lack_places(sorted(waiting)[:2]) is (text is None)


def queued_provider(monkeypatch, states):
    """A provider with one thread that ends at its second cancel; `states`: queued or not, look by look."""
    provider, over, cancels = provider_of(), threading.Event(), []

    def cancel(resource_id):
        cancels.append(resource_id)
        if len(cancels) == 2:
            over.set()
            thread.join()

    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    provider.background_jobs.threads[ResourceId("tm-1")] = thread
    monkeypatch.setattr(provider.background_jobs, "cancel", cancel)
    monkeypatch.setattr(provider.background_jobs, "is_queued", lambda _id: states.pop(0))
    monkeypatch.setattr(background_jobs, "_CANCEL_AGAIN_S", 0.01)
    return provider, over, cancels


def test_closing_cancels_again_what_was_not_submitted_yet(monkeypatch):
    provider, _, cancels = queued_provider(monkeypatch, [True, True])
    provider.close()
    assert cancels == ["tm-1", "tm-1"]


def test_closing_leaves_one_that_runs_its_time(monkeypatch):
    provider, over, cancels = queued_provider(monkeypatch, [False])
    over.set()
    provider.close()
    assert cancels == []


def test_closing_does_not_cancel_one_that_was_told_to_end(monkeypatch):
    provider, over, cancels = queued_provider(monkeypatch, [])
    provider.registered(ResourceId("tm-1"))
    threading.Timer(0.05, over.set).start()
    provider.close()
    assert cancels == []


@pytest.mark.parametrize(
    ("master", "conf", "bound", "advertised"),
    [
        ("local[4]", {"spark.driver.host": "10.0.0.1"}, "127.0.0.1", "127.0.0.1"),
        ("spark://m:1", {"spark.driver.host": "10.0.0.1"}, "10.0.0.1", "10.0.0.1"),
        (
            "spark://m:1",
            {"spark.driver.host": "10.0.0.1", "spark.driver.bindAddress": "0.0.0.0"},
            "0.0.0.0",
            "10.0.0.1",
        ),
        ("spark://m:1", {"spark.driver.host": "[fd00::1]"}, "fd00::1", "fd00::1"),
    ],
)
def test_what_is_bound_and_what_is_dialled(master, conf, bound, advertised):
    provider = provider_of(master=master, conf=conf)
    assert provider.control_endpoint == Endpoint(bound, host=advertised)


# ---------------------------------------------------------------------- Spark's configuration


def spark_with(**conf):
    context = FakeContext(conf={key.replace("_", "."): value for key, value in conf.items()})
    return SimpleNamespace(sparkContext=context)


CLUSTER = "spark://there:7077"
PROTECTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def test_speculation_is_refused_however_it_is_written():
    with pytest.raises(ConfigurationError, match=r"spark\.speculation=false"):
        check_configuration({"spark.speculation": "True"}, CLUSTER)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({}, []),
        ({"spark.python.worker.killOnIdleTimeout": "true"}, []),
        ({"spark.python.worker.idleTimeoutSeconds": "60"}, []),
        (
            {
                "spark.python.worker.killOnIdleTimeout": "true",
                "spark.python.worker.idleTimeoutSeconds": "60",
            },
            ["spark.python.worker.killOnIdleTimeout"],
        ),
        ({"spark.executor.pyspark.memory": "1g"}, ["spark.executor.pyspark.memory=1g"]),
    ],
)
def test_what_endangers_taskmanagers_is_warned_of(conf, named):
    warnings = check_configuration(conf | PROTECTED, CLUSTER)
    assert [warning.split(" ")[0] for warning in warnings] == named


def test_an_unprotected_network_is_warned_of_and_the_settings_named():
    (warning,) = check_configuration({}, CLUSTER)
    assert all(f"{key}=true" in warning for key in PROTECTED)


def test_of_batch_jobs_the_network_is_looked_at_and_nothing_else():
    endangered = {"spark.executor.pyspark.memory": "1g", "spark.speculation": "true"}
    (warning,) = network_warnings(endangered, CLUSTER)
    assert all(f"{key}=true" in warning for key in PROTECTED)
    assert network_warnings(PROTECTED | endangered, CLUSTER) == []
    assert network_warnings({}, "local[4]") == []


def test_a_warning_is_given_once(operations, monkeypatch, capsys):
    spark = spark_with(spark_executor_pyspark_memory="1g")
    monkeypatch.setattr(session, "active_session", lambda: spark)
    monkeypatch.setattr(say, "_SAID", set())
    for _ in range(2):
        SparkHost().provider(Settings({}), {UNSIZED: 1})
    assert capsys.readouterr().err.count("spark.executor.pyspark.memory") == 1


# ---------------------------------------------------------------------- closures


def test_a_closure_above_the_message_limit_is_refused_with_its_operator(monkeypatch):
    monkeypatch.setattr(host, "MAX_MESSAGE", host.MESSAGE_MARGIN + 100_000)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.use_executor(MiniCluster(observer=JobObserver()).executor())
    data = os.urandom(200_000)
    env.from_collection([1]).map(lambda v: data[v]).name("Look up").print()
    with pytest.raises(GraphError, match=r"(?s)Look up.*hold 2\d\d,\d\d\d bytes.*open\(\)"):
        env.execute("too large")


# ---------------------------------------------------------------------- Java


def fake_java(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n", "utf-8")
    java.chmod(0o755)
    return java


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A PATH with the shell's tools only, and Homebrew's folder in `tmp_path`."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "sed", "head", "cat", "mkdir", "chmod"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "id").write_text("#!/bin/sh\necho 0\n", "utf-8")
    (tools / "id").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("PENSTOCK_BREW_PREFIXES", str(tmp_path / "brew"))
    monkeypatch.setattr(spark_session, "_BREW_PREFIXES", (str(tmp_path / "brew"),))
    monkeypatch.setenv("JAVA_HOME", "")
    return tmp_path


def run_script():
    return subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, check=False)


def installer(machine: Path, name: str, folder: Path) -> None:
    java = folder / "java"
    text = (
        f"#!/bin/sh\nmkdir -p '{folder}'\n"
        f"echo '#!/bin/sh' > '{java}'\n"
        f"echo 'echo openjdk version \\\"17.0.1\\\"' >> '{java}'\nchmod 755 '{java}'\n"
    )
    (machine / "bin" / name).write_text(text, "utf-8")
    (machine / "bin" / name).chmod(0o755)


def keg(machine: Path) -> Path:
    return machine / "brew/opt/openjdk@17/libexec/openjdk.jdk/Contents/Home"


def test_a_good_java_is_enough(machine):
    fake_java(machine / "bin", "17.0.9")
    assert (run_script().returncode, run_script().stderr) == (0, "")
    ensure_java()


def test_a_java_home_that_holds_nothing_gives_way(machine, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    fake_java(machine / "jdk" / "bin", "21")
    (machine / "bin" / "java").symlink_to(machine / "jdk" / "bin" / "java")
    ran = run_script()
    assert ran.returncode == 0
    assert "no Java in JAVA_HOME=" in ran.stderr and "install" not in ran.stderr
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(machine / "jdk")


@pytest.mark.parametrize("home", ["", "nowhere"])
def test_what_was_installed_is_found_whatever_java_home_says(machine, monkeypatch, home):
    monkeypatch.setenv("JAVA_HOME", home and str(machine / home))
    installer(machine, "apt-get", machine / "bin")
    ran = run_script()
    assert ran.returncode == 0
    assert "trying to install" in ran.stderr and "could not be installed" not in ran.stderr


def test_an_old_java_that_was_named_is_told_of(machine, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
    fake_java(machine / "old" / "bin", "1.8.0_292")
    fake_java(machine / "bin", "17.0.9")
    ran = run_script()
    assert ran.returncode == 1
    assert "unset JAVA_HOME" in ran.stderr and "could not be installed" not in ran.stderr
    with pytest.raises(ConfigurationError, match="is Java 8"):
        ensure_java()


def test_homebrews_java_is_found_although_it_is_not_on_path(machine):
    installer(machine, "brew", keg(machine) / "bin")
    ran = run_script()
    assert ran.returncode == 0 and "trying to install" in ran.stderr
    assert run_script().returncode == 0
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(keg(machine))


def test_no_java_at_all_is_told_of(machine):
    ran = run_script()
    assert ran.returncode == 1 and "could not be installed" in ran.stderr
    with pytest.raises(ConfigurationError, match="none was found"):
        ensure_java()


def test_a_java_that_only_says_it_is_missing_does_not_count(machine):
    stub = machine / "bin" / "java"
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n", "utf-8")
    stub.chmod(0o755)
    fake_java(keg(machine) / "bin", "17.0.9")
    assert run_script().returncode == 0
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(keg(machine))


def test_options_that_java_tells_of_first_do_not_hide_its_version(tmp_path):
    java = fake_java(tmp_path, "17.0.9")
    text = java.read_text("utf-8").replace("echo ", "echo 'Picked up: -Dx=\"y\"' >&2\necho ", 1)
    java.write_text(text, "utf-8")
    assert spark_session.java_major(java) == 17
