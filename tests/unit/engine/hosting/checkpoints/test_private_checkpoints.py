"""A checkpoint is restored only from files that nobody else can have changed, wherever they lie."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.os.file_systems import LocalFiles, check_private
from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.model.checkpoints import (
    ChannelStateHandle,
    DatabaseHandle,
    KeyedStateHandle,
    OperatorSubtaskState,
)
from tests.tools.hosting.stored_checkpoints import JOB, LARGE, checkpoint
from tests.tools.permissions import AS_ROOT, SOMEBODY, mode, open_to_others, umask

PARTS = ["metadata", "state", "shared", "in flight"]
BOTH = pytest.mark.parametrize("is_file", [True, False], ids=["the file", "its folder"])


@pytest.fixture
def storage(tmp_path):
    return CheckpointStorage(str(tmp_path / "checkpoints"), JOB)


@pytest.fixture
def places(storage, tmp_path):
    """A checkpoint with a file of state, a file that later ones share, and data in flight in another
    folder: the files by what they are.
    """
    folder = storage.folder_of(7)
    writer, elsewhere = storage.writer(folder, 0), storage.writer(str(tmp_path / "elsewhere"), 0)
    state, shared, in_flight = writer.add(LARGE), writer.share(LARGE), elsewhere.add(LARGE)
    writer.close()
    elsewhere.close()
    held = OperatorSubtaskState(
        keyed=(KeyedStateHandle(0, 127, (0,), state),),
        databases=(DatabaseHandle("", 0, 127, (("1.sst", shared),)),),
        inputs_in_flight=(ChannelStateHandle(None, 0, in_flight),),
    )
    done = storage.complete(checkpoint(7, held), folder)
    handles = {"state": state, "shared": shared, "in flight": in_flight}
    found = {name: Path(handle.path) for name, handle in handles.items()}
    found["metadata"] = Path(done.location)
    assert len({path.parent for path in found.values()}) == 3
    return found


def restored(storage, given):
    """As far as the driver reads it when a job is submitted."""
    found = storage.load_given(str(given))
    storage.probe(found)
    return found


def refused(storage, given, place) -> None:
    with pytest.raises(NotPrivate, match=r"If you trust its content, .*(chmod|chown)") as error:
        restored(storage, given)
    assert f"other users may write to {str(place)!r}" in str(error.value)


@BOTH
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("bits", [stat.S_IWGRP, stat.S_IWOTH], ids=["its group", "all"])
def test_what_others_may_write_is_not_restored(storage, places, part, bits, is_file):
    place = places[part] if is_file else places[part].parent
    given = places["metadata"].parent
    restored(storage, given)
    former = mode(place)
    place.chmod(former | bits)
    refused(storage, given, place)
    refused(storage, places["metadata"], place)
    place.chmod(former)
    storage.verify(restored(storage, given))


@AS_ROOT
@BOTH
@pytest.mark.parametrize("part", PARTS)
def test_what_belongs_to_another_user_is_not_restored(storage, places, part, is_file):
    place = places[part] if is_file else places[part].parent
    os.chown(place, SOMEBODY, SOMEBODY)
    refused(storage, places["metadata"].parent, place)


def test_what_others_may_rename_is_not_restored(storage, places, tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    (tmp_path / "elsewhere").rename(above / "elsewhere")
    (tmp_path / "elsewhere").symlink_to(above / "elsewhere")
    restored(storage, places["metadata"].parent)
    above.chmod(0o770)
    refused(storage, places["metadata"].parent, above)


def test_a_link_into_a_place_of_others_is_not_followed(storage, places, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    shutil.move(places["state"], shared / "state")
    places["state"].symlink_to(shared / "state")
    refused(storage, places["metadata"].parent, shared)


def test_tasks_and_the_driver_refuse_alike(storage, places):
    """A task reads a part; the driver reads the end of each file, and what a former driver recorded."""
    found = restored(storage, places["metadata"].parent)
    (held,) = found.operators[0].subtasks
    places["state"].chmod(0o660)
    with pytest.raises(NotPrivate):
        storage.read(held.keyed[0].handle)
    with pytest.raises(NotPrivate):
        storage.verify(found)
    places["metadata"].chmod(0o660)
    with pytest.raises(NotPrivate):
        storage.load(found.location)
    with pytest.raises(NotPrivate):
        storage.newest()


def test_only_what_is_never_unpickled_may_be_read_of_others(places, tmp_path):
    for place in places.values():
        place.chmod(0o666)
    looking = CheckpointStorage(str(tmp_path / "checkpoints"), JOB, is_checked=False)
    looking.verify(restored(looking, places["metadata"].parent))


@pytest.mark.parametrize("bits", [0o000, 0o002], ids="{:03o}".format)
def test_all_files_are_this_users_alone_whatever_the_umask_is(request, bits, tmp_path):
    with umask(bits):
        places = request.getfixturevalue("places")
    assert open_to_others(tmp_path) == {}
    for place in places.values():
        assert (mode(place), mode(place.parent)) == (0o600, 0o700)


def test_a_folder_that_others_may_write_is_told_of_before_anything_is_stored(storage, tmp_path):
    storage.check()
    root = Path(storage.root)
    assert list(root.iterdir()) == []
    root.chmod(0o770)
    with pytest.raises(NotPrivate):
        storage.check()
    with pytest.raises(NotPrivate):
        storage.writer(storage.folder_of(1), 0).add(LARGE)
    assert list(root.iterdir()) == []
    with pytest.raises(NotPrivate):
        check_private(f"file://{root}/below")
    check_private(f"file://{tmp_path}/below")
    check_private("mock:///shared")  # such a file system has rules of access of its own


def test_a_file_is_exchanged_too_late(places, monkeypatch):
    """Between the check of a file and its reading."""
    opened = LocalFiles.opened

    def then_exchanged(files, path):
        file = opened(files, path)
        places["metadata"].replace(path)
        return file

    monkeypatch.setattr(LocalFiles, "opened", then_exchanged)
    assert LocalFiles().read(str(places["state"])) == LARGE
