"""The end of a stream and its settings, where a global committer stands behind the writers."""

import json

from penstock.common import Row, Types
from penstock.connectors.lakehouse import DeltaSink
from penstock.datastream import StreamExecutionEnvironment

ORDERS = Types.ROW_NAMED(["id"], [Types.LONG()])


def test_settings_reach_the_writers_and_their_committer(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(3)
    stream = env.from_collection([Row(id=1)], ORDERS).rebalance()
    end = stream.sink_to(DeltaSink.for_row_data(str(tmp_path / "orders"), ORDERS).build())
    end.name("orders").uid("o").slot_sharing_group("io").set_parallelism(2)
    writer, committer = list(env.plumbing.program.nodes.values())[-2:]
    assert (writer.uid, committer.uid) == ("o", "o-global-committer")
    assert (writer.parallelism, committer.parallelism, committer.max_parallelism) == (2, 1, 1)
    assert (writer.slot_sharing_group, committer.slot_sharing_group) == ("io", "io")
    plan = json.loads(env.get_execution_plan())["nodes"][-2:]
    assert [one["contents"] for one in plan] == [
        "Sink: orders: Writer",
        "Sink: orders: Global Committer",
    ]
    assert plan[1]["predecessors"][0]["ship_strategy"] == "GLOBAL"
