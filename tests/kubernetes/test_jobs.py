"""Jobs on Kubernetes itself, from the manifests of examples/kubernetes: drivers and TaskManagers are in pods, and pods are lost."""

import contextlib
import json
from pathlib import Path

import pytest
import yaml

from tests.tools.kubernetes import kubernetes
from tests.tools.output_files import committed_lines
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.kubernetes]
LIMIT_S = 240
MANIFESTS = Path(__file__).parents[2] / "examples" / "kubernetes"
# A keyed count; each result ends with the pod that it was made in. The task that comes to number
# 5,000 says so and waits for a file, until which the test has time; or it takes memory until then.
PROGRAM = """
import socket, time
from pathlib import Path
from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.datastream import StreamExecutionEnvironment

shared = Path("/shared")

def trap(pair):
    taken = []
    if pair[2] == 5000 and not (shared / "go").exists():
        (shared / "sprung").touch()
        while not (shared / "go").exists():
            if (shared / "grow").exists():
                taken.append(bytearray(50_000_000))
            time.sleep(0.05)
    return pair

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.enable_checkpointing(500)
sink = FileSink.for_row_format("/shared/out", Encoder.simple_string_encoder()).build()
pairs = env.from_collection([(number % 97, 1, number) for number in range(10_000)])
keyed = pairs.rebalance().map(trap).key_by(lambda pair: pair[0])
counts = keyed.reduce(lambda a, b: (a[0], a[1] + b[1]))
counts.map(lambda pair: f"{pair[0]} {pair[1]} {socket.gethostname()}").sink_to(sink)
env.execute("counts")
"""
EXPECTED = sorted((number % 97, number // 97 + 1) for number in range(10_000))
SMALL = {"cpu": "200m", "memory": "600Mi"}
"""For this machine's few cores."""


class Namespace:
    """`shared`: what its pods see as /shared."""

    def __init__(self, cluster, name, folder):
        self.cluster, self.name, self.shared = cluster, name, folder / "shared"
        self._folder = folder
        self.shared.mkdir()
        for one in (folder, *folder.parents[:2]):
            one.chmod(0o755)  # The pods' user is another one.
        self.shared.chmod(0o777)  # As many a volume is at first.
        cluster.kubectl("create", "namespace", name)
        program = folder / "counts.py"
        program.write_text(PROGRAM)
        self.kubectl("create", "configmap", "counts", f"--from-file={program}")
        self.apply({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": str(self.shared)},
                "claimRef": {"namespace": name, "name": "shared"},
            },
        })
        for file in ("access", "storage", "network", "disruption"):
            self.kubectl("apply", "-f", str(MANIFESTS / f"{file}.yaml"))

    def kubectl(self, *words, **more):
        return self.cluster.kubectl("-n", self.name, *words, **more)

    def apply(self, *manifests):
        text = "---\n".join(json.dumps(one) + "\n" for one in manifests)
        self.kubectl("apply", "-f", "-", input=text)

    def settings(self, **more):
        """Spark's settings of the manifests. `more`: over them, with `__` for a dot."""
        found = yaml.safe_load((MANIFESTS / "settings.yaml").read_text())
        conf = found["data"]["spark-defaults.conf"]
        own = {"spark.kubernetes.executor.request.cores": "0.2"}
        own |= {name.replace("__", "."): value for name, value in more.items()}
        conf += "".join(f"{name} {value}\n" for name, value in own.items())
        found["data"]["spark-defaults.conf"] = conf
        return found

    def start(self, manifest="job.yaml", **settings):
        found = yaml.safe_load((MANIFESTS / manifest).read_text())
        (driver,) = found["spec"]["template"]["spec"]["containers"]
        driver["resources"]["requests"] = SMALL
        self.apply(self.settings(**settings), found)

    def pods(self, selector):
        """By name. `selector`: of labels."""
        found = json.loads(self.kubectl("get", "pods", "-o", "json", "-l", selector))
        return {one["metadata"]["name"]: one for one in found["items"]}

    def executors(self):
        return sorted(self.pods("spark-role=executor"))

    def driver(self):
        """The newest that is not about to end."""
        pods = self.pods("job=counts,spark-role!=executor").values()
        alive = [one for one in pods if "deletionTimestamp" not in one["metadata"]]
        return max(alive, key=lambda one: one["metadata"]["creationTimestamp"])["metadata"]["name"]

    def log(self):
        return self.kubectl("logs", self.driver())

    def wait_until(self, is_so, what):
        def ask():
            with contextlib.suppress(AssertionError, ValueError):  # Of kubectl: not yet.
                return is_so()

        try:
            return wait_until(ask, what, LIMIT_S)
        except AssertionError as error:
            error.add_note(self.kubectl("get", "pods", "-o", "wide"))
            with contextlib.suppress(AssertionError, ValueError):
                error.add_note(self.log())
            raise

    def wait_for_trap(self):
        self.wait_until((self.shared / "sprung").exists, "no task comes to the trap")

    def let_go(self):
        (self.shared / "go").touch()

    def wait_for_job(self):
        def is_complete():
            status = json.loads(self.kubectl("get", "job", "counts", "-o", "json"))["status"]
            return status.get("succeeded")

        self.wait_until(is_complete, "the job does not complete")

    def results(self):
        """Returns: the pods that made them. They are right."""
        lines = [line.split() for line in committed_lines(self.shared / "out")]
        assert sorted((int(key), int(count)) for key, count, _ in lines) == EXPECTED
        return {pod for _, _, pod in lines}


@pytest.fixture(scope="module")
def cluster():
    with kubernetes() as running:
        yield running


@pytest.fixture
def namespace(cluster, tmp_path, request):
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:40]
    made = Namespace(cluster, name, tmp_path)
    yield made
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    made.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


def test_each_taskmanager_is_in_an_executors_pod(namespace):
    """And the job is looked at from its driver's pod, and by a forwarded port."""
    namespace.start()
    namespace.wait_for_trap()
    inside = ("exec", namespace.driver(), "--", "penstock")
    assert "counts" in namespace.kubectl(*inside, "list")
    executors = set(namespace.executors())
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.results() == executors
    assert len(executors) == 2
    namespace.wait_until(
        lambda: all(
            one["status"]["phase"] == "Succeeded"
            for one in namespace.pods("spark-role=executor").values()
        ),
        "executors outlive the driver",
    )


def test_an_executor_deleted_by_force_costs_no_row(namespace):
    namespace.start()
    namespace.wait_for_trap()
    first, _ = namespace.executors()
    namespace.kubectl("delete", "pod", first, "--force", "--grace-period=0")
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.results()
    assert "restarted subtasks" in namespace.kubectl("logs", "job/counts")


def test_a_driver_deleted_by_force_is_followed_by_one_that_takes_its_job_over(namespace):
    namespace.start()
    namespace.wait_for_trap()
    former, executors = namespace.driver(), set(namespace.executors())
    namespace.kubectl("delete", "pod", former, "--force", "--grace-period=0")
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.driver() != former
    assert namespace.results().isdisjoint(executors)


def test_a_driver_that_is_told_to_end_gives_its_job_to_the_next_one(namespace):
    namespace.start("deployment.yaml")
    namespace.wait_for_trap()
    former = namespace.driver()
    log = namespace.cluster.sandbox.start(
        "kubectl", "-n", namespace.name, "logs", "-f", former,
        env=namespace.cluster.environment, stdout=-1,
    )  # fmt: skip
    namespace.kubectl("rollout", "restart", "deployment/counts")
    said = log.communicate(timeout=LIMIT_S)[0].decode()
    assert "penstock: SIGTERM; job 'counts' is suspended: the next driver continues it." in said
    namespace.let_go()
    done = lambda: len(list((namespace.shared / "out").rglob("[!.]*"))) > 2  # noqa: E731
    namespace.wait_until(lambda: "took over" in namespace.log() or done(), "nobody goes on")


def test_a_taskmanager_killed_for_its_memory_says_which_limit(namespace):
    namespace.start()
    (namespace.shared / "grow").touch()
    namespace.wait_until(lambda: "memory" in namespace.log(), "nobody says why")
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.results()
    said = namespace.kubectl("logs", "job/counts")
    assert "spark.executor.memoryOverhead" in said


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"spark__kubernetes__executor__request__cores": "50"}, "Unschedulable"),
        ({"spark__kubernetes__container__image": "nothing:1"}, "ErrImage"),
    ],
    ids=["no-room", "no-image"],
)
def test_why_executors_do_not_come_is_told(namespace, settings, reason):
    namespace.start(**settings)
    namespace.wait_until(lambda: reason in namespace.log(), "nobody says why")


def test_a_quota_is_told_in_its_own_words(namespace):
    namespace.kubectl("create", "quota", "small", "--hard=pods=1")
    namespace.start()
    namespace.wait_until(lambda: "exceeded quota: small" in namespace.log(), "nobody says why")
