"""A session on a MiniCluster of this process."""

import pytest

from tests.tools.hosting import session as served


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with served.session() as made:
        yield made
