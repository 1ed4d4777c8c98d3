"""How long a thread may keep the GIL, by how much the threads run."""

import sys
from collections.abc import Iterator

import pytest

from penstock.hosting.taskmanager.switch_interval import SwitchInterval
from penstock.hosting.taskmanager.thread_times import Spans

USUAL_S = 0.002
BRIEF_S = USUAL_S / 4
PASSED = 1000


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(before)


def spans(*shares: float) -> Spans:
    ran = {str(index): int(share * PASSED) for index, share in enumerate(shares)}
    return Spans(PASSED, ran, dict.fromkeys(ran, 0))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.9, 0.1, 0.05), BRIEF_S),
        ((0.05, 0.1, 0.9), BRIEF_S),
        ((0.9,), BRIEF_S),
        ((0.6, 0.35), USUAL_S),
        ((0.52, 0.42, 0.05), USUAL_S),
        ((0.3, 0.1), USUAL_S),
        ((), USUAL_S),
    ],
)
def test_it_is_shorter_only_while_one_thread_computes_and_no_other_does(shares, expected):
    SwitchInterval().look(spans(*shares))
    assert sys.getswitchinterval() == pytest.approx(expected)


def test_it_becomes_the_usual_one_again():
    interval = SwitchInterval()
    interval.look(spans(0.9))
    interval.look(spans(0.5, 0.4))
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)
    interval.look(spans(0.9))
    interval.release()
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)


def test_what_user_code_has_set_stays():
    interval = SwitchInterval()
    sys.setswitchinterval(0.1)
    for shares in [(0.9,), (0.5, 0.4)]:
        interval.look(spans(*shares))
        assert sys.getswitchinterval() == pytest.approx(0.1)


def test_the_usual_one_that_the_end_of_a_job_sets_is_not_taken_for_user_codes():
    interval = SwitchInterval()
    interval.look(spans(0.9))
    sys.setswitchinterval(USUAL_S)
    interval.look(spans(0.9))
    assert sys.getswitchinterval() == pytest.approx(BRIEF_S)


@pytest.mark.parametrize("usual_s", [0.001, 0.005, 0.0003, 0.000001])
def test_any_interval_is_known_again(usual_s):
    sys.setswitchinterval(usual_s)
    interval = SwitchInterval()
    before = sys.getswitchinterval()
    for _ in range(3):
        interval.look(spans(0.9))
        interval.look(spans(0.1))
    assert sys.getswitchinterval() == before
