"""What an attempt leaves to others at a handover, and takes from them, over loopback sockets."""

import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.taskmanager.task.handover import Handover
from penstock.engine.model.checkpoints import (
    CheckpointOptions,
    FileHandle,
    InlineHandle,
    TaskCheckpointing,
)
from penstock.engine.model.ids import ResourceId
from penstock.engine.runtime.elements import CheckpointBarrier
from tests.tools.identities import new_credentials

HELD = CheckpointBarrier(7, 0, CheckpointOptions(is_held=True))
USUAL = CheckpointBarrier(7, 0, CheckpointOptions())
DATA = b"state" * 10_000
PATH = "/checkpoints"


@pytest.fixture
def planes():
    credentials = new_credentials()
    made = [
        DataPlane(ResourceId(f"tm-{i}"), Endpoint("127.0.0.1"), credentials).start() for i in (1, 2)
    ]
    yield made
    for one in made:
        one.close()


def at(plane, check_goes_on=lambda: None, room=1 << 30, directory="s3://bucket/checkpoints"):
    """What an attempt at this TaskManager has."""
    settings = SimpleNamespace(checkpointing=TaskCheckpointing(directory, kept_bytes=room))
    host = SimpleNamespace(data_plane=plane, host_name="127.0.0.1", task_settings=settings)
    return Handover(SimpleNamespace(host=host, check_goes_on=check_goes_on))


def written(data=DATA, offset=0):
    return FileHandle("chk-7/x", offset, len(data), zlib.crc32(data))


def test_an_attempt_elsewhere_and_one_here_take_the_same(planes):
    one, other = planes
    handle = at(one).keeper(HELD)(written(), DATA)
    assert handle == written(), "where it is kept is no part of what it is"
    assert at(other).read(handle) == DATA
    assert at(one).read(handle) is DATA


def test_what_another_process_of_this_machine_wrote_is_read_as_a_file(planes):
    """If it is one: the page cache has it. What this TaskManager keeps itself is nearer still."""
    one, other = planes
    handle = at(one).keeper(HELD)(written(), DATA)
    assert at(other, directory=PATH).read(handle) is None
    assert at(one, directory=PATH).read(handle) is DATA
    far = replace(handle, kept_by=replace(handle.kept_by, host="localhost"))
    assert at(other, directory=PATH).read(far) == DATA


def test_only_the_snapshot_of_a_handover_is_kept_as_far_as_there_is_room(planes):
    one, _ = planes
    assert at(one).keeper(USUAL)(written(), DATA).kept_by is None
    keep = at(one, room=len(DATA)).keeper(HELD)
    assert keep(written(), DATA).kept_by is not None
    assert keep(written(DATA, len(DATA)), DATA).kept_by is None


def test_what_nobody_keeps_is_read_elsewhere(planes):
    one, _ = planes
    assert at(one).read(written()) is None
    assert at(one).read(InlineHandle(b"x", zlib.crc32(b"x"))) is None


def test_what_arrives_is_checked_and_who_sent_it_is_not_asked_again(planes):
    one, other = planes
    keep = at(one).keeper(HELD)
    good, bad = keep(written(), DATA), keep(written(DATA, len(DATA)), b"other" * 10_000)
    taking = at(other)
    assert [taking.read(handle) for handle in (good, bad, good)] == [DATA, None, None]


def test_a_taskmanager_that_is_gone_is_asked_once(planes):
    one, other = planes
    handle = at(one).keeper(HELD)(written(), DATA)
    one.close()
    checks = []
    taking = at(other, lambda: checks.append("waits"))
    assert taking.read(handle) is None
    count = len(checks)
    assert taking.read(handle) is None
    assert len(checks) == count


def test_it_is_forgotten_with_its_checkpoint(planes):
    one, other = planes
    keeping = at(one)
    handle = keeping.keeper(HELD)(written(), DATA)
    keeping.forget(lambda checkpoint_id: checkpoint_id < 8)
    assert keeping.read(handle) is None
    assert at(other).read(handle) is None
