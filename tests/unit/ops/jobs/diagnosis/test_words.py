"""How verdicts name things."""

import pytest

from penstock.ops.jobs.diagnosis.words import names_text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("a", "'a'"),
        ("ab", "'a' and 'b'"),
        ("abc", "'a', 'b' and 'c'"),
        ("abcd", "'a', 'b', 'c' and 'd'"),
        ("abcdefg", "'a', 'b', 'c' and 4 more"),
    ],
)
def test_names_are_told_as_people_do(names, text):
    assert names_text(names) == text
