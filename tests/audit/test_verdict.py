"""The verdict of an audit: what it states, and when a run has shown nothing."""

import pytest

from audit.verdict import Minimum, Report


def report(kinds, minutes, minimum=None):
    """Of a run with these faults, dealt in so many minutes."""
    faults = [{"kind": kind, "output_again_s": 1.0} for kind in kinds]
    audited = {"log": 12345, "rows": {"chain": 12345, "windows": 678}}
    return Report(faults, audited, 60 * minutes + 5, 60 * minutes, minimum or Minimum())


def test_it_states_each_kind_the_rate_and_what_was_checked():
    found = report(["a", "b", "a", "c"], 2.0, Minimum(4, 2.0, 3))
    found.faults[0]["output_again_s"] = 3.0
    assert found.text() == (
        "4 faults:\n"
        "  2 a: output again after 3.0 s, at most 3.0 s\n"
        "  1 b: output again after 1.0 s, at most 1.0 s\n"
        "  1 c: output again after 1.0 s, at most 1.0 s\n"
        "AUDIT PASSED: 12,345 records in 125 s: none lost, none doubled, the chain of every key "
        "whole; checked too: 678 windows\n"
        "  under 4 faults, 2.0 a minute, of 3 kinds: 2 a, 1 b, 1 c\n"
        "  the least that counts: 4 faults, 2.0 a minute, 3 kinds"
    )


@pytest.mark.parametrize(
    ("kinds", "minutes", "missing"),
    [
        (["a", "b", "c"], 0.5, ["3 faults, and at least 4 are needed"]),
        (["a", "b", "c", "a"], 2.1, ["1.9 faults a minute, and at least 2.0 are needed"]),
        (["a", "b", "a", "b"], 1.0, ["2 kinds of faults, and at least 3 are needed"]),
        (
            ["a", "b"],
            11.0,
            [
                "2 faults, and at least 4 are needed",
                "0.2 faults a minute, and at least 2.0 are needed",
                "2 kinds of faults, and at least 3 are needed",
            ],
        ),
        ([], 1.0, None),
    ],
)
def test_below_any_minimum_nothing_is_shown(kinds, minutes, missing):
    found = report(kinds, minutes)
    if missing is not None:
        assert found.missing == missing
    text = found.text()
    assert "AUDIT INCONCLUSIVE" in text
    assert "PASSED" not in text
    for reason in found.missing:
        assert reason in text


def test_a_run_that_is_meant_to_have_fewer_passes():
    assert "AUDIT PASSED" in report(["a"], 1.0, Minimum(1, 1.0, 1)).text()
    assert "AUDIT PASSED" in report([], 1.0, Minimum(0, 0.0, 0)).text()


@pytest.mark.parametrize(
    ("seconds", "kinds", "expected"),
    [
        (30, "abcdefgh", Minimum(4, 2.0, 3)),
        (600, "abcdefghijklmnop", Minimum(4, 2.0, 10)),
        (600, "abc", Minimum(4, 2.0, 3)),
        (30, "a", Minimum(4, 2.0, 1)),
        (30, "", Minimum(0, 0.0, 0)),
    ],
)
def test_a_longer_run_has_to_show_more_kinds_but_never_more_than_it_is_dealt(
    seconds, kinds, expected
):
    assert Minimum.usual(seconds, tuple(kinds)) == expected
