"""Who may ask a REST server: requests of strangers, of web pages, and of the driver's own user."""

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.ops.rest.access import access_of
from penstock.ops.rest.answers import RestError

TOKEN = "t0ken"
LOCAL = {"host": "localhost:8081"}


def refusal(
    headers=(),
    *,
    rule="others",
    changes=True,
    is_own_user=True,
    address="localhost",
    runs_code=False,
):
    """The status of the refusal; None: it is answered."""
    access = access_of(rule, TOKEN, address)
    try:
        access.check(
            LOCAL | dict(headers),
            changes=changes,
            is_own_user=is_own_user,
            runs_code=runs_code,
        )
    except RestError as error:
        return error.status
    return None


@pytest.mark.parametrize("host", ["localhost:8081", "127.0.0.1:8081", "[::1]:8081", "LOCALHOST"])
def test_the_server_answers_to_its_names(host):
    assert refusal({"host": host}) is None


@pytest.mark.parametrize("host", ["evil.example:8081", "localhost.evil.example", "", "10.0.0.1"])
@pytest.mark.parametrize("changes", [True, False])
def test_a_page_that_gave_its_own_name_our_address_reads_nothing(host, changes):
    """DNS rebinding."""
    assert refusal({"host": host}, changes=changes) == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:8082", "null"])
def test_pages_of_other_servers_may_not_ask(origin):
    assert refusal({"origin": origin}, changes=False) == 403


def test_its_own_pages_may():
    assert refusal({"origin": "http://localhost:8081", "sec-fetch-site": "same-origin"}) is None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_or_image_elsewhere_changes_nothing(site):
    """A GET that changes something, as the dashboard's Cancel, has no Origin."""
    assert refusal({"sec-fetch-site": site}) == 403
    assert refusal({"sec-fetch-site": site}, changes=False) is None


@pytest.mark.parametrize(
    ("rule", "is_own_user", "status"),
    [
        ("others", True, None),
        ("others", False, 401),
        ("always", True, 401),
        ("always", False, 401),
        ("never", False, None),
    ],
)
def test_who_needs_the_token(rule, is_own_user, status):
    """To read, too: jobs, metrics and logs are the user's alone."""
    assert refusal(rule=rule, is_own_user=is_own_user) == status
    assert refusal(rule=rule, is_own_user=is_own_user, changes=False) == status
    shown = {"authorization": f"Bearer {TOKEN}"}
    assert refusal(shown, rule=rule, is_own_user=is_own_user) is None


@pytest.mark.parametrize("rule", ["others", "always", "never"])
def test_code_is_never_taken_of_a_stranger(rule):
    assert refusal(rule=rule, is_own_user=False, runs_code=True) == 401
    shown = {"authorization": f"Bearer {TOKEN}"}
    assert refusal(shown, rule=rule, is_own_user=False, runs_code=True) is None


def test_a_rule_that_asks_nobody_takes_code_of_the_drivers_user():
    assert refusal(rule="never", is_own_user=True, runs_code=True) is None


@pytest.mark.parametrize(
    "shown", ["Bearer wrong", "Basic t0ken", "t0ken", "Bearer", "Bearer t\u00f6ken"]
)
def test_a_wrong_token_is_none(shown):
    assert refusal({"authorization": shown}, rule="always") == 401


def test_a_server_without_a_token_is_shown_none():
    """The history server has none."""
    assert not access_of("never", "", "localhost").shows_token({"authorization": "Bearer "})


def test_an_address_that_others_reach_needs_the_token_for_everything():
    access = access_of("always", TOKEN, "0.0.0.0", "driver.example", is_encrypted=True)
    headers = {"host": "driver.example:8081"}
    with pytest.raises(RestError) as refused:
        access.check(headers, changes=False, is_own_user=True)
    assert refused.value.status == 401
    shown = headers | {"authorization": f"bearer {TOKEN}"}
    access.check(shown, changes=True, is_own_user=False)


@pytest.mark.parametrize(
    ("rule", "is_encrypted"),
    [("others", True), ("never", True), ("always", False), ("others", False)],
)
def test_an_address_that_others_reach_is_refused_without_token_or_tls(rule, is_encrypted):
    with pytest.raises(ConfigurationError, match="security.ssl.rest.enabled"):
        access_of(rule, TOKEN, "0.0.0.0", is_encrypted=is_encrypted)


def test_a_server_without_a_token_takes_none():
    access = access_of("others", "", "localhost")
    access.check(LOCAL, changes=False, is_own_user=True)
    for shown in ({}, {"authorization": "Bearer "}, {"authorization": "bearer"}):
        with pytest.raises(RestError, match="Only the user of this server, and root"):
            access.check(LOCAL | shown, changes=False, is_own_user=False)
    with pytest.raises(ConfigurationError, match="this server has no token"):
        access_of("always", "", "localhost")


def test_an_unknown_rule_is_refused():
    with pytest.raises(ConfigurationError, match="others, always, never"):
        access_of("sometimes", TOKEN, "localhost")
