"""Which clients a session takes jobs of."""

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.ops.remote.session_client import check_versions, own_versions

SESSION = {"penstock": "1.4.0", "python": "3.11", "pyspark": "4.0.1"}


def test_a_process_takes_its_own_versions():
    check_versions(own_versions(), own_versions())


def test_another_patch_of_pyspark_is_no_other_version():
    check_versions({**SESSION, "pyspark": "4.0.7"}, SESSION)


@pytest.mark.parametrize(
    ("name", "version"),
    [("penstock", "1.4.1"), ("python", "3.12"), ("pyspark", "4.1.0")],
)
def test_another_version_is_refused_with_both_named(name, version):
    with pytest.raises(ConfigurationError) as raised:
        check_versions({**SESSION, name: version}, SESSION)
    told = str(raised.value)
    assert f"{version} at the client and {SESSION[name]} in the session" in told


def test_a_client_that_does_not_say_is_refused():
    with pytest.raises(ConfigurationError, match="Python unknown at the client"):
        check_versions({"penstock": "1.4.0", "pyspark": "4.0.1"}, SESSION)
