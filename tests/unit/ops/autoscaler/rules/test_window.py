"""Which samples count. Source: docs/spec/autoscaler.md#window."""

from penstock.ops.autoscaler.rules.autoscaler import MetricsWindow
from penstock.ops.autoscaler.rules.samples import JobSample
from penstock.ops.autoscaler.rules.settings import WindowSettings

SETTINGS = WindowSettings(window_ms=60_000, stabilization_ms=20_000)


def window(*times_ms, settings=SETTINGS):
    found = MetricsWindow(settings)
    found.restart(0)
    for time_ms in times_ms:
        found.add(JobSample(time_ms, {}))
    return found


def times(found):
    return [sample.time_ms for sample in found.samples]


def test_samples_before_the_job_has_settled_do_not_count():
    assert times(window(0, 10_000, 19_999, 20_000, 30_000)) == [20_000, 30_000]


def test_it_is_full_when_its_first_sample_is_a_window_old():
    assert not window(20_000, 50_000, 79_999).is_full
    assert window(20_000, 50_000, 80_000).is_full


def test_samples_older_than_the_window_are_dropped():
    found = window(20_000, 50_000, 80_000, 90_000)
    assert times(found) == [50_000, 80_000, 90_000]
    assert found.is_full


def test_it_stays_full_when_samples_come_at_uneven_times():
    found = window(20_000)
    for number in range(1, 20):
        found.add(JobSample(20_000 + number * 10_100, {}))
        assert found.is_full == (number * 10_100 >= 60_000)


def test_one_sample_is_too_few():
    found = window(20_000, 200_000)
    assert times(found) == [200_000]
    assert not found.is_full


def test_a_restart_forgets_all_samples_and_begins_to_settle_anew():
    found = window(20_000, 50_000, 80_000)
    found.restart(85_000)
    assert not found.is_full
    found.add(JobSample(100_000, {}))
    found.add(JobSample(105_000, {}))
    assert times(found) == [105_000]


def test_a_job_of_unknown_start_runs_since_its_first_sample():
    found = MetricsWindow(SETTINGS)
    for time_ms in (500_000, 510_000, 520_000):
        found.add(JobSample(time_ms, {}))
    assert times(found) == [520_000]
