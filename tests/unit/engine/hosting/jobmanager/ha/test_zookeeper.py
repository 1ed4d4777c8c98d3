"""High availability with ZooKeeper: jobs end to end, a server that goes away, and settings that cannot be."""

import sys

import pytest

from penstock.engine.hosting.jobmanager.ha.document_store import DocumentJobStore
from penstock.engine.hosting.jobmanager.ha.election import Claim, Standby
from penstock.engine.hosting.jobmanager.ha.settings import ZookeeperSettings, ha_settings_of
from penstock.engine.hosting.jobmanager.ha.zookeeper import ZookeeperDocuments, _kazoo
from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.machines.leases import Lease
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.ops.cli.arguments import parser
from penstock.ops.cli.programs import store_settings
from tests.tools.permissions import open_to_others, umask
from tests.tools.programs.failover_programs import (
    configured,
    ha_environment,
    holding,
    numbers_to_file,
    other_driver,
    result_of,
)
from tests.tools.zookeeper import zookeeper_server

KEY = "f" * 32


def of(zookeeper, folder):
    return {
        "high-availability.type": "ZOOKEEPER",
        "high-availability.zookeeper.quorum": zookeeper.quorum,
        "high-availability.cluster-id": folder.name,
    }


def test_a_job_has_an_entry_while_it_runs(zookeeper, tmp_path):
    env = ha_environment(tmp_path, **of(zookeeper, tmp_path))
    other = other_driver(tmp_path, **of(zookeeper, tmp_path))
    with holding("zookeeper") as held:
        numbers_to_file(env, tmp_path, held)
        client = env.execute_async("numbers")
        held.wait()
        (key,) = other.store.job_keys()
        assert other.store.lease(other.store.find(key)).job_name == "numbers"
    client.get_job_execution_result().result()
    assert other.store.job_keys() == []
    assert other.store.ended(key).status == "FINISHED"
    other.store.close()
    assert result_of(tmp_path) == list(range(10))


def test_a_file_that_others_may_write_is_not_read(zookeeper, tmp_path):
    driver = other_driver(tmp_path, **of(zookeeper, tmp_path))
    with umask(0):
        entry = driver.store.create(KEY, b"job", Lease(0, "a", "1" * 32, "n", 0, 1))
    (file,) = (tmp_path / "ha" / tmp_path.name).iterdir()
    assert open_to_others(file.parent) == {}
    assert driver.store.read(entry, "job") == b"job"
    file.chmod(0o660)
    with pytest.raises(NotPrivate, match=f"chmod -R g-w {file.parent}"):
        driver.store.read(entry, "job")
    driver.store.drop(entry)
    driver.store.close()


def test_a_driver_without_a_sign_of_life_loses_its_job(zookeeper, tmp_path):
    one, other = (other_driver(tmp_path, **of(zookeeper, tmp_path)) for _ in range(2))
    entry = one.store.create(KEY, b"not a job", Lease(0, "a", "1" * 32, "n", 0, 1))
    standby = Standby()
    with pytest.raises(ExternalError, match="cannot be opened here"):
        while not isinstance(other.try_claim(KEY, None, standby), Claim):
            pass
    assert other.store.find(KEY).token == entry.token + 1
    for election in (one, other):
        election.store.close()


@pytest.mark.server
def test_steps_fail_while_the_server_is_away_and_work_again_when_it_is_back(tmp_path):
    with zookeeper_server() as own:
        settings = ZookeeperSettings(own.quorum, "/jobs", 10_000, 10_000, 1000)
        store = DocumentJobStore(ZookeeperDocuments(settings), str(tmp_path))
        held = Lease(0, "a", "1" * 32, "n", 0, 600)
        entry = store.create(KEY, b"job", held)
        own.stop()
        with pytest.raises(OSError, match="does not answer"):
            store.renew(entry, held)
        own.start()
        while True:  # the client connects again in its own time
            try:
                store.renew(entry, held)
                break
            except OSError:
                continue
        assert store.read(entry, "job") == b"job"
        store.close()


def test_a_server_that_is_not_there_is_told_of(tmp_path):
    settings = ZookeeperSettings("127.0.0.1:1", "/jobs", 1000, 200, 1000)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1 cannot be reached within 200 ms"):
        ZookeeperDocuments(settings).names()


def test_the_command_that_recovers_finds_the_store(tmp_path):
    line = [
        "recover",
        "--cluster-id",
        "c",
        "--storage-dir",
        str(tmp_path),
        "--zookeeper",
        "h:1,h:2",
    ]
    settings = ha_settings_of(Settings(store_settings(parser().parse_args(line))))
    assert (settings.elsewhere.quorum, settings.elsewhere.root) == ("h:1,h:2", "/flink/c")


def test_a_quorum_is_needed(tmp_path):
    told = configured(tmp_path) | {"high-availability.type": "ZOOKEEPER"}
    with pytest.raises(ConfigurationError, match=r"high-availability\.zookeeper\.quorum must name"):
        ha_settings_of(Settings(told))


def test_a_driver_without_the_package_is_told_so(tmp_path, monkeypatch):
    _kazoo.cache_clear()
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    settings = ZookeeperSettings("127.0.0.1:1", "/jobs", 1000, 200, 1000)
    with pytest.raises(
        ConfigurationError, match=r"'kazoo' cannot be imported.*penstock\[zookeeper\]"
    ):
        ZookeeperDocuments(settings)
    _kazoo.cache_clear()
