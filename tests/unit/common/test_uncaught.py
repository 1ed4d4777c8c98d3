"""How an error that ends a program or a cell is shown. A real notebook: tests/jobs/test_notebook.py."""

import sys

import pytest

from penstock.common.uncaught import end_well_if_cancelled, show_errors
from penstock.engine.model.errors import ConfigurationError, JobCancelledError, PenstockError


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
    assert lines[-2:] == ["penstock.engine.model.errors.ConfigurationError: no such", "option"]


def test_with_all_frames_ipython_shows_the_error_as_any_other(show):
    for _ in range(2):
        show(is_full=True)
        assert not hasattr(PenstockError("x"), "_render_traceback_")


@pytest.mark.parametrize("is_full", [False, True])
def test_a_cancelled_job_ends_a_program_well_but_no_prompt(show, monkeypatch, capsys, is_full):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    show(is_full=is_full)
    end_well_if_cancelled()
    error = JobCancelledError("job 7 was cancelled")
    with pytest.raises(SystemExit) as ended:
        sys.excepthook(JobCancelledError, error, None)
    assert ended.value.code == 0
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    sys.excepthook(JobCancelledError, error, None)
    assert capsys.readouterr().err.count("job 7 was cancelled") == 2


def test_the_programs_own_hook_shows_the_error_of_a_cancelled_job_and_the_program_ends_well(
    show, monkeypatch
):
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    show(is_full=False)
    end_well_if_cancelled()
    end_well_if_cancelled()
    cancelled, other = JobCancelledError("job 7 was cancelled"), ValueError("mine")
    with pytest.raises(SystemExit) as ended:
        sys.excepthook(JobCancelledError, cancelled, None)
    assert ended.value.code == 0
    sys.excepthook(ValueError, other, None)
    assert shown == [cancelled, other]
