"""SchemaRegistry: which properties there are, and that nothing shows secrets."""

import pickle

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.formats.registry.settings import SchemaRegistry

URL = "https://registry:8081"


def test_properties_have_confluents_names_and_defaults():
    made = SchemaRegistry(
        "http://registry:8081/",
        {
            "basic.auth.credentials.source": "USER_INFO",
            "basic.auth.user.info": "job:geheim",
            "http.read.timeout.ms": "1500",
            "max.retries": 0,
            "auto.register.schemas": "false",
            "normalize.schemas": True,
        },
    )
    assert made.url == "http://registry:8081"
    # RFC 7617: base64 of user:password.
    assert made.headers == {"Authorization": "Basic am9iOmdlaGVpbQ=="}
    assert (made.limits.timeout_s, made.limits.retries) == (1.5, 0)
    assert (made.registers, made.normalizes) == (False, True)
    usual = SchemaRegistry(URL)
    assert (usual.headers, usual.tls) == ({}, None)
    assert (usual.limits.timeout_s, usual.limits.retries) == (30, 3)
    assert (usual.registers, usual.normalizes) == (True, False)


@pytest.mark.parametrize(
    "name",
    ["bearer.auth.token", "schema.registry.bearer.auth.token", "bearer-auth.token"],
)
def test_names_with_kafkas_prefix_and_as_flinks_tables_spell_them_are_the_same(name):
    assert SchemaRegistry(URL, {name: "t"}).headers == {"Authorization": "Bearer t"}


def test_it_is_pickled_and_shows_no_secrets():
    made = SchemaRegistry(URL, {"bearer.auth.token": "geheim", "ssl.ca.location": "/ca.pem"})
    copy = pickle.loads(pickle.dumps(made))
    assert copy.headers == made.headers
    assert copy.tls == made.tls
    assert repr(made) == f"SchemaRegistry({URL})"


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"basic.auth.user.inf": "a:b"}, "'basic.auth.user.inf' is not known. Expected basic.auth"),
        ({"ssl.truststore.location": "x.jks"}, "Java key store.*ssl.ca.location"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "only USER_INFO is supported"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info is missing"),
        ({"basic.auth.user.info": "geheim"}, "expected user:password"),
        ({"basic.auth.user.info": "a:geheim", "bearer.auth.token": "geheim"}, "got both"),
        ({"bearer.auth.token": "geheim\nX: y"}, "expected a token on one line"),
        ({"ssl.key.location": "k.pem"}, "the key of ssl.certificate.location"),
        ({"max.retries": "many"}, "max.retries: expected a whole number of 0 or more, got 'many'"),
        ({"http.read.timeout.ms": 0}, "expected a whole number of 1 or more"),
        ({"normalize.schemas": "yes"}, "expected true or false, got 'yes'"),
    ],
)
def test_what_is_wrong_is_told_without_secrets(configs, text):
    with pytest.raises(ConfigurationError, match=text) as told:
        SchemaRegistry(URL, configs)
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize("url", ["registry:8081", "ftp://x", "http://a:geheim@b", None, ""])
def test_another_url_is_refused_without_showing_it(url):
    with pytest.raises(ConfigurationError, match="expected http://host:port or https://") as told:
        SchemaRegistry(url)
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize("url", ["http://a,http://b", "http://a?token=geheim", "http://a#x"])
def test_one_registry_without_a_query_is_expected(url):
    with pytest.raises(ConfigurationError, match="expected the address of one reg") as told:
        SchemaRegistry(url)
    assert "geheim" not in str(told.value)


def test_files_of_tls_for_a_url_without_tls_are_refused():
    with pytest.raises(ConfigurationError, match="ssl.ca.location: the URL is without TLS"):
        SchemaRegistry("http://registry", {"ssl.ca.location": "ca.pem"})
