"""Folders of processes that live stay; those that killed ones have left go."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.engine.hosting.os import own_folder
from penstock.engine.hosting.os.own_folder import OwnFolder


@pytest.fixture
def ends(monkeypatch):
    """What is done when the process ends; done after the test."""
    calls = []
    monkeypatch.setattr(own_folder.atexit, "register", calls.append)
    yield calls
    for call in calls:
        call()


@pytest.fixture
def temporary(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(own_folder.tempfile, "tempdir", str(tmp_path))
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
    lock = own_folder.try_lock
    monkeypatch.setattr(own_folder, "try_lock", lambda claim: second_looks() and lock(claim))

    def second_looks():
        monkeypatch.setattr(own_folder, "try_lock", lock)
        return OwnFolder("ours-").made().is_dir()

    assert OwnFolder("ours-").made().is_dir()
    assert len(list(temporary.iterdir())) == 2


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
