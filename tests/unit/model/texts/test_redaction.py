"""What must not be shown, over all options that there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.options.catalogue import OPTIONS
from penstock.model.options.flink_names import FLINK_NAMES
from penstock.model.texts.redaction import HIDDEN, is_secret, redacted, without_credentials

SOUNDS_SECRET = (
    "password",
    "secret",
    "token",
    "credential",
    "api-key",
    "apikey",
    "private-key",
    "auth-params",
)


@pytest.mark.parametrize("key", sorted({*OPTIONS, *FLINK_NAMES}))
def test_an_option_that_sounds_secret_is_not_shown(key):
    if any(part in key for part in SOUNDS_SECRET) and key != "penstock.rest.token":
        assert redacted({key: "value-of-it"}) == {key: HIDDEN}


def test_the_rule_for_the_token_is_no_secret():
    assert redacted({"penstock.rest.token": "always"}) == {"penstock.rest.token": "always"}


@pytest.mark.parametrize(
    "key",
    [
        "s3.access-key", "s3.secret-key", "fs.azure.account.key.x",
        "spark.ssl.keyPassword", "my.PASSWORD", "DB_PASSWORD",
        "properties.sasl.jaas.config", "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN", "high-availability.zookeeper.auth-params",
    ],
)  # fmt: skip
def test_secrets_of_other_software_are_not_shown(key):
    assert is_secret(key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:postgresql://me:pw@host:5432/db", f"jdbc:postgresql://{HIDDEN}@host:5432/db"),
        ("amqp://guest:gu%40est@mq/%2f and x", f"amqp://{HIDDEN}@mq/%2f and x"),
        ("http://host/a?user=me&password=pw&x=1", f"http://host/a?user=me&password={HIDDEN}&x=1"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("mail me@host", "mail me@host"),
        ("http://host/?q=1", "http://host/?q=1"),
    ],
)
def test_credentials_in_addresses_are_hidden(text, shown):
    assert without_credentials(text) == shown


@given(st.text(alphabet="abc:/@?&=. ", max_size=40))
def test_hiding_twice_hides_no_more(text):
    once = without_credentials(text)
    assert without_credentials(once) == once
