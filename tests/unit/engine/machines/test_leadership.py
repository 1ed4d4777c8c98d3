"""The holder's and the contender's view of a lease, with clocks that stop, step and disagree."""

from penstock.engine.machines.leases import (
    Instant,
    Leadership,
    Lease,
    LeaseWatch,
    Standing,
)

DURATION, MARGIN = 5000, 1000


def at(steady_ms: int, wall_ms: int | None = None) -> Instant:
    return Instant(steady_ms, 10**12 + (steady_ms if wall_ms is None else wall_ms))


def leader() -> Leadership:
    return Leadership(DURATION, MARGIN, at(0))


def lease(renewals: int, duration_ms: int = DURATION) -> Lease:
    return Lease(1, "a", "job", "name", renewals, duration_ms)


def test_a_holder_trusts_its_lease_for_less_time_than_a_contender_waits() -> None:
    holder = leader()
    assert holder.standing(at(DURATION - MARGIN - 1)) is Standing.HELD
    assert holder.standing(at(DURATION - MARGIN)) is Standing.DOUBTFUL
    watch = LeaseWatch()
    assert not watch.may_take("1", lease(0), 0)
    assert not watch.may_take("1", lease(0), DURATION - 1)
    assert watch.may_take("1", lease(0), DURATION)


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    holder = leader()
    holder.proved(at(3000))
    assert holder.may_act(at(3000 + DURATION - MARGIN - 1))
    assert not holder.may_act(at(3000 + DURATION - MARGIN))


def test_the_wall_clock_counts_where_the_machine_slept() -> None:
    assert leader().standing(at(10, 60_000)) is Standing.DOUBTFUL


def test_a_clock_that_steps_back_does_not_make_a_lease_longer() -> None:
    holder = leader()
    assert holder.standing(at(DURATION, -3_600_000)) is Standing.DOUBTFUL
    assert holder.standing(at(10, -3_600_000)) is Standing.HELD


def test_a_doubt_that_the_store_settles_is_over() -> None:
    holder = leader()
    assert holder.tick(at(3_600_000)) is Standing.DOUBTFUL
    assert holder.tick(at(3_600_100)) is Standing.DOUBTFUL
    holder.proved(at(3_600_050))
    assert holder.tick(at(3_600_200)) is Standing.HELD
    assert holder.tick(at(3_600_200 + DURATION)) is Standing.DOUBTFUL


def test_a_store_that_stays_silent_for_a_whole_lease_costs_the_leadership() -> None:
    holder = leader()
    holder.unreachable("disk gone")
    assert holder.tick(at(4000)) is Standing.DOUBTFUL
    assert holder.tick(at(4000 + DURATION - 1)) is Standing.DOUBTFUL
    assert holder.tick(at(4000 + DURATION)) is Standing.LOST
    assert "disk gone" in (holder.cause or "")


def test_nobody_acts_for_a_holder_beyond_its_lease() -> None:
    holder = leader()
    last_ms = max(ms for ms in range(DURATION + 1) if holder.may_vouch(at(ms)))
    assert last_ms > 0
    assert last_ms + holder.silence_ms < DURATION
    holder.taken("driver b has it")
    assert not holder.may_vouch(at(0))


def test_what_is_taken_does_not_come_back() -> None:
    holder = leader()
    holder.taken("driver b has it")
    holder.proved(at(10))
    holder.taken("somebody else")
    assert holder.standing(at(11)) is Standing.LOST
    assert holder.cause == "driver b has it"


def test_a_contender_waits_anew_after_each_renewal_and_each_new_holder() -> None:
    watch = LeaseWatch()
    assert not watch.may_take("1", lease(0), 0)
    assert watch.changes == 0
    assert not watch.may_take("1", lease(1), 4999)
    assert watch.changes == 1
    assert not watch.may_take("1", lease(1), 5000)
    assert not watch.may_take("2", lease(1), 9999)
    assert not watch.may_take("2", lease(1), 10_000)
    assert watch.may_take("2", lease(1), 9999 + DURATION)


def test_a_lease_that_was_given_back_is_free_at_once() -> None:
    assert LeaseWatch().may_take("1", lease(0, duration_ms=0), 0)
