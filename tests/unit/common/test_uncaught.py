"""How an error that ends a program or a cell is shown. A real notebook: tests/jobs/test_notebook.py."""

import pytest

from penstock.common.uncaught import show_errors
from penstock.model.errors import ConfigurationError, PenstockError


@pytest.fixture
def show():
    """`show_errors`, and afterwards as every program begins."""
    yield show_errors
    show_errors(is_full=False)


def test_ipython_asks_the_error_for_its_lines(show):
    """IPython's protocol: an error with this method has its own traceback."""
    show(is_full=False)
    with pytest.raises(ConfigurationError) as caught:
        raise ConfigurationError("no such\noption")
    lines = caught.value._render_traceback_()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["penstock.model.errors.ConfigurationError: no such", "option"]


def test_with_all_frames_ipython_shows_the_error_as_any_other(show):
    for _ in range(2):
        show(is_full=True)
        assert not hasattr(PenstockError("x"), "_render_traceback_")
