"""Who may talk to a Pulsar broker: the client, and the connection of our own that lists topics, prove the same."""

import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.pulsar import PulsarSource, StopCursor
from penstock.connectors.pulsar.cursors import TopicPartition
from penstock.engine.model.errors import ConfigurationError
from tests.tools.brokers.pulsar import running_broker
from tests.tools.brokers.pulsar_topics import part, source_builder
from tests.tools.connectors.reading_thread import Task


def test_who_may_not_enter_is_told_so(pulsar_broker):
    pulsar_broker.create("a")
    pulsar_broker.token = b"secret"
    plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    for builder in (
        source_builder(pulsar_broker, "a"),
        PulsarSource.builder().set_topic_pattern("a"),
    ):
        builder.set_service_url(pulsar_broker.url).set_subscription_name("tests")
        builder.set_deserialization_schema(SimpleStringSchema())
        builder.set_config("pulsar.client.operationTimeoutMs", 1000)
        with pytest.raises(ConfigurationError, match="(?i)authenticat"):
            builder.build().validate()
        builder.set_authentication(plugin, "token:secret").build().validate()


@pytest.fixture
def certificate(tmp_path):
    """Of 127.0.0.1, signed by itself: files of it and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    built = x509.CertificateBuilder(name, name, key.public_key(), 1)
    built = built.not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)).not_valid_after(
        dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    )
    built = built.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return tuple(map(str, files))


def test_broker_and_client_know_each_other_by_certificates(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    parameters = {"tlsCertFile": certificate[0], "tlsKeyFile": certificate[1]}
    with running_broker(tls=context, a=0) as broker:
        for builder in (source_builder(broker, "a"), PulsarSource.builder().set_topic_pattern("a")):
            builder.set_service_url(broker.url).set_subscription_name("tests")
            builder.set_deserialization_schema(SimpleStringSchema())
            builder.set_bounded_stop_cursor(StopCursor.latest())
            builder.set_config("pulsar.client.tlsTrustCertsFilePath", certificate[0])
            builder.set_config("pulsar.client.tlsHostnameVerificationEnable", True)
            source = builder.set_authentication("AuthenticationTls", parameters).build()
            task = Task(source)
            known, _, _ = task.enumerator.snapshot_state()
            assert known == [TopicPartition(part("a"))]
            assert task.read_to_end() == []
