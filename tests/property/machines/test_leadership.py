"""Drivers that contend for one lease, each on clocks of its own, stopped at any moment: never do two act at once."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.machines.leases import (
    Instant,
    Leadership,
    Lease,
    LeaseWatch,
    Standing,
)

DURATION, MARGIN = 1000, 200
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),  # who
        st.sampled_from(["renew", "write", "hear", "tick", "look", "step the wall clock"]),
        st.sampled_from([0, 0, 100, 500, 1000]),  # ms that pass before
        st.integers(-5000, 5000),  # how far a wall clock is set
    ),
    max_size=80,
)


@dataclass
class Store:
    """The lease in the shared directory; its name is the token."""

    token: int = 0
    renewals: int = 0

    def lease(self) -> Lease:
        return Lease(self.token, "", "", "", self.renewals, DURATION)


@dataclass
class Driver:
    """`asked`: when it began the renewal that is under way. `answer`: whether the store took it, not heard yet."""

    wall_ms: int = 0
    token: int = 0
    leadership: Leadership | None = None
    watch: LeaseWatch = field(default_factory=LeaseWatch)
    asked: Instant | None = None
    answer: bool | None = None

    def now(self, time_ms: int) -> Instant:
        return Instant(time_ms, self.wall_ms + time_ms)

    def renew(self, store: Store, now: Instant) -> None:
        if self.leadership is not None and self.asked is None:
            self.asked = now

    def write(self, store: Store, now: Instant) -> None:
        if self.asked is not None and self.answer is None:
            self.answer = store.token == self.token
            store.renewals += self.answer

    def hear(self, store: Store, now: Instant) -> None:
        if self.asked is None or self.answer is None or self.leadership is None:
            return
        if self.answer:
            self.leadership.proved(self.asked)
        else:
            self.leadership.taken("another's")
        self.asked = self.answer = None

    def tick(self, store: Store, now: Instant) -> None:
        if self.leadership is not None and self.leadership.tick(now) is Standing.LOST:
            self.leadership = self.asked = self.answer = None
            self.watch = LeaseWatch()

    def look(self, store: Store, now: Instant) -> None:
        if self.leadership is not None:
            return
        is_free = store.token == 0
        if is_free or self.watch.may_take(str(store.token), store.lease(), now.steady_ms):
            store.token = self.token = store.token + 1
            self.leadership = Leadership(DURATION, MARGIN, now)


@settings(max_examples=1000)
@given(STEPS)
def test_never_do_two_drivers_trust_their_lease(steps) -> None:
    store, drivers, time_ms = Store(), [Driver() for _ in range(2)], 0
    for who, what, wait_ms, leap_ms in steps:
        time_ms += wait_ms
        driver = drivers[who]
        if what == "step the wall clock":
            driver.wall_ms += leap_ms
        else:
            getattr(driver, what)(store, driver.now(time_ms))
        trusting = [
            each.token
            for each in drivers
            if each.leadership is not None and each.leadership.may_act(each.now(time_ms))
        ]
        assert len(trusting) <= 1
        assert trusting in ([], [store.token])
