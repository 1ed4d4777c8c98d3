"""Switches of a demonstration."""

import pytest

from penstock.engine.model.config import Settings
from penstock.ops.rest.answers import Asked, RestError
from penstock.ops.rest.requests.dashboard_handlers import switches, turn
from penstock.ops.rest.requests.handlers import Driver


def driver(folder=None):
    settings = {} if folder is None else {"penstock.web.switches": str(folder)}
    return Driver(None, Settings(settings), None, "", "")


def told(of):
    return switches(of, Asked({}, {}))["switches"]


def turned(of, name, is_on):
    return turn(of, Asked({"name": name}, {}, {"on": is_on}))


def test_a_switch_is_told_turned_on_and_off(tmp_path):
    (tmp_path / "slow.text").write_text("Makes it slow.\n", "utf-8")
    off = {"name": "slow", "text": "Makes it slow.", "on": False}
    assert told(driver(tmp_path)) == [off]
    for _ in range(2):
        assert turned(driver(tmp_path), "slow", True) == {**off, "on": True}
    assert (tmp_path / "slow.on").exists()
    for _ in range(2):
        assert turned(driver(tmp_path), "slow", False) == off
    assert told(driver(tmp_path)) == [off]


def test_a_program_without_switches_has_none():
    assert told(driver()) == []


@pytest.mark.parametrize("name", ["other", "../slow", "slow.text", ""])
def test_what_is_no_switch_is_refused(tmp_path, name):
    (tmp_path / "slow.text").write_text("Makes it slow.", "utf-8")
    with pytest.raises(RestError) as refused:
        turned(driver(tmp_path), name, True)
    assert refused.value.status == 404
    assert [path.name for path in tmp_path.iterdir()] == ["slow.text"]


def test_nothing_can_be_turned_where_nothing_is_offered():
    with pytest.raises(RestError):
        turned(driver(), "slow", True)
