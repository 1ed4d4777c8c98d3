"""Partitions in files: this user's alone, and read only if nobody else can have changed them."""

import pytest

from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.hosting.spark.dataframes.feed_reader import Position
from penstock.engine.hosting.spark.dataframes.spool import SpoolStream, write_partition
from tests.tools.permissions import open_to_others, umask


@pytest.fixture
def file(tmp_path):
    with umask(0):
        return write_partition(str(tmp_path / "below" / "spool"), 3, [b"one", b"two"])


def test_a_partition_is_this_users_alone(file, tmp_path):
    assert open_to_others(tmp_path) == {}
    stream = SpoolStream(file, Position())
    assert [stream.next(), stream.next(), stream.next()] == [b"one", b"two", None]


@pytest.mark.parametrize("place", ["below", "below/spool", "below/spool/{name}"])
def test_a_partition_that_others_may_write_is_not_read(file, tmp_path, place):
    opened = tmp_path / place.format(name=file.name)
    opened.chmod(0o770)
    with pytest.raises(NotPrivate, match=f"other users may write to '{opened}'"):
        SpoolStream(file, Position()).next()
