"""A traceback that comes as text gets the lines of source that only the driver has."""

import linecache

import pytest

from penstock.common.job_client import with_source_lines

CELL = "/tmp/ipykernel_7/1234.py"


pytestmark = pytest.mark.usefixtures("cell")


@pytest.fixture
def cell(monkeypatch):
    lines = ["def half(value):\n", "    return 1 / value\n"]
    monkeypatch.setitem(linecache.cache, CELL, (30, None, lines, CELL))


def test_a_cell_of_a_notebook_shows_its_line():
    text = (
        f'ZeroDivisionError: division by zero\n  File "{CELL}", line 2, in half\n  in operator: Map'
    )
    assert with_source_lines(text).split("\n")[1:] == [
        f'  File "{CELL}", line 2, in half',
        "    return 1 / value",
        "  in operator: Map",
    ]


def test_a_frame_at_the_end_of_the_text_gets_its_line():
    assert with_source_lines(f'  File "{CELL}", line 1, in <module>').endswith(
        "\n    def half(value):"
    )


def test_a_frame_that_has_its_line_is_left_alone():
    text = f'  File "{CELL}", line 2, in half\n    what ran elsewhere'
    assert with_source_lines(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "no frame", '  File "/no/such/file.py", line 3, in f', f'  File "{CELL}", line 9, in f'],
)
def test_what_is_not_known_is_left_alone(text):
    assert with_source_lines(text) == text
