"""What nobody else can have changed is opened, and nothing else is. All files here are real ones."""

import gc
import os
import re
import shutil
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.private_files import NotPrivate, OwnFolder
from tests.tools.permissions import AS_ROOT, SOMEBODY, mode, umask


@pytest.fixture
def ends(monkeypatch):
    """What is done when the process ends; done after the test."""
    calls = []
    monkeypatch.setattr(private_files.atexit, "register", calls.append)
    yield calls
    for call in calls:
        call()


@pytest.fixture
def temporary(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(private_files.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def claimed_once(folder):
    folder.mkdir()
    (folder / "in-use").touch()
    return folder


def test_a_folder_without_a_process_goes_when_the_next_is_made(temporary):
    left = claimed_once(temporary / "ours-left")
    other = claimed_once(temporary / "theirs-left")
    made = OwnFolder("ours-").made()
    assert not left.exists()
    assert other.exists()
    assert made.is_dir()


def test_a_folder_goes_when_its_process_ends(temporary, ends):
    made = OwnFolder("ours-").made()
    ends.pop()()
    assert not made.exists()


def test_a_folder_that_is_being_made_is_nobodys_leftover(temporary, monkeypatch):
    """Two programs begin at the same time: the second looks when the first has not locked its claim yet."""
    lock = private_files.try_lock
    monkeypatch.setattr(private_files, "try_lock", lambda claim: second_looks() and lock(claim))

    def second_looks():
        monkeypatch.setattr(private_files, "try_lock", lock)
        return OwnFolder("ours-").made().is_dir()

    assert OwnFolder("ours-").made().is_dir()
    assert len(list(temporary.iterdir())) == 2


def test_a_folder_that_has_gone_is_made_anew(temporary, recwarn):
    folder = OwnFolder("ours-")
    gone = folder.made()
    shutil.rmtree(gone)
    made = folder.made()
    assert made.is_dir()
    assert made != gone
    gc.collect()  # Python complains of a claim that is not closed.
    assert not recwarn.list


def test_threads_that_ask_at_once_get_the_same_folder(temporary):
    """A second one would lose its claim, and another program would remove it."""
    folder, together = OwnFolder("ours-"), threading.Barrier(8)

    def ask(_):
        together.wait()
        return folder.made()

    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(ask, range(8)))
    assert made == set(temporary.iterdir())
    assert len(made) == 1


@pytest.fixture
def root(tmp_path):
    """A folder of ours alone, with no link on the way to it."""
    made = Path(os.path.realpath(tmp_path)) / "root"
    made.mkdir()
    made.chmod(0o700)
    return made


def file_at(path: Path, content: bytes = b"ours") -> Path:
    """A file of mode 600; the folders that are made for it have mode 700."""
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o700)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def read(path) -> bytes:
    with os.fdopen(private_files.open_checked(str(path)), "rb") as file:
        return file.read()


def test_a_file_of_ours_is_read_also_if_others_may_read_it(root):
    file = file_at(root / "a" / "file")
    assert read(file) == b"ours"
    file.chmod(0o644)
    file.parent.chmod(0o755)
    assert read(file) == b"ours"


def test_a_file_of_root_is_read():
    assert read("/etc/passwd") == Path("/etc/passwd").read_bytes()


def test_a_path_may_be_relative_and_go_up(root, monkeypatch):
    file_at(root / "a" / "file")
    monkeypatch.chdir(file_at(root / "b" / "c" / "other").parent)
    assert read("../../a/./file") == b"ours"
    assert read(f"{root}//b/../a/file") == b"ours"


@pytest.mark.parametrize("bits", [0o1777, 0o1770], ids="{:o}".format)
def test_folders_in_which_only_owners_rename_may_be_written_by_all(root, bits):
    """As /tmp is."""
    file = file_at(root / "tmp" / "mine" / "file")
    (root / "tmp").chmod(bits)
    assert read(file) == b"ours"
    assert read(file_at(root / "tmp" / "file")) == b"ours"


def test_links_of_ours_are_followed_to_what_is_private(root):
    """As /tmp is on macOS; of files and folders, from the root and from where the link is."""
    file = file_at(root / "private" / "tmp" / "file")
    (root / "tmp").symlink_to("private/tmp")
    (root / "far").symlink_to(root / "tmp")
    (root / "alias").symlink_to("far/../tmp/file")
    assert read(root / "tmp" / "file") == b"ours"
    assert read(root / "far" / "file") == b"ours"
    assert read(root / "alias") == b"ours"
    assert read(root / "tmp" / ".." / "tmp" / "file") == file.read_bytes()


def test_what_is_missing_is_missing(root):
    for name in ("file", "a/file"):
        with pytest.raises(FileNotFoundError):
            read(root / name)
    with pytest.raises(NotADirectoryError):
        read(file_at(root / "file") / "below")
    with pytest.raises(IsADirectoryError):
        read(root / "..")


def test_links_that_go_round_end(root):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    for name in ("a", "a/file"):
        with pytest.raises(OSError, match="symbolic links"):
            read(root / name)


@pytest.fixture
def tree(root):
    """Files, folders, one of them as /tmp is, and links to them. All of them are private."""
    for name in ("a/b/file", "c/d/other", "tmp/file", "tmp/mine/file", "links/other"):
        file_at(root / name)
    (root / "tmp").chmod(0o1777)
    (root / "link").symlink_to("a/b")
    (root / "alias").symlink_to(root / "a/b/file")
    (root / "links/alias").symlink_to("../a/b/file")
    (root / "tmp/link").symlink_to(root / "a/b")
    (root / "tmp/alias").symlink_to(root / "a/b/file")
    return root


GROUP, ALL = stat.S_IWGRP, stat.S_IWOTH
WRITABLE = {
    "a file for its group": ("a/b/file", GROUP, "a/b/file"),
    "a file for all": ("a/b/file", ALL, "a/b/file"),
    "a file for all in a folder like /tmp": ("tmp/file", ALL, "tmp/file"),
    "a folder for its group": ("a/b", GROUP, "a/b/file"),
    "a folder for all": ("a/b", ALL, "a/b/file"),
    "a folder above for its group": ("a", GROUP, "a/b/file"),
    "a folder above for all": ("a", ALL, "a/b/file"),
    "a folder in one like /tmp": ("tmp/mine", GROUP, "tmp/mine/file"),
    "a folder behind a link": ("a/b", GROUP, "link/file"),
    "a folder above the target of a link": ("a", ALL, "alias"),
    "a folder that holds a link": ("links", GROUP, "links/alias"),
    "a folder above one that is left again": ("c", ALL, "c/d/../../a/b/file"),
}
FOLDERS = [way for way in WRITABLE if way.startswith("a folder")]


def refusal(tree, way) -> tuple[str, Path, str]:
    """What is told, of which place, of which path."""
    name, bits, asked = WRITABLE[way]
    assert read(tree / asked) == b"ours"
    (tree / name).chmod(mode(tree / name) | bits)
    with pytest.raises(NotPrivate) as refused:
        read(tree / asked)
    return str(refused.value), tree / name, asked


@pytest.mark.parametrize("way", WRITABLE)
def test_what_others_may_write_is_refused_and_the_error_has_the_command_that_mends_it(tree, way):
    told, place, asked = refusal(tree, way)
    assert told.startswith(f"other users may write to {str(place)!r}")
    assert f"mode {mode(place):04o} lets " in told
    assert "unpickled, which can run any code" in told
    mend(told)
    assert read(tree / asked) == b"ours"
    assert not mode(place) & (GROUP | ALL)


@pytest.mark.parametrize("way", FOLDERS)
def test_a_folder_in_which_others_must_write_is_mended_by_its_sticky_bit(tree, way):
    told, place, asked = refusal(tree, way)
    command = re.search(r"if they need to write there, (.*)\)$", told)[1]
    subprocess.run(command, shell=True, check=True)
    assert read(tree / asked) == b"ours"
    assert mode(place) & stat.S_ISVTX


def mend(told: str) -> None:
    """Run the command that an error ends with."""
    command = re.search(r"make it yours alone: (ch(?:mod|own) .*?)(?: \(or, .*)?$", told)[1]
    subprocess.run(command, shell=True, check=True)


FOREIGN = {
    "a file": ("a/b/file", "a/b/file"),
    "a folder": ("a/b", "a/b/file"),
    "a folder above": ("a", "a/b/file"),
    "a file in a folder like /tmp": ("tmp/file", "tmp/file"),
    "a folder in one like /tmp": ("tmp/mine", "tmp/mine/file"),
    "a link in a folder like /tmp": ("tmp/link", "tmp/link/file"),
    "a link to a file in a folder like /tmp": ("tmp/alias", "tmp/alias"),
    "the target of a link": ("a/b/file", "alias"),
    "a folder behind a link": ("a/b", "link/file"),
}


@AS_ROOT
@pytest.mark.parametrize("way", FOREIGN)
def test_what_belongs_to_another_user_is_refused_and_named(tree, way):
    """Whoever owns a file or a folder may write there, whatever its mode is."""
    name, asked = FOREIGN[way]
    assert read(tree / asked) == b"ours"
    os.chown(tree / name, SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(NotPrivate) as refused:
        read(tree / asked)
    told = str(refused.value)
    assert told.startswith(f"other users may write to {str(tree / name)!r}")
    assert re.search(rf"it belongs to .*uid {SOMEBODY}\)?, not to ", told)
    mend(told)
    assert read(tree / asked) == b"ours"


def test_a_pipe_is_no_file_and_nobody_waits_for_its_writer(root):
    os.mkfifo(root / "pipe", 0o600)
    for name in ("pipe", "."):
        with pytest.raises(NotPrivate, match="no regular file"):
            read(f"{root}/{name}")


def test_what_was_checked_is_what_is_read(root):
    file = file_at(root / "file")
    opened = private_files.open_checked(str(file))
    os.replace(file_at(root / "other", b"theirs"), file)
    with os.fdopen(opened, "rb") as checked:
        assert checked.read() == b"ours"
    assert file.read_bytes() == b"theirs"


@pytest.mark.parametrize("at", ["b", "file"])
def test_a_folder_that_is_exchanged_while_a_path_is_walked_is_not_entered(root, monkeypatch, at):
    """Just before the name `at` is opened, its folder makes way for another one."""
    file_at(root / "a/b/file")
    file_at(root / "theirs/b/file", b"theirs")
    folder = {"b": root / "a", "file": root / "a/b"}[at]
    other = {"b": root / "theirs", "file": root / "theirs/b"}[at]
    real = os.open

    def open_later(name, flags, *mode, dir_fd=None):
        if name == at and folder.exists():
            folder.rename(root / "away")
            other.rename(folder)
        return real(name, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(private_files.os, "open", open_later)
    assert read(root / "a/b/file") == b"ours"


def test_a_file_of_ours_is_opened_again_only_if_it_is_the_same(root):
    path = root / "mine" / "file"
    path.parent.mkdir()
    file = private_files.new_file(path)
    known = private_files.identity(file)
    os.write(file, b"ours")
    os.close(file)
    with os.fdopen(private_files.open_again(path, known, appends=True), "ab") as more:
        more.write(b" too")
    with os.fdopen(private_files.open_again(path, known), "rb") as again:
        assert again.read() == b"ours too"
    path.parent.rename(root / "away")
    file_at(path, b"theirs")
    for appends in (False, True):
        with pytest.raises(NotPrivate, match=f"'{path}' is not the file any more"):
            private_files.open_again(path, known, appends=appends)
    path.unlink()
    path.symlink_to(root / "away" / "file")
    with pytest.raises(OSError, match="symbolic links"):
        private_files.open_again(path, known)


def test_a_folder_that_is_held_is_found_also_when_somebody_renames_it(root):
    folder = root / "mine"
    folder.mkdir(mode=0o700)
    held = private_files.hold(str(folder))
    try:
        path = private_files.held_path(held, str(folder))
        folder.rename(root / "away")
        file_at(folder / "file", b"theirs")
        Path(path, "file").write_bytes(b"ours")
        assert read(root / "away" / "file") == b"ours"
    finally:
        os.close(held)
    (root / "other").mkdir()
    (root / "other").chmod(0o750)
    (root / "link").symlink_to("mine")
    for name in ("other", "link", "nothing"):
        with pytest.raises(OSError, match="replaced|Not a directory|symbolic|No such file"):
            private_files.hold(str(root / name))


@pytest.mark.parametrize("bits", [0o000, 0o002, 0o022, 0o777], ids="umask {:03o}".format)
def test_what_is_made_is_this_users_alone_whatever_the_umask_is(root, bits):
    with umask(bits):
        with os.fdopen(private_files.create(str(root / "a/b/file")), "wb") as file:
            file.write(b"ours")
        private_files.make_folder(str(root / "c/d"))
        os.close(private_files.new_file(root / "new"))
        private_files.write_file(root / "whole", b"ours")
    assert {path.name: mode(path) for path in root.rglob("*")} == {
        "a": 0o700,
        "b": 0o700,
        "file": 0o600,
        "c": 0o700,
        "d": 0o700,
        "new": 0o600,
        "whole": 0o600,
    }
    assert read(root / "a/b/file") == read(root / "whole") == b"ours"


def test_folders_that_are_there_keep_their_mode(root):
    (root / "given").mkdir()
    (root / "given").chmod(0o755)
    os.close(private_files.create(str(root / "given/a/file")))
    private_files.make_folder(str(root / "given"))
    assert mode(root / "given") == 0o755
    assert mode(root / "given/a") == 0o700


@pytest.mark.parametrize("bits", [0o770, 0o707])
def test_nothing_is_written_where_it_would_be_refused_later(root, bits):
    (root / "given").mkdir()
    (root / "given").chmod(bits)
    with pytest.raises(NotPrivate, match="other users may write"):
        private_files.create(str(root / "given/a/file"))
    with pytest.raises(NotPrivate, match="other users may write"):
        private_files.make_folder(str(root / "given/a"))
    with pytest.raises(NotPrivate, match="other users may write"):
        private_files.check_folder(str(root / "given/a"))
    assert list((root / "given").iterdir()) == []
    private_files.make_folder(str(root / "given/a"), is_checked=False)
    assert mode(root / "given/a") == 0o700


def test_what_is_there_is_not_written_over(root):
    file_at(root / "file")
    (root / "link").symlink_to("new")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            private_files.create(str(root / name))
        with pytest.raises(FileExistsError):
            private_files.new_file(root / name)
    assert read(root / "file") == b"ours"
    assert not (root / "new").exists()


def test_a_file_that_is_written_over_is_closed_to_others(root):
    file_at(root / "file").chmod(0o666)
    private_files.write_file(root / "file", b"new", is_durable=True)
    assert mode(root / "file") == 0o600
    assert read(root / "file") == b"new"


def test_a_file_system_that_gives_files_to_somebody_else_is_told_of_at_once(root, monkeypatch):
    """As NFS does to root, and FAT to everybody."""
    real = os.fstat

    def mapped(file):
        found = real(file)
        if not stat.S_ISREG(found.st_mode):
            return found
        return os.stat_result((found[0] | 0o777, *found[1:]))

    monkeypatch.setattr(private_files.os, "fstat", mapped)
    with pytest.raises(NotPrivate, match=r"an owner and a mode of its own.*0777.*Mount it"):
        private_files.create(str(root / "file"))
    assert list(root.iterdir()) == []


def test_a_folder_is_checked_as_far_as_it_is_there(root):
    private_files.check_folder(str(root / "a" / "b"))
    assert list(root.iterdir()) == []
