"""What must not be shown, over all options that there are."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.model.options.catalogue import FLINK_NAMES, OPTIONS
from penstock.engine.model.texts.redaction import HIDDEN, is_secret, redacted, without_credentials

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
        "mq.pwd", "smtp.pass", "redis.auth", "client.pem", "DB_PASS", "AccountKey",
    ],
)  # fmt: skip
def test_secrets_of_other_software_are_not_shown(key):
    assert is_secret(key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("smtp.pass=pw and mq.pwd=pw", f"smtp.pass={HIDDEN} and mq.pwd={HIDDEN}"),
        ("redis.auth='pw', DB_PASS=pw", f"redis.auth='{HIDDEN}', DB_PASS={HIDDEN}"),
        ("bypass=1 pass=2", "bypass=1 pass=2"),
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
@example("a password='x' token=y://u:v@h Authorization: Basic z")
def test_hiding_twice_hides_no_more(text):
    once = without_credentials(text)
    assert without_credentials(once) == once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db user=me password=pw port=1", f"host=db user=me password={HIDDEN} port=1"),
        (
            'Module required user="u" password="pw";',
            f'Module required user="u" password="{HIDDEN}";',
        ),
        ("{'user': 'u', 'db_password': 'pw'}", f"{{'user': 'u', 'db_password': '{HIDDEN}'}}"),
        ('{"aws_secret_access_key": "pw"}', f'{{"aws_secret_access_key": "{HIDDEN}"}}'),
        ("Server=x;Uid=y;Pwd=pw;", f"Server=x;Uid=y;Pwd={HIDDEN};"),
        ("got Authorization: Bearer abc.d-e= there", f"got Authorization: Bearer {HIDDEN} there"),
        ("{'Authorization': 'Basic dTpw'}", f"{{'Authorization': 'Basic {HIDDEN}'}}"),
        ("https://h/x?sv=1&sig=pw&se=2 failed", f"https://h/x?sv=1&sig={HIDDEN}&se=2 failed"),
        ("cannot log in: password: pw, user: me", f"cannot log in: password: {HIDDEN}, user: me"),
        ("db:\n  pwd: 'pw'\n  port: 1", f"db:\n  pwd: '{HIDDEN}'\n  port: 1"),
        (
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=pw==;EndpointSuffix=b",
            f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={HIDDEN};EndpointSuffix=b",
        ),
        (
            "POST https://hooks.slack.com/services/T0/B0/x failed",
            f"POST https://hooks.slack.com/{HIDDEN} failed",
        ),
        ("'https://discord.com/api/webhooks/1/x'", f"'https://discord.com/api/webhooks/{HIDDEN}'"),
        (
            "https://a.webhook.office.com/webhookb2/x@y/z",
            f"https://a.webhook.office.com/webhookb2/{HIDDEN}",
        ),
        ("see https://docs/guides/webhook.html", "see https://docs/guides/webhook.html"),
        ("unexpected token: 'foo', key=value", "unexpected token: 'foo', key=value"),
        ("Authorization: Bearer <token>", "Authorization: Bearer <token>"),
        ("password = read()", "password = read()"),
    ],
)
def test_credentials_in_the_middle_of_a_text_are_hidden(text, shown):
    assert without_credentials(text) == shown
    assert redacted({"my.option": text}) == {"my.option": shown}


def test_a_long_line_of_one_word_is_looked_through_once():
    """A search that begins again at each part of the word would be here for hours: the hang guard ends it."""
    line = "1." * 500_000 + "token=x"
    assert without_credentials(line) == "1." * 500_000 + "token=" + HIDDEN
