"""Jobs in a directory: crashes in every step, signatures, what is left behind."""

import os
from pathlib import Path

import pytest

from penstock.engine.hosting.jobmanager.ha import store as ha_store
from penstock.engine.hosting.jobmanager.ha.settings import ha_settings_of, make_private
from penstock.engine.hosting.jobmanager.ha.store import FileJobStore, LeaseTaken
from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from tests.tools.hosting.job_entries import ended, lease
from tests.tools.permissions import AS_ROOT, SOMEBODY, mode, open_to_others, umask

KEY = "k" * 32


@pytest.fixture
def store(tmp_path):
    make_private(str(tmp_path / "cluster"), b"")
    return FileJobStore(tmp_path / "cluster")


def test_of_an_entry_that_ended_its_end_is_all_that_is_left(store):
    entry = store.create(KEY, b"job", lease("a"))
    store.remove(entry, ended(entry))
    assert sorted(os.listdir(entry.path.parent)) == ["ended", "lock"]


def crash_at(monkeypatch, module, name):
    """The process dies at the first call of this function."""

    def die(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, die)


def test_a_crash_while_an_entry_is_written_leaves_none(store, tmp_path, monkeypatch):
    entries = tmp_path / "cluster" / KEY
    with monkeypatch.context() as patch:
        crash_at(patch, ha_store.private_files, "sync_folder")  # all is written, nothing is renamed
        with pytest.raises(KeyboardInterrupt):
            store.create(KEY, b"job", lease("a"))
    assert [n for n in os.listdir(entries) if n.startswith("new-")]
    assert store.find(KEY) is None
    assert store.job_keys() == []
    entry = store.create(KEY, b"another", lease("b"))
    assert store.read(entry, "job") == b"another"
    assert not [n for n in os.listdir(entries) if n.startswith("new-")]


def test_a_crash_while_a_result_is_written_leaves_none(store, monkeypatch):
    entry = store.create(KEY, b"job", lease("a"))
    with monkeypatch.context() as patch:
        patch.setattr(ha_store.os, "fsync", lambda _: 1 / 0)  # written, not durable, not renamed
        with pytest.raises(ZeroDivisionError):
            store.put(entry, "result", b"half")
    assert store.read(store.take(entry, lease("b")), "result") is None


def test_a_crash_while_an_entry_is_taken_leaves_it_to_be_taken(store, monkeypatch):
    former = store.create(KEY, b"job", lease("a"))
    with monkeypatch.context() as patch:
        crash_at(patch, ha_store, "_write_durably")  # it has its new name, and the former lease
        with pytest.raises(KeyboardInterrupt):
            store.take(former, lease("b"))
    left = store.find(KEY)
    assert (left.token, store.lease(left).owner) == (2, "a")
    with pytest.raises(LeaseTaken):
        store.renew(former, lease("a"))
    assert store.take(left, lease("c")).token == 3


def test_a_crash_while_an_entry_is_removed_leaves_it_with_its_result(store, monkeypatch):
    entry = store.create(KEY, b"job", lease("a"))
    store.put(entry, "result", b"how it ends")
    with monkeypatch.context() as patch:
        patch.setattr(ha_store.Path, "rename", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.remove(entry, ended(entry))
    assert store.read(store.take(entry, lease("b")), "result") == b"how it ends"


@pytest.mark.parametrize("damage", [b"", b"x", b"PENSTOCK-HA-1 ", None])
def test_a_damaged_job_is_refused_unread(store, damage):
    entry = store.create(KEY, b"job", lease("a"))
    path = entry.path / "job"
    path.write_bytes(path.read_bytes()[:-1] + b"!" if damage is None else damage)
    with pytest.raises(ExternalError, match="damaged"):
        store.read(entry, "job")


def test_a_job_of_another_key_is_refused_unread(store, tmp_path):
    entry = store.create(KEY, b"job", lease("a"))
    with pytest.raises(ExternalError, match="key-file"):
        FileJobStore(tmp_path / "cluster", b"secret of 16 bytes").read(entry, "job")


def test_a_damaged_lease_runs_out_like_any_other(store):
    entry = store.create(KEY, b"job", lease("a"))
    (entry.path / "lease").write_bytes(b"\0\0\0")
    assert store.lease(entry).duration_ms == 60_000
    store.renew(entry, lease("a"))
    assert store.lease(entry).duration_ms == 1000


# ------------------------------------------------------------------ settings


def settings(tmp_path, **values) -> Settings:
    told = {
        "high-availability.type": "FILE",
        "high-availability.storageDir": str(tmp_path),
        "high-availability.cluster-id": "/nightly/a",
    }
    return Settings(told | {key.replace("__", "-"): value for key, value in values.items()})


def test_a_cluster_id_is_one_directory(tmp_path):
    assert ha_settings_of(Settings()) is None
    found = ha_settings_of(settings(tmp_path))
    assert found.root == str(tmp_path / "nightly%2Fa")
    assert (found.lease_ms, found.renew_ms) == (5000, 1000)


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}"])
def test_a_storage_directory_may_be_a_uri(tmp_path, form):
    told = settings(tmp_path, **{"high-availability.storageDir": form.format(tmp_path)})
    assert ha_settings_of(told).root == str(tmp_path / "nightly%2Fa")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("high-availability.type", "ZOOKEEPER", "quorum must name"),
        ("high-availability.type", "kubernetes", "'nightly/a', which must be a label"),
        ("high-availability.type", "nonsense", "NONE, FILE, ZOOKEEPER, KUBERNETES"),
        ("high-availability.storageDir", "gs://bucket/ha", "or s3://, not gs://"),
        ("high-availability.storageDir", "s3://bucket/ha", "'nightly/a', of which an address"),
        ("high-availability.storageDir", "", "must name a directory"),
        ("high-availability.cluster-id", "/", "cluster-id is empty"),
        ("penstock.high-availability.renew-interval", "3 s", "half of the lease"),
        ("penstock.high-availability.key-file", "/nowhere/at/all", "cannot read"),
    ],
)
def test_settings_that_cannot_work_say_so(tmp_path, key, value, told):
    with pytest.raises(ConfigurationError, match=told):
        ha_settings_of(settings(tmp_path, **{key: value}))


def test_a_key_file_is_secret_and_long_enough(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(b"0123456789abcdef\n")
    file.chmod(0o644)
    chosen = {"penstock.high-availability.key-file": str(file)}
    with pytest.raises(ConfigurationError, match="chmod 600"):
        ha_settings_of(settings(tmp_path, **chosen))
    file.chmod(0o600)
    assert ha_settings_of(settings(tmp_path, **chosen)).key == b"0123456789abcdef"
    file.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="16"):
        ha_settings_of(settings(tmp_path, **chosen))


def test_a_directory_that_others_write_needs_a_key(tmp_path):
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(ConfigurationError, match="key-file"):
        make_private(str(root), b"")
    make_private(str(root), b"a key")


@pytest.mark.parametrize("bits", [0o770, 0o702], ids="{:o}".format)
def test_a_directory_below_one_that_others_write_needs_a_key(tmp_path, bits):
    """They could rename the cluster's and put their own in its place."""
    storage = tmp_path / "storage"
    storage.mkdir()
    make_private(str(storage / "cluster"), b"")
    storage.chmod(bits)
    with pytest.raises(ConfigurationError, match=rf"'{storage}'.*chmod \w+-w {storage} .*key-file"):
        make_private(str(storage / "cluster"), b"")
    make_private(str(storage / "cluster"), b"a key")


@pytest.mark.parametrize("place", [".", "job"], ids=["its folder", "the file"])
@pytest.mark.parametrize("bits", [0o020, 0o002], ids="{:o}".format)
def test_an_entry_that_others_may_write_is_read_only_with_a_key(store, tmp_path, place, bits):
    make_private(str(tmp_path / "signed"), b"a key")
    signed = FileJobStore(tmp_path / "signed", b"a key")
    for one, is_read in ((store, False), (signed, True)):
        entry = one.create(KEY, b"job", lease("a"))
        assert one.read(entry, "job") == b"job"
        opened = Path(entry.path) / place
        opened.chmod(mode(opened) | bits)
        if is_read:
            assert one.read(entry, "job") == b"job"
        else:
            with pytest.raises(NotPrivate, match=f"other users may write to '{opened}'"):
                one.read(entry, "job")


@AS_ROOT
def test_an_entry_of_another_user_is_not_read_without_a_key(store):
    entry = store.create(KEY, b"job", lease("a"))
    os.chown(Path(entry.path) / "job", SOMEBODY, SOMEBODY)
    with pytest.raises(NotPrivate, match=f"belongs to .*{SOMEBODY}"):
        store.read(entry, "job")


def test_all_of_a_store_is_this_users_alone_whatever_the_umask_is(tmp_path):
    with umask(0):
        make_private(str(tmp_path / "new" / "cluster"), b"")
        store = FileJobStore(tmp_path / "new" / "cluster")
        entry = store.create(KEY, b"job", lease("a"))
        store.renew(entry, lease("a"))
        entry = store.take(entry, lease("b"))
        store.put(entry, "checkpoints", b"[]")
        store.put(entry, "result", b"result")
        assert open_to_others(tmp_path) == {}
        store.remove(entry, ended(entry))
    assert open_to_others(tmp_path) == {}


def test_a_key_that_others_could_exchange_is_none(tmp_path):
    file = tmp_path / "keys" / "key"
    file.parent.mkdir()
    file.write_bytes(b"0123456789abcdef")
    file.chmod(0o600)
    file.parent.chmod(0o770)
    chosen = {"penstock.high-availability.key-file": str(file)}
    with pytest.raises(
        ConfigurationError, match=rf"key-file: cannot read.*chmod g-w {file.parent}"
    ):
        ha_settings_of(settings(tmp_path, **chosen))
