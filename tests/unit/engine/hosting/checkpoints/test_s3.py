"""Checkpoints in an object store, over the real protocol: Arrow's S3 client and a server of its own (moto)."""

import pytest

from penstock.engine.hosting.checkpoints.reader import read_savepoint
from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.os import s3_objects
from penstock.engine.hosting.os.file_systems import CheckpointIoError, open_files
from penstock.engine.model.checkpoints import DatabaseHandle, OperatorSubtaskState
from tests.tools.hosting.stored_checkpoints import JOB, LARGE, checkpoint, stored
from tests.tools.output_files import files_below
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Stage,
    Watcher,
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.user_functions import same

FILES = {"execution__checkpointing__data_inline_threshold": "0 b"}
"""All state in files of its own, however little there is."""


@pytest.fixture
def store(object_store):
    return object_store


def test_a_job_goes_on_from_a_checkpoint_in_a_bucket_and_leaves_nothing_there(store, tmp_path):
    stage = Stage("s3")
    watcher = Watcher(stage)
    source = HeldSource(stage.name, splits=2, count=30, hold=15)
    env = restarting_environment(watcher, execution__checkpointing__dir=store.uri("jobs"), **FILES)
    env.enable_checkpointing(50)
    sums_to_file(env, tmp_path / "out", source, FailsOnce(stage.name, 20))
    env.execute("s3")
    assert watcher.restored[-1] is not None
    assert lines_of(tmp_path / "out") == expected_sums(2, 30)
    assert store.objects() == []


def held_job(stage, out, **settings):
    """Client of a job whose sources stand still at their fifth number."""
    env = restarting_environment(Watcher(), **settings, **FILES)
    sums_to_file(env, out, HeldSource(stage.name, splits=2, count=10, hold=5), same)
    client = env.execute_async(stage.name)
    stage.wait_until_held(2)
    wait_until_running(client)
    return client


@pytest.mark.parametrize("is_savepoint_local", [True, False])
def test_a_savepoint_may_lie_in_another_file_system_than_the_checkpoints(
    store, tmp_path, is_savepoint_local
):
    places = [(tmp_path / "here").as_uri(), store.uri("there")]
    beside, target = places[:: -1 if is_savepoint_local else 1]
    first = Stage(f"savepoint to {is_savepoint_local}")
    client = held_job(first, tmp_path / "first", execution__checkpointing__dir=beside)
    folder = client.trigger_savepoint(target).result()
    client.cancel().result()
    first.gate.set()
    assert open_files(folder)[1].startswith(open_files(target)[1])
    savepoint = read_savepoint(folder)
    assert any(view.keyed for view in savepoint.operators())

    second = Stage(f"from {is_savepoint_local}")
    second.gate.set()
    restored = {"execution__state_recovery__path": folder}
    env = restarting_environment(Watcher(), execution__checkpointing__dir=beside, **restored)
    env.enable_checkpointing(1000)
    source = HeldSource(second.name, splits=2, count=10, hold=5)
    sums_to_file(env, tmp_path / "second", source, same)
    env.execute("goes on")
    before = expected_sums(2, 5)
    assert lines_of(tmp_path / "second") == [
        one for one in expected_sums(2, 10) if one not in before
    ]
    read_savepoint(folder).dispose()
    assert store.files("there") == []
    assert not files_below(tmp_path / "here")


def test_checkpoints_in_a_bucket_make_no_empty_objects_for_folders(store):
    storage = CheckpointStorage(store.uri("plain"), JOB)
    for number in (1, 2):
        stored(storage, number, LARGE)
    keys = store.objects()
    assert any("chk-2/_metadata" in key for key in keys)
    assert [key for key in keys if key.endswith("/")] == []


@pytest.mark.parametrize("has_boto3", [True, False])
def test_what_is_removed_leaves_no_empty_object_for_its_folder(store, monkeypatch, has_boto3):
    """Arrow alone cannot do that."""
    if not has_boto3:
        monkeypatch.setattr(s3_objects.importlib.util, "find_spec", lambda _name: None)
    files, folder = open_files(store.uri("top"))
    for name in ("one/a", "one/deep/b", "two/c", "other"):
        files.put_new(f"{folder}/{name}", b"x")
    store.write("topmost", b"another one's")
    files.remove(f"{folder}/one")
    files.remove(f"{folder}/two/c")
    files.remove(f"{folder}/never/there")
    assert [one.removeprefix("bucket/") for one in store.files()] == ["top/other", "topmost"]
    if has_boto3:
        assert store.objects() == ["top/other", "topmost"]
    files.remove(f"{folder}/other")
    files.remove(folder)
    assert [one.removeprefix("bucket/") for one in store.files()] == ["topmost"]


def test_a_whole_bucket_is_never_removed(store):
    store.write("theirs", b"x")
    files, _ = open_files(store.uri(""))
    with pytest.raises(CheckpointIoError, match="'bucket' is a whole bucket"):
        files.remove("bucket")
    assert store.objects() == ["theirs"]


def test_many_objects_go_with_their_folder(store, monkeypatch):
    monkeypatch.setattr(s3_objects, "_AT_ONCE", 3)
    for number in range(7):
        store.write(f"many/{number}", b"x")
    files, folder = open_files(store.uri("many"))
    files.remove(folder)
    assert store.objects() == []


def test_credentials_and_server_of_a_uri_are_used(object_store_server, store):
    store.write("keys/one", b"x")
    uri = store.uri("keys").replace("s3://", "s3://me:my%2Fsecret@")
    assert s3_objects.s3_objects(uri) is not None
    files, folder = open_files(uri)
    files.remove(folder)
    assert store.objects() == []


@pytest.mark.parametrize("uri", ["gs://bucket/x", "s3://bucket/x?tls_verify_certificates=false"])
def test_what_boto3_is_not_told_by_a_uri_is_left_to_arrow(uri):
    assert s3_objects.s3_objects(uri) is None


def test_damage_in_a_bucket_is_found_and_the_checkpoint_before_is_used(store):
    storage = CheckpointStorage(store.uri("damage"), JOB)
    for number in (1, 2, 3, 4):
        done = stored(storage, number, LARGE)

    def state(number):
        (path,) = [
            one for one in store.files("damage") if f"chk-{number}/" in one and "_meta" not in one
        ]
        return path

    store.change(state(2), lambda data: data[:-1])
    store.change(state(3), lambda data: b"x" + data[1:])
    store.system.delete_file(state(4))
    newest, damaged = storage.newest()
    assert newest.checkpoint_id == 1
    assert [("missing" in text, "altered" in text, "short" in text) for text in damaged] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    with pytest.raises(Exception, match="exists"):
        storage.complete(done, storage.folder_of(1))
    assert storage.sweep([1]) == [storage.folder_of(number) for number in (2, 3, 4)]
    storage.discard(newest)
    storage.remove_if_empty()
    assert store.objects() == []


def test_shared_files_in_a_bucket_go_with_the_last_checkpoint_that_needs_them(store):
    storage = CheckpointStorage(store.uri("shared"), JOB)

    def share(number, *handles):
        writer = storage.writer(storage.folder_of(number), 0, number)
        own = writer.share(b"%d" % number)
        files = tuple((f"{place}.sst", one) for place, one in enumerate((*handles, own)))
        state = OperatorSubtaskState(databases=(DatabaseHandle("state/", 0, 127, files),))
        writer.close()
        return storage.complete(checkpoint(number, state), storage.folder_of(number)), own

    _, oldest = share(1)
    second, own = share(2, oldest)
    third, _ = share(3, own)
    assert len(store.files("shared")) == 6
    read_savepoint(store.uri(f"shared/{JOB}/chk-1")).dispose()
    assert len(store.files("shared")) == 5, "the second one needs the file of the first"
    read_savepoint(store.uri(f"shared/{JOB}/chk-2")).dispose()
    assert {
        storage.read(one) for state in third.operators[0].subtasks for one in state.handles
    } == {b"2", b"3"}
    assert len(store.files("shared")) == 3
    read_savepoint(store.uri(f"shared/{JOB}/chk-3")).dispose()
    assert store.objects() == []
