"""When a vertex shrinks, and how far. Source: docs/spec/autoscaler.md#delayed-scale-down."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.autoscaler import DelayedScaleDowns

V, OTHER = VertexId("v"), VertexId("other")


def test_it_waits_until_the_first_wish_is_an_interval_old():
    delayed = DelayedScaleDowns(100)
    assert [delayed.ask(V, now, 3) for now in (0, 50, 99, 100)] == [None, None, None, 3]


def test_the_largest_wish_of_the_last_interval_counts():
    delayed = DelayedScaleDowns(100)
    assert [delayed.ask(V, 0, 9), delayed.ask(V, 40, 5), delayed.ask(V, 80, 2)] == [None] * 3
    assert delayed.ask(V, 100, 1) == 9
    assert delayed.ask(V, 101, 1) == 5
    assert delayed.ask(V, 141, 1) == 2


def test_forgotten_wishes_wait_anew():
    delayed = DelayedScaleDowns(100)
    delayed.ask(V, 0, 3)
    delayed.ask(OTHER, 0, 4)
    delayed.forget(V)
    assert delayed.ask(V, 100, 3) is None
    assert delayed.ask(OTHER, 100, 4) == 4
    delayed.forget_all()
    assert delayed.ask(OTHER, 200, 4) is None


def test_without_an_interval_it_does_not_wait():
    assert DelayedScaleDowns(0).ask(V, 7, 3) == 3


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50)), min_size=1, max_size=40))
def test_it_agrees_with_keeping_all_wishes(steps):
    delayed, now, asked = DelayedScaleDowns(100), 0, []
    for wait, count in steps:
        now += wait
        asked.append((now, count))
        found = delayed.ask(V, now, count)
        largest = max(one for at, one in asked if at >= now - 100)
        assert found == (largest if asked[0][0] <= now - 100 else None)
