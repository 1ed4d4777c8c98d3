"""The file of an archive: what is in it, who may read it, and what is left when it cannot be written."""

import json
import os
import stat

import pytest

from penstock.engine.hosting.os import file_systems
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.os.file_systems import CheckpointIoError
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId
from penstock.ops.history import library as module
from penstock.ops.history.library import (
    ArchiveDamaged,
    ArchiveExists,
    is_id,
    read_archive,
    write_archive,
)

JOB = JobId("a" * 32)


def written(folder, entries):
    write_archive(str(folder), JOB, entries)
    return (folder / JOB).read_bytes()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_an_answer_is_json_as_a_text_as_flink_writes_it(tmp_path):
    answer = {"name": 'ä "€" \\ 𝄞\n', "n": 1.5}
    file = json.loads(written(tmp_path, [("/jobs/overview", answer), ("/x", [1, None])]))
    assert [entry["path"] for entry in file["archive"]] == ["/jobs/overview", "/x"]
    assert file.keys() == {"archive"}
    assert [json.loads(entry["json"]) for entry in file["archive"]] == [answer, [1, None]]


def test_a_long_answer_is_whole(tmp_path):
    answer = {"subtasks": [{"n": number, "name": "ü"} for number in range(1001)], "id": "v"}
    (text,) = read_archive(written(tmp_path, [("/p", answer)])).values()
    assert json.loads(text) == answer


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_paths_and_uris_lie_in_the_same_place(tmp_path, prefix):
    place = write_archive(f"{prefix}{tmp_path}/deep/er/", JOB, [("/a", 1)])
    assert place == f"{tmp_path}/deep/er/{JOB}"
    assert read_archive((tmp_path / "deep" / "er" / JOB).read_bytes()) == {"/a": "1"}


def test_other_file_systems_have_the_same_layout(tmp_path, monkeypatch):
    """As pyarrow writes them; no rename in one step, and no modes."""
    from pyarrow import fs

    files = file_systems.ArrowFiles(fs.LocalFileSystem(), "far://")
    monkeypatch.setattr(module, "open_files", lambda uri, **_: (files, str(tmp_path)))
    assert write_archive("far://host", JOB, [("/a", 1)]) == f"far://{tmp_path}/{JOB}"
    assert read_archive((tmp_path / JOB).read_bytes()) == {"/a": "1"}
    with pytest.raises(ArchiveExists):
        write_archive("far://host", JOB, [("/a", 2)])
    assert os.listdir(tmp_path) == [JOB]


def test_an_unknown_file_system_is_refused():
    with pytest.raises(ConfigurationError, match="nowhere"):
        write_archive("nowhere://archives", JOB, [])


def test_nobody_sees_half_an_archive(tmp_path):
    def entries():
        yield "/a", {}
        names = os.listdir(tmp_path)
        assert len(names) == 1
        assert not is_id(names[0])
        yield "/b", {}

    assert read_archive(written(tmp_path, entries())) == {"/a": "{}", "/b": "{}"}
    assert os.listdir(tmp_path) == [JOB]


def test_an_archive_that_is_there_stays_as_it_is(tmp_path):
    first = written(tmp_path, [("/a", 1)])
    with pytest.raises(ArchiveExists, match=JOB):
        write_archive(str(tmp_path), JOB, [("/a", 2)])
    assert (tmp_path / JOB).read_bytes() == first
    assert os.listdir(tmp_path) == [JOB]


def test_an_archive_that_comes_meanwhile_stays_as_it_is(tmp_path):
    def entries():
        (tmp_path / JOB).write_text("of another driver")
        yield "/a", 2

    with pytest.raises(ArchiveExists):
        write_archive(str(tmp_path), JOB, entries())
    assert (tmp_path / JOB).read_text() == "of another driver"
    assert os.listdir(tmp_path) == [JOB]


def test_nothing_is_left_of_an_archive_that_fails(tmp_path):
    def entries():
        yield "/a", 1
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        write_archive(str(tmp_path), JOB, entries())
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_when_it_cannot_get_its_name(tmp_path, monkeypatch):
    def fails(*_):
        raise CheckpointIoError("no space")

    monkeypatch.setattr(file_systems.LocalFiles, "publish", fails)
    with pytest.raises(CheckpointIoError, match="no space"):
        write_archive(str(tmp_path), JOB, [("/a", 1)])
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointIoError, match="file"):
        write_archive(str(tmp_path / "file"), JOB, [])


def test_what_a_killed_driver_has_left_is_removed_and_what_others_write_is_not(tmp_path):
    """Nobody sees it, and it may have many megabytes."""
    hour_ms = 3_600_000
    dead = f".{'b' * 32}.{wall_ms() - hour_ms - 60_000}.0123abcd"
    alive = f".{'c' * 32}.{wall_ms() - hour_ms + 60_000}.0123abcd"
    others = f".{'d' * 32}.part"
    for name in (dead, alive, others):
        (tmp_path / name).write_text("half of an archi")
    written(tmp_path, [("/a", 1)])
    assert set(os.listdir(tmp_path)) == {JOB, alive, others}


@pytest.mark.parametrize(
    ("of_folder", "of_file"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o1777, 0o644)]
)
def test_who_may_list_the_folder_may_read_the_archive(tmp_path, of_folder, of_file):
    folder = tmp_path / "archives"
    folder.mkdir()
    folder.chmod(of_folder)
    written(folder, [])
    assert (mode(folder), mode(folder / JOB)) == (of_folder, of_file)


def test_a_folder_that_is_made_is_this_users_alone(tmp_path):
    written(tmp_path / "new", [])
    assert (mode(tmp_path / "new"), mode(tmp_path / "new" / JOB)) == (0o700, 0o600)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff", b"[]", b"3", b"{}", b'{"archive": 3}', b'{"archive": [3]}',
        b'{"archive": [{"path": "/a"}]}', b'{"archive": [{"path": "/a", "json": {}}]}',
        b'{"archive": [{"path": [], "json": ""}]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_archive_is_refused(data):
    with pytest.raises(ArchiveDamaged, match="no archive"):
        read_archive(data)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [(JOB, True), ("A" * 32, False), ("a" * 31, False), ("a" * 33, False), (f".{JOB}", False)],
)
def test_names_of_archives(name, is_one):
    assert is_id(name) is is_one
