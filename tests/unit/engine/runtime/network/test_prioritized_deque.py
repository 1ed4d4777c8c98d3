"""PrioritizedDeque: order and count of priority elements
(docs/spec/exchange.md#priority-and-barriers-in-a-queue).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.network.prioritized_deque import PrioritizedDeque


def test_elements_with_priority_come_first_in_their_own_order() -> None:
    queue = PrioritizedDeque[int]()
    for element in (1, 2):
        queue.add(element)
    queue.add_priority(3)
    queue.add(4)
    queue.add_priority(5)
    queue.prioritize(2)
    assert list(queue) == [3, 5, 2, 1, 4]
    assert queue.priority_count == 3


def test_an_element_right_behind_the_priority_part_stays_in_place_when_prioritized() -> None:
    queue = PrioritizedDeque[int]()
    queue.add_priority(1)
    queue.add(2)
    queue.prioritize(2)
    queue.prioritize(2)
    assert (list(queue), queue.priority_count) == ([1, 2], 2)


def test_removing_from_the_priority_part_shrinks_it() -> None:
    queue = PrioritizedDeque[int]()
    queue.add(1)
    queue.add_priority(9)
    assert queue.remove(9)
    assert not queue.remove(9)
    assert (queue.poll(), queue.poll(), queue.priority_count) == (1, None, 0)


def test_what_is_not_there_cannot_be_prioritized() -> None:
    with pytest.raises(ValueError):
        PrioritizedDeque[int]().prioritize(1)


@given(st.lists(st.tuples(st.booleans(), st.integers())))
def test_polling_gives_priority_in_order_then_the_others_in_order(
    added: list[tuple[bool, int]],
) -> None:
    queue = PrioritizedDeque[int]()
    for has_priority, element in added:
        (queue.add_priority if has_priority else queue.add)(element)
    first = [element for has_priority, element in added if has_priority]
    then = [element for has_priority, element in added if not has_priority]
    assert [queue.poll() for _ in added] == first + then
