"""Where drivers of this user are found."""

import os
import tempfile

import pytest

from penstock.ops.rest import address_book
from tests.tools.permissions import AS_ROOT, SOMEBODY


def test_a_driver_is_entered_whole_or_not_at_all(monkeypatch, tmp_path):
    """Who looks while the entry is written sees what was there before."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    address_book.enter("http://localhost:1", "former", "a")
    written = address_book.write_file
    seen = []

    def watched(path, data):
        written(path, data[:1])
        seen.extend(one.token for one in address_book.drivers())
        path.unlink()
        written(path, data)
        seen.extend(one.token for one in address_book.drivers())

    monkeypatch.setattr(address_book, "write_file", watched)
    path = address_book.enter("http://localhost:2", "new", "b")
    assert seen == ["former", "former"]
    (found,) = address_book.drivers()
    assert (found.address, found.token, found.pid) == ("http://localhost:2", "new", os.getpid())
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """Where temporary files are: everybody may write there, and nobody renames what is another's."""
    tmp_path.chmod(0o1777)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def stranger_of(taken):
    """Makes the usual folder another user's, with an entry of his."""
    entry = taken / "drivers" / "1.json"
    entry.parent.mkdir(parents=True)
    entry.write_text("{}")
    for one in (taken, entry.parent, entry):
        os.chown(one, SOMEBODY, SOMEBODY)


@AS_ROOT
def test_where_another_user_has_taken_the_name_another_place_is_used(temporary, caplog):
    taken = temporary / f"penstock-{os.getuid()}"
    stranger_of(taken)
    path = address_book.enter("http://localhost:1", "secret", "a")
    assert "belongs to" in caplog.text
    assert f"entered in {path.parent} instead" in caplog.text
    assert path.parent.parent.name.startswith(f"{taken.name}-")
    assert [one.token for one in address_book.drivers()] == ["secret"]
    assert address_book.enter("http://localhost:2", "newer", "a") == path
    assert [one.token for one in address_book.drivers()] == ["newer"]


@AS_ROOT
def test_what_others_enter_under_such_a_name_is_not_read(temporary):
    for name in (f"penstock-{os.getuid()}", f"penstock-{os.getuid()}-x"):
        stranger_of(temporary / name)
    path = address_book.enter("http://localhost:1", "secret", "a")
    assert path.parent.parent.name != f"penstock-{os.getuid()}-x"
    assert [one.token for one in address_book.drivers()] == ["secret"]
