"""A job as a notebook shows it."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from penstock.ops.console.notebook import picture_of
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt

WATERMARK = 500_000


@pytest.fixture
def told():
    """A job of two vertices that has run for 10 s."""
    made = ToldJob().status("RUNNING").runs()
    made.triggers(1).acknowledges(1, attempt(SOURCE), 40, written_bytes=5).ends(1)
    flow = {"records_out_per_s": 1_100.0}
    made.has(attempt(SOURCE, 0), records_out=12_000, backpressured_ms_per_s=450.0, **flow)
    made.has(attempt(SOURCE, 1), records_out=8_000, watermark_ms=WATERMARK, **flow)
    busy = {"busy_ms_per_s": 960.0, "records_in_per_s": 2_200.0}
    made.has(attempt(SINK, 0), records_in=20_000, watermark_ms=WATERMARK, **busy)
    made.has(attempt(SINK, 1), watermark_ms=WATERMARK)
    made.now_it_is(9_960)
    return made


def picture(told, *sentences):
    return picture_of(told.now_it_is(), sentences)


def parsed(page):
    return ET.fromstring(re.sub("<style>.*?</style>", "", page, flags=re.DOTALL))


def cells(page):
    return [["".join(one.itertext()) for one in row] for row in parsed(page).iter("tr")]


def test_the_table_has_the_figures_of_the_consoles_table(told):
    assert cells(picture(told).html()) == [
        ["vertex", "subtasks", "in/s", "out/s", "busy", "back-pressured", "watermark lag"],
        ["Source: Numbers -> Map", "2 RUNNING", "0", "2,200", "0%", "45%", "-"],
        ["Reduce -> Sink: <out>", "2 RUNNING", "2,200", "0", "96%", "0%", "8 min"],
    ]


def test_what_stands_out_is_marked(told):
    marked = [
        (one.get("class"), one.text)
        for one in parsed(picture(told).html()).iter("td")
        if one.get("class")
    ]
    assert marked == [("red", "45%"), ("yellow", "96%")]


def test_state_rate_checkpoint_and_verdict_stand_above_it(told):
    told.triggers(2)
    texts = ["".join(one.itertext()) for one in parsed(picture(told, "It is <slow>.").html())]
    assert "10 s, RUNNING, 4,400 records/s, checkpoint 1 took 40 ms (0 B) 10.0 s ago" in texts[0]
    assert "checkpoint under way" in texts[0]
    assert texts[1] == "It is <slow>."


def test_names_of_users_are_escaped():
    job = ToldJob().runs().now_it_is()
    job = replace(job, facts=replace(job.facts, name="<script>x</script>"))
    page = picture_of(job, ["'<b>' limits the job"]).html()
    assert "<script" not in page
    assert "<b>'" not in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "Sink: &lt;out&gt;" in page


def test_it_is_a_text_too(told):
    first, second = picture(told, "All is well.").text().splitlines()
    assert first.startswith("job 'job': 10 s, RUNNING, 4,400 records/s")
    assert second == "All is well."


def test_a_job_that_has_ended_shows_its_averages(told):
    for vertex_id in (SOURCE, SINK):
        for subtask in (0, 1):
            told.moves(attempt(vertex_id, subtask), "FINISHED")
    told.status("FINISHED").now_it_is(990_000)
    source, sink = cells(picture(told).html())[1:]
    assert (source[1:5], sink[1:5]) == (
        ["2 FINISHED", "0", "2,000", "0%"],
        ["2 FINISHED", "2,000", "0", "0%"],
    )
    assert ", FINISHED, 4,000 records/s" in picture(told).html()


def test_names_do_not_steer_a_terminal(told):
    """In IPython the text is printed as it is."""
    evil = replace(told.now_it_is(), facts=replace(told.now_it_is().facts, name="\x1b[2J"))
    found = picture_of(evil, ["\x9b1m"])
    assert "\x1b" not in found.html() + found.text()
    assert found.text().startswith(r"job '\u001b[2J'")
    assert found.sentences == (r"\u009b1m",)
