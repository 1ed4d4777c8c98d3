"""Checkpoints in an object store, over the real protocol: Arrow's S3 client and a server of its own (moto)."""

import logging
from urllib.parse import quote

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from penstock.hosting.checkpoints.reader import read_savepoint
from penstock.hosting.checkpoints.storage import CheckpointStorage
from penstock.hosting.file_systems import open_files
from penstock.hosting.ha.settings import ha_settings_of
from penstock.model.checkpoints import DatabaseHandle, OperatorSubtaskState
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
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

BUCKET = "bucket"
FILES = {"execution__checkpointing__data_inline_threshold": "0 b"}
"""All state in files of its own, however little there is."""


@pytest.fixture(scope="module")
def server():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    made.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield made
    made.stop()


class Store:
    """A bucket, as a client sees it that knows nothing of checkpoints."""

    def __init__(self, server) -> None:
        host, port = server.get_host_and_port()
        self._query = f"scheme=http&endpoint_override={quote(f'{host}:{port}')}&region=us-east-1"
        self.system, _ = fs.FileSystem.from_uri(
            f"s3://{BUCKET}?{self._query}&allow_bucket_creation=true"
        )
        self.system.create_dir(BUCKET)

    def uri(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}?{self._query}"

    def files(self, folder: str = "") -> list[str]:
        found = self.system.get_file_info(
            fs.FileSelector(f"{BUCKET}/{folder}".rstrip("/"), recursive=True)
        )
        return [one.path for one in found if one.type is fs.FileType.File]

    def change(self, path: str, change) -> None:
        with self.system.open_input_file(path) as file:
            data = file.read()
        with self.system.open_output_stream(path) as stream:
            stream.write(change(data))


@pytest.fixture
def store(server):
    made = Store(server)
    yield made
    made.system.delete_dir_contents(BUCKET)


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
    assert store.files() == []


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
    assert store.files() == []


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
    assert store.files() == []


def test_what_decides_who_leads_does_not_lie_in_a_bucket(store):
    """A rename that only one can win is what the directory has to give; object stores have none."""
    settings = Settings({
        "high-availability.type": "FILE",
        "high-availability.cluster-id": "c",
        "high-availability.storageDir": store.uri("ha"),
    })
    with pytest.raises(
        ConfigurationError, match="needs a local or mounted directory, not s3.*Checkpoints may"
    ):
        ha_settings_of(settings)
