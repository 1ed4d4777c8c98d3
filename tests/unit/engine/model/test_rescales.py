"""Records of rescales on another clock."""

from penstock.engine.model.elastic import (
    Rescale,
    RescaleCause,
    RescaleOutcome,
    Rescales,
    StateSpan,
)

STATES = (StateSpan("Executing", 10, 20), StateSpan("Restarting", 20))
ONE = Rescale("r", "q", 1, RescaleCause.UPDATE_REQUIREMENT, 10, {}, {}, states=STATES)


def test_all_times_are_shifted_and_what_has_not_happened_has_none():
    known = Rescales((ONE,), {}, {RescaleOutcome.COMPLETED: ONE}, True).shifted(1000)
    for one in (*known.kept, known.latest[RescaleOutcome.COMPLETED]):
        assert (one.started_ms, one.ended_ms) == (1010, None)
        assert one.states == (StateSpan("Executing", 1010, 1020), StateSpan("Restarting", 1020))


def test_one_is_found_by_its_id():
    assert Rescales((ONE,)).find("r") is ONE
    assert Rescales((ONE,)).find("s") is None
