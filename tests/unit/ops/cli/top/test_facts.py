"""What `penstock top` makes of answers: rates, lags, and what is not known."""

from penstock.ops.cli.top.facts import VertexRow, checkpoint_row, vertex_row

VERTEX = "1" * 32


def node(**more):
    figures = {"busy": None, "back-pressured": None, "records-in": None, "records-out": None}
    place = {"id": VERTEX, "name": "Map", "states": {"RUNNING": 2}, "watermark-lag": None}
    return place | figures | more


def test_rates_are_the_drivers_and_shares_those_of_the_subtask_that_has_most():
    spread = {"min": 0.1, "median": 0.2}
    busy, blocked = spread | {"max": 0.7}, spread | {"max": 0.3}
    figures = {"records-in": 50.0, "records-out": 10.5, "watermark-lag": 300}
    row = vertex_row(node(busy=busy, **figures, **{"back-pressured": blocked}))
    assert row == VertexRow(VERTEX, "Map", "2 RUNNING", 50.0, 10.5, 0.7, 0.3, 300)


def test_what_is_not_known_stays_so():
    states = {"FINISHED": 1, "CANCELED": 1}
    assert vertex_row(node(states=states)) == VertexRow(VERTEX, "Map", "1 FINISHED, 1 CANCELED")


def test_the_newest_completed_checkpoint_is_told():
    newest = {"id": 7, "end_to_end_duration": 30, "state_size": 99, "trigger_timestamp": 400}
    told = {"latest": {"completed": newest}, "counts": {"failed": 2}}
    row = checkpoint_row(told, 1000)
    assert (row.checkpoint_id, row.took_ms, row.state_bytes, row.age_ms, row.failed) == (
        7, 30, 99, 600, 2,
    )  # fmt: skip
    assert checkpoint_row({"latest": {"completed": None}, "counts": {"failed": 0}}, 0) is None
