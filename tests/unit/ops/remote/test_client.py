import ssl

import pytest

from penstock.ops.remote.client import RemoteError, RestClient


def test_authorities_are_read_for_https_only(monkeypatch):
    """It takes some 20 ms for each client: `penstock top` makes new ones for every look."""
    read = []
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile=None: read.append(cafile))
    RestClient("http://localhost:8081")
    assert read == []
    RestClient("https://localhost:8081")
    RestClient("https://localhost:8081", certificates="own.pem")
    assert read == [None, "own.pem"]


@pytest.mark.parametrize("address", ["http://localhost:8081", "https://localhost:8081"])
def test_certificates_that_cannot_be_read_are_told(address, tmp_path):
    path = str(tmp_path / "none.pem")
    with pytest.raises(RemoteError, match=r"--cacert .*none.pem: .*No such file"):
        RestClient(address, certificates=path)
