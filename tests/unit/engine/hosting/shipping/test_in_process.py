"""What a program may ask for its functions, and does not get, where they run in this process."""

import os
import sys

import pytest

from penstock.datastream import RuntimeExecutionMode
from penstock.engine.hosting.shipping.interpreter import VARIABLE
from penstock.engine.model.errors import ConfigurationError
from penstock.testing import MiniCluster
from tests.tools.programs.environments import collected, minicluster_environment


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_another_interpreter_is_refused_with_both(mode):
    env = minicluster_environment(MiniCluster(1)).set_runtime_mode(mode)
    env.set_python_executable("/opt/py/bin/python")
    with pytest.raises(ConfigurationError) as refused:
        collected(env.from_collection([1]))
    assert "python.executable is '/opt/py/bin/python'" in str(refused.value)
    assert repr(sys.executable) in str(refused.value)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_functions_find_the_interpreter_that_is_named_in_the_variable_python(monkeypatch, mode):
    """As in Flink's workers."""
    monkeypatch.setenv(VARIABLE, "another")
    env = minicluster_environment(MiniCluster(1)).set_runtime_mode(mode)
    env.set_python_executable(sys.executable)
    assert collected(env.from_collection([1]).map(lambda _: os.environ[VARIABLE])) == [
        sys.executable
    ]
