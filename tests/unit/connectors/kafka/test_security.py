"""Users, passwords and certificates as Kafka's Java client names them, and what librdkafka gets of them."""

from pathlib import Path

import pytest

from penstock.connectors.kafka.properties import client_properties
from penstock.engine.model.errors import ConfigurationError
from tests.tools.tls_cases import made_in

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required "
WITH_USER = 'username="me" password="secret";'


def translated(**properties):
    given = {key.replace("_", "."): value for key, value in properties.items()}
    return client_properties(given, "here")


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        ('username="me" password="a;b";', "me", "a;b"),
        ("username='me' password='a\"b';", "me", 'a"b'),
        (r'username="me" password="a\"b\\c=d";', "me", r"a\"b\c=d".replace(r"\"", '"')),
        ("password=bare username=me;", "me", "bare"),
        ('user_x="no" username="me"\n password="two words";', "me", "two words"),
    ],
)
def test_user_and_password_are_read_as_jaas_quotes_them(options, user, password):
    found = translated(sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=SCRAM + options)
    assert found == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize(
    ("mechanism", "jaas", "text"),
    [
        (
            "GSSAPI",
            "com.sun.security.auth.module.Krb5LoginModule required;",
            "sasl.kerberos.keytab",
        ),
        ("OAUTHBEARER", "a.OAuthBearerLoginModule required;", "sasl.oauthbearer.method=oidc"),
        ("PLAIN", PLAIN + 'username="me";', "no username and password"),
        ("PLAIN", "username=a password=b", "of PlainLoginModule or ScramLoginModule"),
        ("PLAIN", SCRAM + WITH_USER, "SCRAM-SHA-256 or SCRAM-SHA-512, got 'PLAIN'"),
        ("SCRAM-SHA-256", PLAIN + WITH_USER, "PLAIN, got 'SCRAM-SHA-256'"),
        (
            "SCRAM-SHA-256",
            SCRAM + 'tokenauth="true" ' + WITH_USER,
            "cannot log in with delegation tokens",
        ),
    ],
)
def test_a_login_that_the_client_cannot_make_says_what_to_set(mechanism, jaas, text):
    with pytest.raises(ConfigurationError, match=text):
        translated(sasl_mechanism=mechanism, sasl_jaas_config=jaas)


def test_without_a_mechanism_java_would_take_kerberos():
    with pytest.raises(ConfigurationError, match="needs sasl.mechanism PLAIN, got GSSAPI, the def"):
        translated(sasl_jaas_config=PLAIN + WITH_USER)


def test_files_of_pem_are_taken_as_javas_client_takes_them(tmp_path):
    tls = made_in(tmp_path)
    both = tmp_path / "job.pem"
    both.write_text("".join(Path(one).read_text() for one in reversed(tls.client)))
    for kind in ({"ssl_truststore_type": "PEM", "ssl_keystore_type": "PEM"}, {}):
        assert translated(
            ssl_truststore_location=tls.ca,
            ssl_keystore_location=str(both),
            ssl_key_password="secret",
            ssl_endpoint_identification_algorithm="",
            **kind,
        ) == {
            "ssl.ca.location": tls.ca,
            "ssl.certificate.location": str(both),
            "ssl.key.location": str(both),
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "none",
        }
    found = translated(
        ssl_endpoint_identification_algorithm="HTTPS", ssl_enabled_protocols="TLSv1.3"
    )
    assert found == {"ssl.endpoint.identification.algorithm": "https"}


def test_key_stores_are_known_by_what_is_in_them(tmp_path):
    jks, pkcs12 = tmp_path / "a.p12", tmp_path / "b.jks"  # their names say the wrong thing
    jks.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    pkcs12.write_bytes(b"\x30\x82" + bytes(20))
    own = translated(ssl_keystore_location=str(pkcs12), ssl_keystore_password="x")
    assert own == {"ssl.keystore.location": str(pkcs12), "ssl.keystore.password": "x"}
    for key, path, form, text in (
        ("ssl_truststore_location", jks, "JKS", "Set ssl.ca.location.*keytool -importkeystore"),
        ("ssl_truststore_location", pkcs12, "PKCS12", "Set ssl.ca.location.*openssl pkcs12"),
        ("ssl_keystore_location", jks, "JKS", "of form PKCS12 or PEM.*keytool -importkeystore"),
    ):
        with pytest.raises(ConfigurationError, match=f"no file of form {form} .*{text}"):
            translated(**{key: str(path)})
    with pytest.raises(ConfigurationError, match="no file of form JKS"):
        translated(ssl_truststore_location="/no/such/trust.jks")
