"""Certificates for servers and clients, made in the test and signed by an authority of its own."""

import datetime as dt
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
END = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


class Authority:
    """`ca`: the file of its certificate. All files are PEM, in the folder, and everybody may read them."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        built = (
            x509
            .CertificateBuilder(self._name, self._name, self._key.public_key(), 1)
            .not_valid_before(BEGIN)
            .not_valid_after(END)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(key_cert_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False)
        )
        self.ca = self._written(f"{name}.pem", _pem(built.sign(self._key, hashes.SHA256())))

    def certificate(self, *names: str, file: str = "server") -> tuple[str, str]:
        """The files of a certificate for these host names and addresses, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        of_authority = self._key.public_key()
        built = (
            x509
            .CertificateBuilder(
                self._name, _named(names[0]), key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(BEGIN)
            .not_valid_after(END)
            .add_extension(x509.SubjectAlternativeName(list(map(_host, names))), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(of_authority), False)
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
        signed = _pem(built.sign(self._key, hashes.SHA256()))
        return self._written(f"{file}.pem", signed), self._written(f"{file}-key.pem", secret)

    def _written(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        os.chmod(path, 0o644)
        return str(path)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(**those: bool) -> x509.KeyUsage:
    uses = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{one: those.get(one, False) for one in uses})
