"""Durations and sizes in words."""

import pytest

from penstock.engine.model.texts.amounts import bytes_text, duration_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_900, "59.9 s"), (60_000, "1 min"),
     (3_600_000, "1 h"), (86_400_000, "1 d"), (86_400_000 * 20_000, "20,000 d")],
)  # fmt: skip
def test_a_duration_has_its_usual_unit(ms, text):
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_a_size_has_its_usual_unit(count, text):
    assert bytes_text(count) == text
