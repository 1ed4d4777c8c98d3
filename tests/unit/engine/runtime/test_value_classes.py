import pytest

from penstock.engine.runtime.elements import classes_of


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], set()),
        ([1, 2, 3], {int}),
        ((1, True), {int, bool}),
        ([None, "a", None], {type(None), str}),
        (["a", "b", 1.0], {str, float}),
    ],
)
def test_the_classes_of_a_batch(values, expected):
    assert classes_of(values) == expected
