"""Where drivers of this user are found."""

import os

from penstock.ops.rest import address_book


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
