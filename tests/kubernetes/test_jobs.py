"""Jobs on Kubernetes itself, from the manifests of examples/kubernetes: drivers and TaskManagers are in pods, and pods are lost."""

import contextlib
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest
import yaml

from penstock.engine.hosting.taskmanager.child import PROCESS_NAME
from tests.tools.clusters.kubernetes import HOST, kubernetes
from tests.tools.guides import commands_of
from tests.tools.output_files import committed_lines
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.kubernetes]
LIMIT_S = 180
MANIFESTS = Path(__file__).parents[2] / "examples" / "kubernetes"
# A keyed count; each result ends with the pod that it was made in. The task that comes to number
# 5,000 says so and waits for a file, until which the test has time; or it takes memory until then.
# The source is slow as long as another file is there.
PROGRAM = """
import socket, time
from pathlib import Path
from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
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

def pair_of(number):
    if (shared / "slow").exists():
        time.sleep(0.03)
    return number % 97, 1, number

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.enable_checkpointing(500)
sink = FileSink.for_row_format("/shared/out", Encoder.simple_string_encoder()).build()
source = DataGeneratorSource(pair_of, 10_000, batch_size=10)
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "pairs").set_parallelism(1)
keyed = pairs.rebalance().map(trap).key_by(lambda pair: pair[0])
counts = keyed.reduce(lambda a, b: (a[0], a[1] + b[1]))
counts.map(lambda pair: f"{pair[0]} {pair[1]} {socket.gethostname()}").sink_to(sink)
env.execute("counts")
while (shared / "stay").exists():
    time.sleep(0.5)
"""
GUIDE = "kubernetes.md"
EXPECTED = sorted((number % 97, number // 97 + 1) for number in range(10_000))
NUMBERS = itertools.count()
NAME = str.maketrans("_[]", "---")
SMALL = {"cpu": "200m", "memory": "600Mi"}
"""For this machine's few cores."""


class Namespace:
    """`shared`: what its pods see as /shared. Commands of the guide are run in `folder`, which has the manifests for this machine.

    `settings`: of Spark, over those of the manifests.
    """

    def __init__(self, cluster, name, folder, settings):
        self.cluster, self.name, self.shared = cluster, name, folder / "shared"
        self.folder = folder
        self.shared.mkdir()
        self.shared.chmod(0o777)  # As many a volume is at first.
        config = shutil.copy(cluster.environment["KUBECONFIG"], folder)
        self.environment = cluster.environment | {"KUBECONFIG": config}
        self._write_manifests(settings)
        (folder / "counts.py").write_text(PROGRAM)
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": str(self.shared)},
                "claimRef": {"namespace": name, "name": "shared"},
            },
        }
        cluster.kubectl("apply", "-f", "-", input=json.dumps(volume))
        self.run_guide("A namespace")

    def _write_manifests(self, settings):
        copies = shutil.copytree(MANIFESTS, self.folder / "examples" / "kubernetes")
        conf = copies / "settings.yaml"
        found = yaml.safe_load(conf.read_text())
        own = {f"spark.kubernetes.{one}.request.cores": "0.2" for one in ("driver", "executor")}
        own |= settings
        lines = "".join(f"{name} {value}\n" for name, value in own.items())
        found["data"]["spark-defaults.conf"] += lines
        conf.write_text(yaml.safe_dump(found))
        for file in ("job.yaml", "deployment.yaml"):
            found = yaml.safe_load((copies / file).read_text())
            (driver,) = found["spec"]["template"]["spec"]["containers"]
            driver["resources"]["requests"] = SMALL
            (copies / file).write_text(yaml.safe_dump(found))

    def run_guide(self, title, **replaced):
        """Run the commands that the guide has under this title. Those that follow something are left out."""
        for command in commands_of(GUIDE, title):
            words = [replaced.get(word, word.replace("streams", self.name)) for word in command]
            if "--follow" in words or "port-forward" in words:
                continue
            target = words[-1] if words[-2] == ">" else None
            words = words[: -2 if target else None]
            there = ("sh", "-c", 'cd "$0" && exec "$@"', str(self.folder))
            done = self.cluster.sandbox.run(*there, *words, env=self.environment)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
            if target:
                (self.folder / target).write_text(done.stdout)

    def kubectl(self, *words, **more):
        return self.cluster.kubectl("-n", self.name, *words, **more)

    @contextlib.contextmanager
    def started(self, *words):
        """kubectl, until it is left."""
        with self.cluster.sandbox.start(
            "kubectl", *words, env=self.environment, stdout=subprocess.PIPE
        ) as process:
            try:
                yield process
            finally:
                process.kill()

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

    def has_taskmanager(self, pod):
        try:
            return self.kubectl("exec", pod, "--", "pgrep", "-f", PROCESS_NAME)
        except AssertionError:
            return False

    def where(self, pod):
        """Its node."""
        return json.loads(self.kubectl("get", "pod", pod, "-o", "json"))["spec"]["nodeName"]

    def open_ports(self, pod):
        """Those that other pods reach."""
        tables = self.kubectl("exec", pod, "--", "cat", "/proc/net/tcp", "/proc/net/tcp6")
        rows = [line.split() for line in tables.splitlines() if ":" in line]
        local = [row[1].split(":") for row in rows if row[3] == "0A"]
        loopback = ("0100007F", f"{'0' * 24}01000000", f"{'0' * 16}FFFF00000100007F")
        return sorted({int(port, 16) for address, port in local if address not in loopback})

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


# In a pod of its own: it knocks at each port of another one, in plain text and with TLS. It prints what it gets.
STRANGER = """
import json, socket, ssl, sys
unchecked = ssl.create_default_context()
unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
got = {}
for port in sys.argv[2:]:
    for context in (None, unchecked):
        try:
            with socket.create_connection((sys.argv[1], int(port)), timeout=5) as plain:
                peer = context.wrap_socket(plain) if context else plain
                peer.sendall(b"GET /jobs/overview HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
                while data := peer.recv(65536):
                    got[port] = got.get(port, "") + data.decode("latin-1")
        except OSError:
            pass
print(json.dumps(got))
"""


@pytest.fixture(scope="module")
def cluster():
    with kubernetes() as running:
        yield running


@pytest.fixture
def second_node(cluster):
    """Takes no pods yet."""
    name = cluster.start_node()
    cluster.kubectl("cordon", name)
    yield name
    cluster.kubectl("uncordon", "node1")
    cluster.kubectl("delete", "node", name)


@pytest.fixture
def namespace(cluster, tmp_path, request):
    """`settings`: a mark with settings of Spark."""
    name = request.node.name.removeprefix("test_").translate(NAME)[:40].strip("-")
    name += f"-{next(NUMBERS)}"  # A test that is run once more meets nothing of its first run.
    settings = getattr(request, "param", {})
    made = Namespace(cluster, name, tmp_path, settings)
    yield made
    made.kubectl("delete", "deployments,jobs,pods", "--all", "--force", "--grace-period=0")
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_each_taskmanager_is_in_an_executors_pod(namespace):
    """And the job is looked at: from its driver's pod, and through a forwarded port."""
    namespace.run_guide("A bounded job")
    namespace.wait_for_trap()
    inside = ("exec", namespace.driver(), "--", "penstock")
    assert "counts" in namespace.kubectl(*inside, "list")
    executors = set(namespace.executors())
    (command,) = [one for one in commands_of(GUIDE, "Look at a job") if "port-forward" in one]
    with namespace.started(*(word.replace("deployment/", "job/") for word in command[1:])):
        curl = ("curl", "-s", "http://localhost:8081/jobs/overview")
        namespace.wait_until(
            lambda: '"counts"' in namespace.cluster.sandbox.run(*curl).stdout, "no answer"
        )
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


def test_a_pod_without_the_jobs_secrets_gets_nothing(namespace):
    """There is no network policy here: it reaches every port that is not on loopback."""
    namespace.run_guide("A bounded job")
    namespace.wait_for_trap()
    pods = [namespace.driver(), *namespace.executors()]
    knocks = {}
    for pod in pods:
        ports = namespace.open_ports(pod)
        assert ports
        address = json.loads(namespace.kubectl("get", "pod", pod, "-o", "json"))["status"]["podIP"]
        command = ["python3", "-c", STRANGER, address, *map(str, ports)]
        alone = ("run", f"to-{pod}", "--image=penstock:1", "--restart=Never", "--")
        namespace.kubectl(*alone, *command)
    for pod in pods:
        namespace.wait_until(lambda pod=pod: namespace.kubectl("logs", f"to-{pod}"), "no end")
        knocks[pod] = json.loads(namespace.kubectl("logs", f"to-{pod}"))
    assert knocks == dict.fromkeys(pods, {})
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.results() == set(pods[1:])


def test_an_executor_deleted_by_force_costs_no_row(namespace):
    namespace.run_guide("A bounded job")
    namespace.wait_for_trap()
    first, _ = namespace.executors()
    namespace.kubectl("delete", "pod", first, "--force", "--grace-period=0")
    namespace.wait_until(lambda: "lost TaskManager" in namespace.log(), "nobody misses it")
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.results() - {first}


def test_a_driver_that_is_told_to_end_gives_its_job_to_the_next_one(namespace):
    """It is looked at as the guide says. A program that ends would be started again."""
    (namespace.shared / "stay").touch()
    namespace.kubectl("create", "configmap", "counts", f"--from-file={namespace.folder}/counts.py")
    namespace.run_guide("An unbounded job")
    namespace.wait_for_trap()
    namespace.run_guide("Look at a job")
    former = namespace.driver()
    with namespace.started("logs", "--follow", former) as log:
        namespace.kubectl("rollout", "restart", "deployment/counts")
        said = log.communicate(timeout=LIMIT_S)[0].decode()
    assert "penstock: SIGTERM; job 'counts' is suspended: the next driver continues it." in said
    namespace.let_go()
    namespace.wait_until(namespace.results, "nobody ends the job")
    assert namespace.driver() != former


@pytest.mark.parametrize("namespace", [{"spark.executor.instances": "3"}], indirect=True)
def test_an_executor_that_is_evicted_gives_its_tasks_away(namespace):
    """Nothing is repeated."""
    (namespace.shared / "slow").touch()
    namespace.let_go()
    namespace.run_guide("A bounded job")
    namespace.wait_until(lambda: " RUNNING, in " in namespace.log(), "it does not run")
    first = next(filter(namespace.has_taskmanager, namespace.executors()))
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": first, "namespace": namespace.name},
    }
    path = f"/api/v1/namespaces/{namespace.name}/pods/{first}/eviction"
    namespace.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
    namespace.wait_until(lambda: "moved" in namespace.log(), "its tasks do not move")
    number = first.rpartition("-")[2]
    assert f"leaves: Spark decommissions executor {number}\n" in namespace.log()
    (namespace.shared / "slow").unlink()
    namespace.wait_for_job()
    assert "restarted" not in namespace.log()
    assert len(namespace.results()) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "namespace",
    [{"spark.network.timeout": "20s", "spark.network.timeoutInterval": "5s"}],
    indirect=True,
)
def test_a_lost_node_costs_no_row(namespace, second_node):
    """Its pods run on, and are heard by nobody."""
    namespace.run_guide("A bounded job")
    namespace.wait_until(lambda: namespace.where(namespace.driver()) == "node1", "no driver comes")
    namespace.cluster.kubectl("cordon", "node1")
    namespace.cluster.kubectl("uncordon", second_node)
    namespace.wait_for_trap()
    former = set(namespace.executors())
    assert {namespace.where(pod) for pod in former} == {second_node}
    namespace.cluster.kubectl("uncordon", "node1")
    namespace.cluster.lose_node(second_node)
    namespace.let_go()
    text = f"2 pods Terminating, but {second_node} does not answer: Spark waits"
    namespace.wait_until(lambda: text in namespace.log(), "nobody says why no executor comes")
    for pod in former:
        namespace.kubectl("delete", "pod", pod, "--force")
    namespace.wait_for_job()
    assert namespace.results() - former


def test_in_cluster_mode_spark_makes_the_drivers_pod(namespace):
    namespace.kubectl("create", "configmap", "counts", f"--from-file={namespace.folder}/counts.py")
    namespace.let_go()
    own = {"k8s://https://api.example.com:6443": f"k8s://https://{HOST}"}
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    namespace.run_guide("spark-submit in cluster mode", **own, **{"spark-submit": str(submit)})

    def has_succeeded():
        (driver,) = namespace.pods("spark-role=driver").values()
        return driver["status"]["phase"] == "Succeeded"

    namespace.wait_until(has_succeeded, "the driver does not end")
    pods = namespace.results()
    assert len(pods) == 2
    assert all(re.fullmatch(r"counts-\w+-exec-\d+", pod) for pod in pods)


def test_a_taskmanager_killed_for_its_memory_says_which_limit(namespace):
    (namespace.shared / "grow").touch()
    namespace.run_guide("A bounded job")
    namespace.wait_until(lambda: "memoryOverhead" in namespace.log(), "nobody says which limit")
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.results()


@pytest.mark.parametrize(
    ("namespace", "reason"),
    [
        ({"spark.kubernetes.executor.request.cores": "50"}, "Unschedulable: 0/1 nodes"),
        ({"spark.kubernetes.container.image": "nothing:1"}, "ErrImage"),
    ],
    ids=["room", "image"],
    indirect=["namespace"],
)
def test_why_executors_do_not_come_is_told(namespace, reason):
    namespace.run_guide("A bounded job")
    namespace.wait_until(lambda: reason in namespace.log(), "nobody says why")


def test_a_quota_is_told_in_its_own_words(namespace):
    namespace.kubectl("create", "quota", "small", "--hard=pods=1")
    namespace.run_guide("A bounded job")
    namespace.wait_until(lambda: "exceeded quota: small" in namespace.log(), "nobody says why")
