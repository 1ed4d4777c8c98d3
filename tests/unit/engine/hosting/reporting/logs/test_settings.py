"""What configuration and program say of logs."""

import logging

import pytest

from penstock.engine.hosting.reporting.logs.settings import (
    LogSettings,
    log_settings_of,
    stdout_path,
    taskmanager_log_path,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError

JOB = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def root():
    """The root logger of a program that has set nothing."""
    before = logging.root.level
    logging.root.setLevel(logging.WARNING)
    yield logging.root
    logging.root.setLevel(before)


def test_without_settings_info_is_logged_in_text_in_files_of_100_mb(root):
    settings = log_settings_of(Settings())
    assert (settings.level, settings.form) == (logging.INFO, "text")
    assert (settings.max_bytes, settings.max_files) == (100 << 20, 10)
    assert (settings.directory, settings.path) == (None, None)


def test_flinks_keys_and_names_of_levels_count(root):
    settings = log_settings_of(
        Settings({
            "env.log.dir": "/logs",
            "env.log.level": "WARN",
            "env.log.max": "3",
            "taskmanager.log.path": "/logs/tm.log",
            "penstock.log.format": "json",
            "penstock.log.max-file-size": "1 mb",
        })
    )
    assert settings.level == logging.WARNING
    assert (settings.directory, settings.path) == ("/logs", "/logs/tm.log")
    assert (settings.form, settings.max_bytes, settings.max_files) == ("json", 1 << 20, 3)


def test_the_level_of_the_programs_root_counts_unless_one_is_configured(root):
    root.setLevel(logging.DEBUG)
    assert log_settings_of(Settings()).level == logging.DEBUG
    assert log_settings_of(Settings({"env.log.level": "ERROR"})).level == logging.ERROR


def test_levels_of_the_programs_loggers_go_along(root, monkeypatch):
    monkeypatch.setattr(logging.getLogger("of.the.program"), "level", logging.DEBUG)
    levels = dict(log_settings_of(Settings()).levels)
    assert levels["of.the.program"] == logging.DEBUG
    assert levels["penstock"] == logging.INFO


@pytest.mark.parametrize(
    ("key", "value"), [("env.log.level", "loud"), ("penstock.log.format", "xml")]
)
def test_a_wrong_value_names_its_key_and_what_it_takes(key, value):
    with pytest.raises(ConfigurationError, match=rf"{key}.* '{value}'"):
        log_settings_of(Settings({key: value}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LogSettings(), "/own/penstock-taskmanager-01234567-tm-2.log"),
        (LogSettings(directory="/logs"), "/logs/penstock-taskmanager-01234567-tm-2.log"),
        (LogSettings(directory="/logs", path="/l/tm.txt"), "/l/tm-01234567-tm-2.txt"),
        (LogSettings(path="/l/tm"), "/l/tm-01234567-tm-2.log"),
    ],
)
def test_taskmanagers_of_one_machine_have_files_of_their_own(settings, expected):
    assert taskmanager_log_path(settings, "/own", JOB, "tm-2") == expected


def test_what_is_printed_lies_beside_the_log():
    assert stdout_path("/logs/tm.log") == "/logs/tm.out"
