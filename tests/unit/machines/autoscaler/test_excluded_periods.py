"""Times without rescales. Source: docs/spec/autoscaler.md#excluded-periods."""

from datetime import UTC, datetime

import pytest

from penstock.machines.autoscaler.excluded_periods import parse_periods
from penstock.model.errors import ConfigurationError

MONDAY, SATURDAY = "2026-11-23", "2026-11-28"


def holds(text, at):
    time_ms = int(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() * 1000)
    return any(period.holds(time_ms) for period in parse_periods(text))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("9:30-10:50", "09:30:00", "09:29:59"),
        ("9:30-10:50", "10:50:00", "10:50:01"),
        ("9:30:30-10:50:20", "10:50:20", "09:30:29"),
        ("* * 9-11,14-16 * * ?", "11:59:59", "12:00:00"),
        ("* * 9-11,14-16 * * ?", "14:00:00", "13:59:59"),
        ("* 0/20 * * * ?", "07:40:30", "07:41:00"),
        ("* 10/20 * * * ?", "07:50:30", "07:00:30"),
        ("* 30-40/5 * * * ?", "07:40:30", "07:45:00"),
        ("1:00-2:00; 3:00-4:00", "03:30:00", "02:30:00"),
    ],
)
def test_times_of_the_day(text, inside, outside):
    assert holds(text, f"{MONDAY}T{inside}")
    assert not holds(text, f"{MONDAY}T{outside}")


@pytest.mark.parametrize("days", ["2-6", "MON-FRI", "mon,tue,wed,thu,fri", "2,3,4,5,6"])
def test_days_of_the_week_begin_with_sunday(days):
    assert holds(f"* * * ? * {days}", f"{MONDAY}T12:00:00")
    assert not holds(f"* * * ? * {days}", f"{SATURDAY}T12:00:00")


def test_days_months_and_years():
    assert holds("* * * 23 NOV ? 2026", f"{MONDAY}T00:00:00")
    for other in ("* * * 24 NOV ? 2026", "* * * 23 10 ? 2026", "* * * 23 11 ? 2025"):
        assert not holds(other, f"{MONDAY}T00:00:00")


def test_of_two_parts_both_must_hold():
    text = "9:30-10:50 && * * * ? * 2,5"
    assert holds(text, f"{MONDAY}T10:00:00")
    assert not holds(text, f"{MONDAY}T11:00:00")
    assert not holds(text, f"{SATURDAY}T10:00:00")
    assert holds("* * * ? * 2 && 9:30-10:50", f"{MONDAY}T10:00:00")


def test_no_text_is_no_period():
    assert parse_periods(" ; ") == ()


@pytest.mark.parametrize(
    "text",
    [
        "9:30",
        "9:30-25:00",
        "9:61-10:00",
        "22:00-6:00",
        "* * 9 * *",
        "* * 24 * * ?",
        "* * 11-9 * * ?",
        "* * x * * ?",
        "* */0 * * * ?",
        "* * * L * ?",
        "* * * ? * 8",
        "9:00-10:00 && 11:00-12:00",
        "* * * ? * 2 && * * * ? * 3",
        "*" * 5,
    ],
)
def test_another_form_is_refused_with_its_text(text):
    with pytest.raises(ConfigurationError, match="excluded.periods") as refused:
        parse_periods(f"1:00-2:00; {text}")
    assert f"'{text}'" in str(refused.value)
