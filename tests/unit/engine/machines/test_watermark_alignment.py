"""Groups of sources that wait for each other. Expectations:
docs/spec/watermarks.md#alignment-of-sources.
"""

from penstock.engine.machines.sources import WatermarkAlignment

HIGHEST = 2**63 - 1


def test_the_slowest_reader_says_how_far_all_may_go():
    group = WatermarkAlignment()
    assert group.max_allowed_ms(10) is None
    group.report("a0", 100)
    group.report("a1", 115)
    group.report("b0", HIGHEST)
    assert group.max_allowed_ms(10) == 110
    assert group.max_allowed_ms(30) == 130
    group.report("a0", 120)
    assert group.max_allowed_ms(10) == 125


def test_a_sum_too_large_for_64_bits_is_the_highest():
    group = WatermarkAlignment()
    group.report("a", HIGHEST)
    assert group.max_allowed_ms(10) == HIGHEST


def test_a_reader_that_starts_again_holds_nobody_back_before_it_reports():
    group = WatermarkAlignment()
    group.report("a", 5)
    group.report("b", 50)
    group.forget("a")
    group.forget("unknown")
    assert group.max_allowed_ms(1) == 51
