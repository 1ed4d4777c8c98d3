"""Who touches a task's state from a thread of their own is told so, on a MiniCluster always."""

import threading

import pytest

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import UserError
from penstock.engine.runtime.state.heap import CheckedKeyedStateBackend


class ReadsStateElsewhere(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update(value)
        found = []

        def read():
            try:
                found.append(self.count.value())
            except UserError as error:
                found.append(str(error))

        thread = threading.Thread(target=read, name="a-thread-of-the-user")
        thread.start()
        thread.join()
        yield found[0]


def test_state_read_from_another_thread_is_refused_with_both_names():
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.use_executor(MiniCluster(parallelism=1).executor())
    read = env.from_collection([1]).key_by(lambda value: value).process(ReadsStateElsewhere())
    with read.execute_and_collect() as found:
        (text,) = list(found)
    assert "thread 'a-thread-of-the-user' used state or operators of 'penstock-" in text
    assert "AsyncFunction" in text


def test_every_access_is_checked():
    calls = []
    backend = CheckedKeyedStateBackend(check=lambda: calls.append(1))
    backend.set_key("k")
    state = backend.get_state(ValueStateDescriptor("s", Types.LONG()))
    for access in (state.value, lambda: state.update(1), state.clear):
        before = len(calls)
        access()
        assert len(calls) > before


def test_a_refused_access_changes_nothing():
    is_ours = [True]

    def check():
        if not is_ours[0]:
            raise UserError("another thread")

    backend = CheckedKeyedStateBackend(check=check)
    backend.set_key("k")
    state = backend.get_state(ValueStateDescriptor("s", Types.LONG()))
    state.update(1)
    is_ours[0] = False
    with pytest.raises(UserError):
        state.update(2)
    is_ours[0] = True
    assert state.value() == 1
