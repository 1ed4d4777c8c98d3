"""What a job changes of a process is put back before the next one: docs/internals/workers.md. Of this test's own process."""

import importlib
import logging
import os
import sys

import pytest

from penstock.engine.hosting.taskmanager.process_state import ProcessState


@pytest.fixture
def state(tmp_path):
    """The state of this process, which is put back after the test in any case."""
    folder, before = os.getcwd(), set(sys.modules)
    made = ProcessState()
    yield made
    made.put_back(None)
    os.chdir(folder)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_folder_environment_and_path_are_put_back(state, tmp_path):
    before = os.getcwd(), list(sys.path)
    os.chdir(tmp_path)
    os.environ["CHANGED_BY_A_TEST"] = "yes"
    sys.path.insert(0, "/changed")
    state.put_back(None)
    assert (os.getcwd(), list(sys.path)) == before
    assert "CHANGED_BY_A_TEST" not in os.environ


def test_loggers_are_put_back(state):
    logger = logging.getLogger("made.by.a.test")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(logging.NullHandler())
    state.put_back(None)
    assert (logger.level, logger.handlers) == (logging.NOTSET, [])


def test_modules_of_user_code_are_forgotten_and_a_changed_one_is_noticed_all_the_same(
    state, tmp_path
):
    """Python may take outdated bytecode of a file that changes twice within a second."""
    module = tmp_path / "changed_of_a_test.py"
    module.write_text("SEEN = []\n", encoding="utf-8")
    os.utime(module, (1_000_000_000, 1_000_000_000))
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    importlib.import_module("changed_of_a_test")
    state.note_files()
    state.put_back(None)
    assert "changed_of_a_test" not in sys.modules
    assert state.outdated() == ""
    module.write_text("SEEN = [1]\n", encoding="utf-8")
    os.utime(module, (1_100_000_000, 1_100_000_000))
    assert state.outdated() == str(module)
