"""Lists of answers whose elements are made when they are read."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.jobs.views.rows import Rows


@given(st.lists(st.integers(), max_size=9), st.integers(-10, 10), st.integers(-10, 10))
def test_rows_are_as_the_list_of_what_is_made_of_the_items(items, start, end):
    rows, as_list = Rows(items, str), [str(one) for one in items]
    assert rows == as_list
    assert as_list == rows
    assert rows != [*as_list, "more"]
    assert rows[start:end] == as_list[start:end]
    assert len(rows) == len(as_list)
    assert repr(rows) == repr(as_list)
    assert {"rows": rows} == {"rows": as_list}


def test_an_element_is_made_when_it_is_read_and_not_kept():
    made = []
    rows = Rows([1, 2, 3], made.append)
    assert len(rows) == 3
    assert made == []
    rows[1]
    rows[1:][0]
    assert made == [2, 2]
