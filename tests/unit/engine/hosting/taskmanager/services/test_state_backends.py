"""What the keyed state backends of a TaskManager read. The jobs with RocksDB cover everything else."""

import pytest

from penstock.engine.hosting.taskmanager.services.io_directories import IoDirectories
from penstock.engine.hosting.taskmanager.services.state_backends import StateBackends
from penstock.engine.model.errors import UserError
from penstock.engine.model.ids import AllocationId
from penstock.engine.runtime.state.settings import StateBackendSettings

OF_A_CLASS_THAT_IS_GONE = b"cdecimal\nGone\n."


def test_a_value_in_rocksdb_whose_class_is_gone_ends_the_job(tmp_path):
    backends = StateBackends(StateBackendSettings(True), IoDirectories([str(tmp_path)], "tm"))
    loads = backends.of_slot(AllocationId("slot")).keywords["settings"].loads
    with pytest.raises(
        UserError, match="a value of the state in RocksDB cannot be read.*Gone"
    ) as caught:
        loads(OF_A_CLASS_THAT_IS_GONE)
    assert not caught.value.is_recoverable
