"""RegistryClient: what it asks, and what it says when a registry answers with one of the errors that Confluent documents."""

import pickle

import pytest

from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.formats.registry.client import (
    RegisteredSchema,
    RegistryClient,
    SchemaReference,
    SchemaRegistry,
)
from tests.tools.schema_registry import (
    INCOMPATIBLE,
    INVALID,
    STORE_ERROR,
    TYPE,
    UNAUTHORIZED,
    schema_registry,
)
from tests.tools.tls_cases import made_in

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


TEXT = '"string"'
SCHEMA = RegisteredSchema(TEXT)


def client(registry, **configs):
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return RegistryClient(SchemaRegistry(registry.url, named))


def test_a_schema_is_registered_with_the_documented_request(registry):
    assert client(registry).id_under("orders-value", SCHEMA) == 1
    (asked,) = registry.asked
    assert (asked.method, asked.path) == ("POST", "/subjects/orders-value/versions")
    assert (asked.query, asked.body) == ({}, {"schema": TEXT})
    assert (asked.headers["Content-Type"], asked.headers["Accept"]) == (TYPE, TYPE)
    assert "Authorization" not in asked.headers


def test_other_kinds_and_references_are_in_the_body(registry):
    schema = RegisteredSchema("{}", "JSON", (SchemaReference("a.json", "a", 2),))
    client(registry, normalize_schemas=True).id_under("eu/orders value", schema)
    (asked,) = registry.asked
    assert asked.path == "/subjects/eu%2Forders%20value/versions"
    assert asked.query == {"normalize": "true"}
    assert asked.body == {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "a.json", "subject": "a", "version": 2}],
    }


def test_without_auto_register_a_schema_is_only_looked_up(registry):
    registry.add("s", TEXT, schema_id=7)
    asks = client(registry, auto_register_schemas=False)
    assert asks.id_under("s", SCHEMA) == 7
    for subject, code in (("s", 40403), ("other", 40401)):
        with pytest.raises(RefusedForGood, match=f"'{subject}'.*404, error {code}.*auto.register"):
            asks.id_under(subject, RegisteredSchema('"int"'))
    assert set(registry.paths()) == {"POST /subjects/s", "POST /subjects/other"}


def test_a_schema_comes_with_its_kind_and_references(registry):
    asks = client(registry)
    registry.add("base", TEXT)
    refers = [{"name": "base.json", "subject": "base", "version": 1}]
    number = registry.add("s", "{}", "JSON", refers)
    found = asks.with_id(number)
    reference = SchemaReference("base.json", "base", 1)
    assert found == RegisteredSchema("{}", "JSON", (reference,))
    assert asks.referred(reference) == SCHEMA
    assert asks.version_under("s", found) == 1
    with pytest.raises(ValueError, match="of the kind JSON, expected AVRO"):
        found.check_kind("AVRO")


@pytest.mark.parametrize(
    ("configs", "header"),
    [
        ({"basic_auth_user_info": "job:geheim"}, "Basic am9iOmdlaGVpbQ=="),
        ({"bearer_auth_token": "geheim"}, "Bearer geheim"),
    ],
)
def test_credentials_are_sent_and_not_shown(registry, configs, header):
    asks = client(registry, **configs)
    asks.id_under("s", SCHEMA)
    assert registry.asked[0].headers["Authorization"] == header
    registry.faults.append(UNAUTHORIZED)
    with pytest.raises(RefusedForGood, match="'s', with status 401.*Correct the cred") as told:
        asks.id_under("s", SCHEMA)
    assert "geheim" not in str(told.value)
    assert f"POST {registry.url}/subjects/s/versions" in str(told.value)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (INCOMPATIBLE, "'s', with status 409: 'Schema being.*not compatible with those that the"),
        (INVALID, "'s', with status 422, error 42201: 'Invalid schema'. Correct the schema"),
        ((404, b"<html>"), "with status 404: '<html>'. Correct the URL"),
        ((200, b"<html>"), "does not answer as a schema registry.*html"),
        ((200, {"id": "one"}), "does not answer as a schema registry.*one"),
        ((302, b""), "with status 302"),
    ],
)
def test_what_another_try_cannot_change_is_told_at_once(registry, fault, text):
    registry.faults.append(fault)
    with pytest.raises(RefusedForGood, match=text):
        client(registry).id_under("s", SCHEMA)
    assert len(registry.asked) == 1


@pytest.mark.parametrize("fault", [(429, {}), STORE_ERROR, (503, b"")])
def test_what_may_pass_is_tried_again(registry, fault):
    registry.faults.append(fault)
    assert client(registry).id_under("s", SCHEMA) == 1
    assert len(registry.asked) == 2
    registry.faults.append(fault)
    with pytest.raises(ExternalError, match="max.retries and http.read.timeout.ms") as told:
        client(registry, max_retries=0).id_under("s", SCHEMA)
    assert not isinstance(told.value, RefusedForGood)


def test_an_id_that_is_not_there_is_the_messages_error(registry):
    with pytest.raises(ValueError, match=f"GET {registry.url}/schemas/ids/5.*the id 5.*40403"):
        client(registry).with_id(5)


def test_a_registry_that_is_not_there_is_not_the_messages_error(registry):
    asks = RegistryClient(SchemaRegistry("http://127.0.0.1:1", {"max.retries": 0}))
    with pytest.raises(ExternalError, match="the id 5: GET http://127.0.0.1:1/schemas/ids/5"):
        asks.with_id(5)


def test_tls_with_the_clients_certificate(tmp_path):
    tls = made_in(tmp_path)
    ca, (certificate, key) = {"ssl_ca_location": tls.ca}, tls.client
    own = {"ssl_certificate_location": certificate, "ssl_key_location": key}
    with schema_registry(tls.server, tls.ca) as registry:
        assert client(registry, **ca, **own).id_under("s", SCHEMA) == 1
        with pytest.raises(ExternalError):  # it may close before its words are read
            client(registry, max_retries=0, **ca).id_under("s", SCHEMA)
        with pytest.raises(RefusedForGood, match="not trusted.*with ssl.ca.location"):
            client(registry).id_under("s", SCHEMA)
        with pytest.raises(ConfigurationError, match="the files of ssl.*cannot be used here"):
            client(registry, ssl_ca_location="/no/such.pem").id_under("s", SCHEMA)
