"""High availability with Kubernetes: settings that cannot be. tests/kubernetes has the rest, on Kubernetes itself."""

import sys

import pytest
from kubernetes.config import kube_config

from penstock.engine.hosting.jobmanager.ha.kubernetes import ConfigMapDocuments, _kubernetes
from penstock.engine.hosting.jobmanager.ha.settings import (
    KubernetesSettings,
    ha_settings_of,
    recovery_directory_of,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.cli.arguments import parser
from penstock.ops.cli.programs import store_settings
from tests.tools.programs.failover_programs import configured


def settings(folder, **more):
    return Settings(configured(folder) | {"high-availability.type": "kubernetes"} | more)


@pytest.mark.parametrize(
    "place", ["hdfs://nn:8020/ha", "gs://bucket/ha", "s3://bucket/ha?region=r"]
)
def test_large_values_may_be_in_any_file_system(tmp_path, place):
    told = settings(tmp_path, **{"high-availability.storageDir": place})
    found = ha_settings_of(told)
    before, mark, query = place.partition("?")
    assert found.root == f"{before}/tests{mark}{query}"
    assert found.elsewhere == KubernetesSettings("tests", None, 1.0)
    assert recovery_directory_of(told) == f"{before}/tests-checkpoints{mark}{query}"


@pytest.mark.parametrize("name", ["Tests", "a_b", "a" * 64, "a-", "a/b"])
def test_a_cluster_id_must_be_a_label(tmp_path, name):
    with pytest.raises(ConfigurationError, match="cluster-id is .* must be a label"):
        ha_settings_of(settings(tmp_path, **{"high-availability.cluster-id": name}))


def test_a_namespace_may_be_named(tmp_path):
    found = ha_settings_of(settings(tmp_path, **{"kubernetes.namespace": "streams"}))
    assert found.elsewhere.namespace == "streams"


def test_a_driver_without_the_package_is_told_so(monkeypatch):
    _kubernetes.cache_clear()
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(ConfigurationError, match=r"cannot be imported.*penstock\[kubernetes\]"):
        ConfigMapDocuments(KubernetesSettings("tests", None, 1))
    _kubernetes.cache_clear()


def test_a_driver_that_knows_no_cluster_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="runs in no pod .* kubectl has no settings here"):
        ConfigMapDocuments(KubernetesSettings("tests", None, 1)).names()


def test_the_command_that_recovers_finds_the_store():
    line = ["recover", "--cluster-id", "c", "--storage-dir", "s3://bucket/ha", "--kubernetes"]
    found = ha_settings_of(Settings(store_settings(parser().parse_args(line))))
    assert (found.elsewhere.cluster_id, found.root) == ("c", "s3://bucket/ha/c")
