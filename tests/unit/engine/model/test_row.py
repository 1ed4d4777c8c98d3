"""Rows as keys of Python's dicts and sets. What PyFlink's programs see of them is in tests/pyflink."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.row import Row

VALUES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), min_size=1)


@given(VALUES, st.randoms(use_true_random=False))
def test_equal_rows_have_equal_hashes(values, random):
    names = list(values)
    random.shuffle(names)
    row, other = Row(**values), Row(**{name: values[name] for name in names})
    assert row == other
    assert hash(row) == hash(other)
    assert len({row, other}) == 1


def test_a_row_with_names_is_no_row_without():
    assert len({Row(a=1, b=2), Row(1, 2), Row(a=2, b=1)}) == 3
