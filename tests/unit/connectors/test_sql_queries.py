"""What a user's query may end in."""

import pytest

from penstock.connectors.sql_source import without_end


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT 1;", "SELECT 1"),
        ("SELECT 1 ; ;\n", "SELECT 1  \n"),
        ("SELECT 1; -- all; of them", "SELECT 1 -- all; of them"),
        ("SELECT 1 /* a; */ ; /* b */ -- c", "SELECT 1 /* a; */  /* b */ -- c"),
        ("SELECT ';--'", "SELECT ';--'"),
        ("SELECT 'it''s;' ;", "SELECT 'it''s;' "),
        ('SELECT "a;" FROM `b;`;', 'SELECT "a;" FROM `b;`'),
        ("SELECT $t$ ; -- $t$;", "SELECT $t$ ; -- $t$"),
        ("SELECT 1; SELECT 2;", "SELECT 1; SELECT 2"),
        ("SELECT 1 -- a;", "SELECT 1 -- a;"),
        ("", ""),
    ],
)
def test_semicolons_at_the_end_go_and_all_others_stay(query, expected):
    assert without_end(query) == expected
