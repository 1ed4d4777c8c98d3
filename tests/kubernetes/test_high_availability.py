"""High availability on Kubernetes: the store of jobs in ConfigMaps, and drivers' pods that are deleted by force or cut off."""

import contextlib
import itertools
import json
import subprocess
import sys

import pytest
import yaml
from kubernetes.config import kube_config

from penstock.engine.hosting.jobmanager.ha.document_store import DocumentJobStore
from penstock.engine.hosting.jobmanager.ha.kubernetes import ConfigMapDocuments
from penstock.engine.hosting.jobmanager.ha.settings import KubernetesSettings
from tests.kubernetes.test_jobs import LIMIT_S, cluster, namespace  # noqa: F401
from tests.tools.clusters.kubernetes import HOST
from tests.tools.hosting.job_entries import lease
from tests.tools.hosting.store_laws import *  # noqa: F403
from tests.tools.relay import Relay
from tests.tools.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.kubernetes]
KEY = "k" * 32
PORT = 5000
BUCKET = (
    f"s3://key:secret@drivers/ha?scheme=http&endpoint_override={HOST}%3A{PORT}&region=us-east-1"
)
IN_BUCKET = {"spark.penstock.high-availability.storageDir": BUCKET}
IN_CONFIG_MAPS = IN_BUCKET | {"spark.penstock.high-availability.type": "KUBERNETES"}
NUMBERS = itertools.count()


# ------------------------------------------------------------------ the store, over the real API


@contextlib.contextmanager
def reached(cluster, folder, *options):  # noqa: F811
    """The settings of a client outside of the sandbox. `options`: of kubectl."""
    socket = str(folder / f"api-{next(NUMBERS)}")
    command = ("kubectl", *options, "proxy", f"--unix-socket={socket}")
    with cluster.sandbox.start(*command, env=cluster.environment) as proxy:
        try:
            wait_until((folder / socket).exists, "kubectl does not listen", 60)
            with Relay(socket) as relay, pytest.MonkeyPatch.context() as patch:
                host, port = relay.address
                config = json.loads((folder / "config").read_text())
                config["clusters"][0]["cluster"] = {"server": f"http://{host}:{port}"}
                place = folder / f"{port}"
                place.write_text(json.dumps(config))
                patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(place))
                yield relay
        finally:
            proxy.kill()


@pytest.fixture(scope="module")
def folder(cluster, tmp_path_factory):  # noqa: F811
    made = tmp_path_factory.mktemp("clients")
    config = cluster.kubectl("config", "view", "--raw", "-o", "json")
    (made / "config").write_text(config)
    return made


@pytest.fixture(scope="module")
def api(cluster, folder):  # noqa: F811
    with reached(cluster, folder) as relay:
        yield relay


def store_of(name, tmp_path, limit_s=10):
    documents = ConfigMapDocuments(KubernetesSettings(name, None, limit_s))
    return DocumentJobStore(documents, str(tmp_path / "cluster"))


@pytest.fixture
def name():
    return f"own-{next(NUMBERS)}"


@pytest.fixture
def store(api, name, tmp_path):
    made = store_of(name, tmp_path)
    yield made
    made.close()


def test_its_config_maps_have_the_labels_of_flink(store, cluster, name):  # noqa: F811
    entry = store.create(KEY, b"job", lease("a"))
    labels = f"app={name},configmap-type=high-availability"
    assert cluster.kubectl("get", "-o", "name", "configmap", "-l", labels).split() == [
        str(entry.path.parent)
    ]


def test_two_clusters_of_a_namespace_do_not_meet(store, name, tmp_path):
    other = store_of(f"{name}-session", tmp_path)
    store.create(KEY, b"job", lease("a"))
    assert other.job_keys() == []
    other.close()


def test_a_missing_right_is_told_in_the_servers_words(cluster, folder, tmp_path):  # noqa: F811
    with reached(cluster, folder, "--as=system:serviceaccount:default:default"):
        refused = store_of("refused", tmp_path)
        words = "namespace 'default': configmaps .* is forbidden: User .* cannot get resource"
        with pytest.raises(OSError, match=words):
            refused.create(KEY, b"job", lease("a"))
        refused.close()


def test_a_namespace_that_is_missing_is_no_entry_of_another_driver(api, tmp_path):
    documents = ConfigMapDocuments(KubernetesSettings("any", "nowhere", 10))
    missing = DocumentJobStore(documents, str(tmp_path / "cluster"))
    with pytest.raises(OSError, match='namespaces "nowhere" not found'):
        missing.create(KEY, b"job", lease("a"))
    missing.close()


def test_a_step_fails_while_the_api_server_is_out_of_reach(cluster, folder, tmp_path):  # noqa: F811
    with reached(cluster, folder):
        held = store_of("cut-off", tmp_path, 1)
        entry = held.create(KEY, b"job", lease("a"))
    with pytest.raises(OSError, match="Kubernetes does not answer"):
        held.renew(entry, lease("a"))
    held.close()


# ------------------------------------------------------------------ drivers in pods


@pytest.fixture(scope="module")
def bucket(cluster):  # noqa: F811
    """A bucket that pods reach."""
    options = ("-H", HOST, "-p", str(PORT))
    with cluster.sandbox.start(
        sys.executable, "-m", "moto.server", *options, stderr=subprocess.DEVNULL
    ) as server:
        try:
            put = ("curl", "-sf", "-X", "PUT", f"http://{HOST}:{PORT}/drivers")
            wait_until(lambda: cluster.sandbox.run(*put).returncode == 0, "no bucket", 60)
            yield
        finally:
            server.kill()


@pytest.mark.parametrize(
    "namespace",
    [
        pytest.param(IN_BUCKET, id="bucket", marks=pytest.mark.long),
        pytest.param(IN_CONFIG_MAPS, id="config_maps"),
    ],
    indirect=True,
)
def test_a_driver_deleted_by_force_is_followed_by_one(bucket, namespace):  # noqa: F811
    """No directory is shared but that of the results and the checkpoints."""
    namespace.run_guide("A bounded job")
    namespace.wait_for_trap()
    former, executors = namespace.driver(), set(namespace.executors())
    namespace.kubectl("delete", "pod", former, "--force", "--grace-period=0")
    namespace.wait_until(lambda: "is taken over" in namespace.log(), "nobody takes it over")
    namespace.let_go()
    namespace.wait_for_job()
    assert namespace.driver() != former
    assert namespace.results().isdisjoint(executors)
    assert not (namespace.shared / "high-availability").exists()


@pytest.mark.parametrize("namespace", [IN_CONFIG_MAPS], ids=["config_maps"], indirect=True)
def test_of_two_replicas_one_takes_over_from_one_cut_off(bucket, namespace):  # noqa: F811
    """Its executors still reach it, and their tasks would go on."""
    (namespace.shared / "stay").touch()
    namespace.kubectl("create", "configmap", "counts", f"--from-file={namespace.folder}/counts.py")
    manifest = namespace.folder / "examples" / "kubernetes" / "deployment.yaml"
    found = yaml.safe_load(manifest.read_text())
    found["spec"]["replicas"] = 2
    manifest.write_text(yaml.safe_dump(found))
    namespace.run_guide("An unbounded job")
    namespace.wait_for_trap()
    drivers = namespace.pods("driver=counts")

    def waiting():
        logs = {one: namespace.kubectl("logs", one) for one in drivers}
        return [one for one in drivers if "waiting for its end" in logs[one]]

    (standby,) = namespace.wait_until(waiting, "nobody stands by")
    (leader,) = drivers.keys() - {standby}
    address = f"{drivers[leader]['status']['podIP']}/32"

    def route(action):
        words = ("ip", "route", action, "blackhole", address)
        assert namespace.cluster.sandbox.run(*words).returncode == 0

    def has_said(text, *words):
        return lambda: text in namespace.kubectl("logs", *words)

    route("add")
    try:
        namespace.wait_until(has_said("is taken over", standby), "nobody takes it over")
        namespace.wait_until(
            has_said("JobSuspendedError", "--previous", leader), "it is not fenced"
        )
        namespace.let_go()
        namespace.wait_until(namespace.results, "nobody ends the job")
    finally:
        route("delete")
