"""What a true PushGateway gets. Source: Flink PrometheusPushGatewayReporter."""

import logging

import pytest

from penstock.engine.model.config import Settings
from penstock.ops.reporters.push_gateway import grouping_key, job_name, push_gateway_reporter
from penstock.ops.reporters.settings import ReporterSettings
from tests.tools.hosting.prometheus import groups_of, push_gateway
from tests.tools.waiting import wait_until

SEEN = "flink_taskmanager_my_grp_seen"
HASH = "$2b$04$8yf.HU11Q1vomdrSFEhtH.emouvM4kBVFIs6DFyiMpui/17O.WERy"
"""Of `a secret`."""


def settings(**more):
    own = {f"metrics.reporter.x.{key}": value for key, value in more.items()}
    return ReporterSettings("x", Settings({"metrics.reporter.x.interval": "20 ms", **own}))


@pytest.fixture(scope="module")
def gateway():
    with push_gateway() as address:
        yield address


@pytest.mark.foreign
def test_metrics_are_a_group_that_goes_with_the_driver(gateway, job_registry):
    reporter = push_gateway_reporter(
        settings(
            hostUrl=gateway, jobName="mine", randomJobNameSuffix="false", groupingKey="a=b;c=d e"
        )
    )
    (group,) = wait_until(lambda: groups_of(gateway), "nothing was pushed")
    assert group["labels"] == {"job": "mine", "a": "b", "c": "d e"}
    (line,) = group[SEEN]["metrics"]
    assert (float(line["value"]), group[SEEN]["type"]) == (7.0, "GAUGE")
    assert line["labels"].items() >= {"host": "h_1", "tm_id": "tm_1"}.items()
    with job_registry.metrics() as store:
        store.forget_taskmanager("tm-1")
    wait_until(lambda: SEEN not in groups_of(gateway)[0], "a push does not replace the group")
    reporter.stop()
    assert groups_of(gateway) == []


@pytest.mark.foreign
def test_a_group_can_be_left_behind(gateway, job_registry):
    given = settings(hostUrl=gateway, jobName="stays", deleteOnShutdown="false")
    reporter = push_gateway_reporter(given)
    wait_until(lambda: groups_of(gateway), "nothing was pushed")
    reporter.stop()
    (group,) = groups_of(gateway)
    assert group["labels"]["job"].startswith("stays")


@pytest.mark.foreign
def test_user_and_password_are_shown(tmp_path, job_registry):
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{me: '{HASH}'}}\n")
    with push_gateway(f"--web.config.file={tmp_path}/web.yml", user=("me", "a secret")) as address:
        given = settings(hostUrl=address, username="me", password="a secret")
        reporter = push_gateway_reporter(given)
        groups = lambda: groups_of(address, ("me", "a secret"))  # noqa: E731
        wait_until(groups, "nothing was pushed")
        reporter.stop()
        assert groups() == []


@pytest.mark.foreign
def test_a_gateway_that_refuses_is_a_warning_without_the_password(tmp_path, job_registry, caplog):
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{me: '{HASH}'}}\n")
    with push_gateway(f"--web.config.file={tmp_path}/web.yml", user=("me", "a secret")) as address:
        given = settings(hostUrl=address, username="me", password="another one")
        reporter = push_gateway_reporter(given)
        wait_until(lambda: caplog.records, "nobody says that it is refused")
        reporter.stop()
    assert {one.levelno for one in caplog.records} == {logging.WARNING}
    assert "Unauthorized" in caplog.text
    assert "another one" not in caplog.text


def test_32_random_digits_follow_the_name_of_the_job():
    first, second = (job_name(settings(jobName="mine")) for _ in range(2))
    assert first != second
    assert {len(first), len(second)} == {len("mine") + 32}
    assert int(first.removeprefix("mine"), 16) >= 0
    assert job_name(settings(jobName="mine", randomJobNameSuffix="false")) == "mine"


def test_parts_of_the_grouping_key_that_are_no_pairs_are_left_out(caplog):
    assert grouping_key("a=b;x;=y;z=;;c=d") == {"a": "b", "c": "d"}
    assert [one.args[0] for one in caplog.records] == ["x", "=y", "z="]
    assert grouping_key("") == {}
