"""A report comes out as it went in, names are sent once, and a reader that missed them survives."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.metrics.report_format import (
    REPEAT_EVERY,
    ReportDecoder,
    ReportEncoder,
    Section,
)
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.metrics import Distribution, Measured, MetricType, Quantiles, Rate

PROCESS = {"host": "h", "tm_id": "tm"}
TASK = {"job_id": "j", "job_name": "n", "task_id": "v", "task_name": "t"}
NUMBERS = st.floats(allow_nan=False)
INTS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(
    INTS,
    st.booleans(),
    NUMBERS,
    st.text(max_size=20),
    st.builds(Rate, NUMBERS, INTS),
    st.builds(Distribution, INTS, INTS, INTS, INTS),
    st.builds(Quantiles, INTS, INTS, INTS, *[NUMBERS] * 9),
)
GROUPS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.text(max_size=5)), max_size=3).map(
    tuple
)
METRICS = st.builds(Measured, st.text(max_size=10), st.sampled_from(MetricType), VALUES, GROUPS)
SECTIONS = st.builds(
    Section,
    st.just(Component.TASK),
    st.just(TASK),
    st.lists(METRICS, max_size=8),
    st.integers(0, 20_000),
    st.integers(0, 100),
)


def section(*metrics: Measured, subtask: int = 0) -> Section:
    return Section(Component.TASK, TASK, metrics, subtask, 0)


def count(value: int, name: str = "c") -> Measured:
    return Measured(name, MetricType.COUNTER, value)


@given(st.lists(SECTIONS, max_size=5))
def test_a_report_comes_out_as_it_went_in(sections):
    report = ReportDecoder().decode(ReportEncoder(PROCESS).encode(sections))
    assert (report.variables, report.skipped) == (PROCESS, 0)
    assert len(report.sections) == len(sections)
    for found, told in zip(report.sections, sections, strict=True):
        assert (found.subtask, found.attempt) == (told.subtask, told.attempt)
        assert list(found.measured()) == list(told.metrics)
        kinds = [type(one.value) for one in found.measured()]
        assert kinds == [type(one.value) for one in told.metrics]


def test_no_number_comes_out_as_no_number():
    told = section(Measured("g", MetricType.GAUGE, math.nan))
    (found,) = ReportDecoder().decode(ReportEncoder(PROCESS).encode([told])).sections
    assert math.isnan(found.value(0))


def test_an_int_that_needs_more_than_64_bits_becomes_a_double():
    told = section(count(2**70), count(10**400, "huge"))
    (found,) = ReportDecoder().decode(ReportEncoder(PROCESS).encode([told])).sections
    assert [one.value for one in found.measured()] == [float(2**70), math.inf]


def test_names_are_sent_once_and_all_subtasks_share_them():
    encoder = ReportEncoder(PROCESS)
    many = [
        section(*(count(1, f"metric number {n}") for n in range(60)), subtask=i) for i in range(50)
    ]
    first, second = encoder.encode(many), encoder.encode(many)
    assert first.count(b"metric number 59") == 1
    assert b"metric number" not in second
    assert len(second) < 50 * (60 * 8 + 24) + 100


def test_a_reader_that_missed_the_names_skips_until_they_are_repeated():
    encoder, decoder = ReportEncoder(PROCESS), ReportDecoder()
    payloads = [encoder.encode([section(count(n))]) for n in range(REPEAT_EVERY + 1)]
    late = [decoder.decode(payload) for payload in payloads[1:]]
    assert [one.skipped for one in late] == [1] * (REPEAT_EVERY - 1) + [0]
    assert [one.value for one in late[-1].sections[0].measured()] == [REPEAT_EVERY]


def test_what_one_sender_described_is_known_of_all():
    decoder = ReportDecoder()
    decoder.decode(ReportEncoder(PROCESS).encode([section(count(1))]))
    other = ReportEncoder({"host": "g", "tm_id": "other"})
    other.encode([section(count(1))])
    found = decoder.decode(other.encode([section(count(5))]))
    assert found.skipped == 0
    assert [one.value for one in found.sections[0].measured()] == [5]


def test_names_that_come_later_are_described_when_they_come():
    encoder, decoder = ReportEncoder(PROCESS), ReportDecoder()
    decoder.decode(encoder.encode([section(count(1))]))
    found = decoder.decode(encoder.encode([section(count(2), count(3, "new"))]))
    assert [(one.name, one.value) for one in found.sections[0].measured()] == [("c", 2), ("new", 3)]


GOOD = ReportEncoder(PROCESS).encode([section(count(1), Measured("t", MetricType.GAUGE, "x"))])


@given(st.integers(0, len(GOOD) - 1))
def test_a_report_that_is_cut_short_is_refused_in_words(length):
    with pytest.raises(ExternalError, match="a report of metrics"):
        ReportDecoder().decode(GOOD[:length])


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_damaged_report_raises_nothing_else(place, change):
    damaged = bytearray(GOOD)
    damaged[place] ^= change
    try:
        for one in ReportDecoder().decode(bytes(damaged)).sections:
            list(one.measured())
    except ExternalError:
        pass
