"""What is refused before the host starts anything."""

import importlib.util

import pytest

from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.program import ProgramSettings


class HostThatMustNotStart:
    def command_line(self):
        return {}

    def spark_configuration(self, _settings):
        return {}


@pytest.mark.parametrize(
    "option", ["execution.checkpointing.dir", "execution.checkpointing.savepoint-dir"]
)
def test_checkpoints_without_their_client_are_refused_before_spark_starts(option, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    program = ProgramSettings({option: "hdfs://host:8020/checkpoints"})
    with pytest.raises(ConfigurationError, match="penstock\\[hdfs\\]"):
        ClusterExecutor(HostThatMustNotStart()).submit(None, program)
