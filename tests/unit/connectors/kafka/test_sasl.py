"""A client's side of PLAIN and SCRAM, against the examples of their RFCs."""

import pytest

from penstock.connectors.kafka import transactions as wire
from penstock.engine.model.errors import ConfigurationError, RefusedForGood

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def example(monkeypatch):
    """Of RFC 7677, with the client's nonce as there."""
    monkeypatch.setattr(wire.secrets, "token_urlsafe", lambda _: NONCE)
    return wire.talk("SCRAM-SHA-256", "user", "pencil")


def test_scram_says_what_the_rfc_says(example):
    assert next(example) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert example.send(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        example.send(FINAL)


def test_who_does_not_know_the_password_is_no_broker_of_ours(example):
    next(example)
    example.send(FIRST)
    with pytest.raises(RefusedForGood, match="does not know the password"):
        example.send(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_an_answer_to_somebody_else_is_refused(example):
    next(example)
    with pytest.raises(RefusedForGood, match="another nonce"):
        example.send(FIRST.replace(NONCE.encode(), b"somebody else's"))


def test_plain_says_user_and_password_at_once():
    """RFC 4616: no authorization identity, the user, the password."""
    assert next(wire.talk("PLAIN", "tim", "tanstaaftanstaaf")) == b"\0tim\0tanstaaftanstaaf"


def test_names_with_signs_of_scram_are_escaped(monkeypatch):
    """RFC 5802, saslname."""
    monkeypatch.setattr(wire.secrets, "token_urlsafe", lambda _: NONCE)
    assert next(wire.talk("SCRAM-SHA-512", "a=b,c", "x")).startswith(b"n,,n=a=3Db=2Cc,r=")


def test_other_mechanisms_are_named():
    with pytest.raises(ConfigurationError, match="'GSSAPI' is not known here; expected PLAIN"):
        wire.talk("GSSAPI", "a", "b")
