"""The window operator against a model of docs/spec/windows.md#timers, #assigners, #window-operator,
#triggers, #evictors that knows one key and no speed.
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.window_area import _answers

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass
class Live:
    """A window in flight: what it holds, and its trigger's state."""

    contents: list = field(default_factory=list)
    count: int = 0
    next_fire: int | None = None


class Model:
    """`assigner`, `trigger`, `evictor`: words as in conformance cases."""

    def __init__(self, assigner, trigger, evictor, lateness) -> None:
        self.kind, *self.sizes = numbers(assigner)
        self.purges = trigger.startswith("purging ")
        self.trigger, *self.parameter = numbers(trigger.removeprefix("purging "))
        self.evictor = evictor
        self.lateness = lateness
        self.watermark = LOWEST
        self.live: dict[tuple, Live] = {}
        self.timers: set[tuple] = set()
        self.emitted: list = []
        self.late = 0

    # ------------------------------------------------------------------ records

    def element(self, stamp, value) -> None:
        is_skipped = True
        for assigned in self.assigned(stamp):
            window = self.merged(assigned) if self.kind == "session" else assigned
            if self.cleanup(window) <= self.watermark:
                self.live.pop(window, None)
                continue
            is_skipped = False
            one = self.live.setdefault(window, Live())
            one.contents.append((value, stamp))
            if self.fires_on_element(window, one, stamp):
                self.fire(window, one)
            if self.cleanup(window) != HIGHEST:
                self.timers.add((self.cleanup(window), window))
        if is_skipped and stamp + self.lateness <= self.watermark:
            self.late += 1

    def assigned(self, stamp) -> list:
        if self.kind == "global":
            return [(LOWEST, HIGHEST + 1)]
        if self.kind == "session":
            return [cut(stamp, stamp + self.sizes[0])]
        size, slide = (self.sizes * 2)[:2]
        newest = stamp - stamp % slide
        return [cut(start, start + size) for start in range(newest, stamp - size, -slide)]

    def merged(self, window) -> tuple:
        old = [one for one in self.live if one[0] <= window[1] and one[1] >= window[0]]
        cover = min([window, *old])[0], max(end for _, end in [window, *old])
        if not old or old == [cover]:
            return cover
        parts = [self.live.pop(one) for one in old]
        fires = [part.next_fire for part in parts if part.next_fire is not None]
        self.live[cover] = Live(
            [one for part in parts for one in part.contents],
            sum(part.count for part in parts),
            min(fires, default=None),
        )
        for one in old:
            self.timers -= {timer for timer in self.timers if timer[1] == one}
        if self.trigger == "event" and last(cover) > self.watermark:
            self.timers.add((last(cover), cover))
        if self.live[cover].next_fire is not None:
            self.timers.add((self.live[cover].next_fire, cover))
        return cover

    def cleanup(self, window) -> int:
        return min(last(window) + self.lateness, HIGHEST)

    # ------------------------------------------------------------------ triggers

    def fires_on_element(self, window, one, stamp) -> bool:
        end = last(window)
        if self.trigger == "count":
            one.count += 1
            is_full = one.count >= self.parameter[0]
            one.count = 0 if is_full else one.count
            return is_full
        if self.trigger == "never":
            return False
        if end <= self.watermark:
            return True
        self.timers.add((end, window))
        if self.trigger == "continuous" and one.next_fire is None:
            self.fire_next(window, one, stamp - stamp % self.parameter[0])
        return False

    def fire_next(self, window, one, stamp) -> None:
        is_over = self.kind == "global" and self.watermark == HIGHEST
        one.next_fire = HIGHEST if is_over else min(stamp + self.parameter[0], last(window))
        self.timers.add((one.next_fire, window))

    def fires_at(self, window, one, stamp) -> bool:
        if self.trigger in {"count", "never"}:
            return False
        if stamp == last(window):
            return True
        if self.trigger == "event" or one.next_fire != stamp:
            return False
        self.fire_next(window, one, stamp)
        return True

    def advance(self, watermark) -> None:
        self.watermark = watermark
        while due := sorted(timer for timer in self.timers if timer[0] <= watermark):
            stamp, window = due[0]
            self.timers.discard(due[0])
            one = self.live.get(window)
            if one is None:
                continue
            if self.fires_at(window, one, stamp):
                self.fire(window, one)
            if stamp == self.cleanup(window):
                del self.live[window]
                self.timers -= {timer for timer in self.timers if timer[1] == window}

    # ------------------------------------------------------------------ firing

    def fire(self, window, one) -> None:
        if one.contents:
            is_after = "after" in self.evictor
            kept = one.contents if is_after else self.kept(one.contents)
            self.emitted.append((window, tuple(value for value, _ in kept)))
            one.contents = self.kept(kept) if is_after else kept
        if self.purges:
            one.contents = []

    def kept(self, contents) -> list:
        if not self.evictor:
            return contents
        word, number = numbers(self.evictor)
        if word == "count":
            return contents[max(0, len(contents) - number) :]
        newest = max(stamp for _, stamp in contents)
        return [one for one in contents if one[1] > newest - number]


def cut(start, end) -> tuple:
    return max(start, LOWEST), min(end, HIGHEST)


def last(window) -> int:
    return HIGHEST if window[1] >= HIGHEST else window[1] - 1


def numbers(text) -> list:
    word, *rest = text.split()
    return [word, *(int(one) for one in rest if one.isdigit())]


ASSIGNERS = st.sampled_from([
    "tumbling 10", "tumbling 3", "sliding 10 5", "sliding 9 4", "sliding 3 7", "session 4", "global",
])  # fmt: skip
TRIGGERS = st.sampled_from([
    "event time", "count 2", "count 3", "purging count 2", "purging event time",
    "continuous event time 4", "purging continuous event time 3", "never",
])  # fmt: skip
EVICTORS = st.sampled_from([
    "",
    "",
    "count 2 before",
    "count 1 after",
    "time 3 before",
    "time 5 after",
])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("el"), st.integers(-20, 60)),
        st.tuples(st.just("wm"), st.integers(-20, 70)),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(ASSIGNERS, TRIGGERS, EVICTORS, st.sampled_from([0, 5]), STEPS)
def test_windows_fire_as_the_model_says(assigner, trigger, evictor, lateness, drawn):
    check(assigner, trigger, evictor, lateness, drawn)


@settings(max_examples=300)
@given(ASSIGNERS, TRIGGERS, EVICTORS, st.sampled_from([0, 5]), STEPS, st.booleans())
def test_windows_at_both_ends_of_time_fire_as_the_model_says(
    assigner, trigger, evictor, lateness, drawn, is_end
):
    first = HIGHEST - 40 if is_end else LOWEST + 21
    shifted = [
        (word, min(first + stamp, HIGHEST - (word == "wm"))) for word, stamp in drawn
    ]  # No record comes behind the last watermark.
    check(assigner, trigger, evictor, lateness, [*shifted, ("wm", HIGHEST)])


def check(assigner, trigger, evictor, lateness, drawn) -> None:
    """Compare the operator with the model. `drawn`: (word, stamp) of each record and watermark."""
    evictor = "" if assigner.startswith("session") else evictor  # order after a merge is free
    model, steps, found = Model(assigner, trigger, evictor, lateness), [], []
    for number, (word, stamp) in enumerate(drawn):
        if word == "wm" and stamp <= model.watermark:
            continue
        steps.append([word, stamp, number] if word == "el" else [word, stamp])
        before = len(model.emitted)
        if word == "el":
            model.element(stamp, number)
        else:
            model.advance(stamp)
        found += [(len(steps), window, shown(assigner, v)) for window, v in model.emitted[before:]]
    case = {
        "assigner": assigner, "trigger": trigger, "agg": "list", "lateness": lateness, "steps": steps,
    } | ({"evictor": evictor} if evictor else {})  # fmt: skip
    answers = _answers(case)
    got = [
        (one["after_step"], window_of(one["window"]), shown(assigner, one["value"]))
        for one in answers["emitted"]
    ]
    assert Counter(got) == Counter(found)
    assert answers["dropped_late"] == model.late


def window_of(given_window) -> tuple:
    return (LOWEST, HIGHEST + 1) if given_window == "global" else tuple(given_window)


def shown(assigner, values) -> tuple:
    """Which of merged sessions keeps its place is free, and with it the order of what they hold."""
    return tuple(sorted(values) if assigner.startswith("session") else values)
