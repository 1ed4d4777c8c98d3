"""Active, paused and idle times of splits."""

from penstock.engine.runtime.watermarks.by_split import SplitSpent, SplitTimes


def test_times_add_up_to_the_age_of_the_split():
    times = SplitTimes()
    times.now_ms = 100
    times.add("a")
    times.pause("a", 150)
    times.resume("a", 180)
    times.now_ms = 200
    times.idle("a")
    times.now_ms = 260
    times.active("a")
    times.now_ms = 300
    assert times.spent("a") == SplitSpent(active_ms=110, paused_ms=30, idle_ms=60)


def test_a_pause_and_an_idleness_that_last_count():
    times = SplitTimes()
    times.now_ms = 0
    times.add("paused")
    times.add("idle")
    times.pause("paused", 10)
    times.idle("idle")
    times.idle("paused")
    times.now_ms = 50
    assert times.spent("paused") == SplitSpent(10, 40, 0)
    assert times.spent("idle") == SplitSpent(0, 0, 50)


def test_the_clock_of_a_split_stands_still_while_it_is_paused():
    times = SplitTimes()
    times.pause("a", 10)
    assert times.clock("a", 30) == 10
    times.resume("a", 30)
    assert times.clock("a", 35) == 15
    assert times.clock("b", 35) == 35


def test_before_the_first_periodic_call_and_after_its_end_a_split_has_no_times():
    times = SplitTimes()
    times.add("a")
    assert times.spent("a") == SplitSpent(0, 0, 0)
    times.now_ms = 10
    times.add("b")
    times.now_ms = 20
    times.idle("b")
    times.remove("b")
    assert times.spent("b") == SplitSpent(0, 0, 0)
