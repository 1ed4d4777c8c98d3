"""Order of results of async operators. Expectations: Flink's ordered and unordered contract (watermarks are barriers)."""

from penstock.engine.runtime.elements import IDLE, Watermark
from penstock.engine.runtime.operators.async_wait import OrderedQueue, UnorderedQueue


def taken(queue):
    return list(queue.take())


def filled(queue, *entries):
    for entry in entries:
        if isinstance(entry, int):
            queue.put(entry)
        else:
            queue.put_event(entry)
    return queue


def test_ordered_results_wait_for_those_before_them():
    queue = filled(OrderedQueue(), 1, 2, Watermark(5), 3)
    queue.complete(2, ["b"])
    queue.complete(3, ["c"])
    assert taken(queue) == []
    assert len(queue) == 4
    queue.complete(1, ["a"])
    assert taken(queue) == [(1, ["a"]), (2, ["b"]), Watermark(5), (3, ["c"])]
    assert len(queue) == 0


def test_unordered_results_leave_as_they_come_but_not_past_a_watermark():
    queue = filled(UnorderedQueue(), 1, 2, Watermark(5), 3, 4)
    queue.complete(3, ["c"])
    queue.complete(2, ["b"])
    assert taken(queue) == [(2, ["b"])]
    queue.complete(1, [])
    assert taken(queue) == [(1, []), Watermark(5), (3, ["c"])]
    queue.complete(4, ["d"])
    assert taken(queue) == [(4, ["d"])]


def test_an_event_with_nothing_before_it_leaves_at_once():
    for queue in (OrderedQueue(), UnorderedQueue()):
        filled(queue, Watermark(1), 1)
        assert taken(queue) == [Watermark(1)]
        filled(queue, IDLE)
        assert taken(queue) == []
        queue.complete(1, ["a"])
        assert taken(queue) == [(1, ["a"]), IDLE]


def test_a_watermark_right_behind_another_replaces_it_and_a_status_does_not():
    for queue in (OrderedQueue(), UnorderedQueue()):
        filled(queue, 1, Watermark(1), Watermark(2), IDLE, Watermark(3))
        assert len(queue) == 4
        queue.complete(1, ["a"])
        assert taken(queue) == [(1, ["a"]), Watermark(2), IDLE, Watermark(3)]


def test_entries_are_in_the_order_in_which_they_came():
    for queue in (OrderedQueue(), UnorderedQueue()):
        filled(queue, 1, 2, Watermark(5), 3)
        queue.complete(1, ["a"])
        queue.complete(3, ["c"])
        assert queue.entries() == [1, 2, Watermark(5), 3]
