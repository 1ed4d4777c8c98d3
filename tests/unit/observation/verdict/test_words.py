"""How verdicts name things."""

import pytest

from penstock.observation.verdict.words import names_text


@pytest.mark.parametrize(
    ("names", "text"),
    [(["a"], "'a'"), (["a", "b"], "'a' and 'b'"), (["a", "b", "c"], "'a', 'b' and 'c'")],
)
def test_names_are_told_as_people_do(names, text):
    assert names_text(names) == text
