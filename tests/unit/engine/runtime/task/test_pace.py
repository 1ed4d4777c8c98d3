"""Pace: how many records may wait for a task, from how long it takes for them."""

from penstock.engine.runtime.task.slices import MOST_ROWS, Pace

MS = 1_000_000


class Paced:
    """A pace with its clock. `told`: the limits that were announced."""

    def __init__(self, channels=1, rows=1, target_ms=200) -> None:
        self.told: list = []
        self.ns = 0
        self.pace = Pace(target_ms * MS, channels, rows, self.told.append)

    def spend(self, rows, ms_each) -> None:
        """The task processes so many records, in one slice."""
        self.pace.begin(self.ns)
        self.ns += int(rows * ms_each * MS)
        self.pace.processed(rows)

    def settled(self, ms_each, rows=50) -> int | None:
        for _ in range(200):
            self.spend(rows, ms_each)
        self.pace.rest(self.ns)
        return self.pace.rows


def test_the_records_that_wait_take_about_the_target():
    assert 50 <= Paced().settled(ms_each=2) <= 200
    assert 5 <= Paced().settled(ms_each=20) <= 20


def test_channels_share_the_time():
    assert 25 <= Paced(channels=4).settled(ms_each=1) <= 100


def test_one_record_may_wait_on_each_channel_however_slow_the_function_is():
    assert Paced(channels=8).settled(ms_each=900, rows=1) == 1


def test_many_channels_have_enough_work_for_frames_of_some_size():
    assert Paced(channels=10_000).settled(ms_each=0.01) >= 200


def test_a_fast_function_has_no_limit():
    paced = Paced(rows=None)
    assert paced.settled(ms_each=0.0001, rows=8000) is None
    assert paced.told == []


def test_a_limit_grows_step_by_step_with_the_records_that_were_processed():
    paced = Paced()
    for _ in range(8):
        paced.spend(1, 0.001)
    paced.pace.rest(paced.ns)
    assert paced.told == [4, 16]
    paced.settled(ms_each=0.001, rows=500)
    assert all(
        later <= 4 * before for before, later in zip(paced.told, paced.told[1:], strict=False)
    )


def test_a_function_that_becomes_slow_gets_fewer_records():
    paced = Paced()
    before = paced.settled(ms_each=0.01)
    assert paced.settled(ms_each=10) <= 40 < before


def test_waiting_for_input_is_not_the_functions_time():
    paced = Paced()
    for _ in range(100):
        paced.spend(10, 0.1)
        paced.pace.rest(paced.ns)
        paced.ns += 10_000 * MS
    assert paced.pace.rows >= 1000


def test_waiting_for_room_in_an_output_is():
    paced = Paced()
    for _ in range(100):
        paced.spend(10, 0.001)
        paced.ns += 1000 * MS
    assert paced.pace.rows == 1


def test_small_changes_are_told_to_nobody():
    paced = Paced()
    paced.settled(ms_each=2)
    told = list(paced.told)
    paced.settled(ms_each=2.5)
    assert paced.told == told


def test_a_task_that_takes_whole_batches_lifts_the_limit():
    paced = Paced()
    paced.pace.lift()
    paced.pace.lift()
    assert paced.told == [None]
    assert paced.pace.rows is None
    assert MOST_ROWS > 1_000_000
