"""Time charts: numbers beside lines, gaps, zoom in the address, one crosshair, marks, colours of the theme, and bounded memory."""

import pytest

from penstock.engine.model.ids import ExecutionVertexId
from penstock.engine.model.messages import ResetSubtasks
from tests.dashboard.test_job_pages import a_minute_ago, busy, running
from tests.tools.dashboard.past import remember
from tests.tools.observation.job_records import SINK, SOURCE

pytestmark = pytest.mark.browser
METRICS = f"/vertices/{SINK}/metrics"


def chart(tab, title):
    return tab.page.get_by_role("figure", name=title, exact=True)


def moment(tab, title):
    return tab.page.get_by_role("slider", name=f"{title}: moment")


def of_page(tab, script, *arguments):
    return tab.page.evaluate(script, *arguments)


def test_the_newest_numbers_stand_beside_the_chart_with_their_units(driver, look):
    tab = look().at(driver, running(driver).path + METRICS)
    rates = chart(tab, "Records per second").locator(".legend tr")
    rates.filter(has_text="/s").first.wait_for()
    # Two subtasks of 100 records a second each.
    assert rates.all_inner_texts() == ["in\n200 /s", "out\n200 /s"]
    lag = chart(tab, "Watermark lag").locator("td")
    assert (lag.inner_text(), lag.get_attribute("title")) == ("n/a", "it has no watermark")
    spent = chart(tab, "Time of the subtasks, mean").locator(".legend tr")
    assert spent.all_inner_texts() == ["idle\n0 %", "back-pressured\n0 %", "busy\n90 %"]


def test_the_keyboard_moves_one_crosshair_through_all_charts(driver, look):
    tab = look().at(driver, running(driver).path + METRICS)
    chart(tab, "Records per second").locator(".legend td").filter(has_text="/s").first.wait_for()
    slider = moment(tab, "Records per second")
    newest = slider.get_attribute("aria-valuetext")
    slider.focus()
    tab.page.keyboard.press("PageDown")
    tab.shows("at ", ".legend caption")
    assert slider.get_attribute("aria-valuetext") != newest
    assert "in 200 /s, out 200 /s" in slider.get_attribute("aria-valuetext")
    at = slider.get_attribute("aria-valuenow")
    assert moment(tab, "Bytes per second").get_attribute("aria-valuenow") == at
    assert len({*tab.page.locator(".legend caption").all_inner_texts()}) == 1
    tab.page.keyboard.press("Escape")
    tab.page.locator(".legend caption:not(.unseen)").first.wait_for(state="detached")


def test_dragging_zooms_all_charts_and_the_address_keeps_it(driver, look):
    tab = look().at(driver, running(driver).path + METRICS)
    box = chart(tab, "Records per second").locator(".u-over").bounding_box()
    for share, step in ((0.25, tab.page.mouse.down), (0.5, tab.page.mouse.up)):
        tab.page.mouse.move(box["x"] + share * box["width"], box["y"] + 20, steps=3)
        step()
    tab.page.wait_for_url("**from=*")
    tab.shows("Show all, and follow")
    address = tab.page.url
    ends = [
        moment(tab, title).get_attribute("aria-valuemax")
        for title in ("State size", "Bytes per second")
    ]
    assert len({*ends}) == 1
    tab.page.reload()
    assert tab.shows("Show all, and follow").page.url == address
    assert moment(tab, "State size").get_attribute("aria-valuemax") == ends[0]
    chart(tab, "State size").locator(".u-over").dblclick()
    tab.page.wait_for_function("!location.hash.includes('from=')")
    tab.page.go_back()
    tab.shows("Show all, and follow")


def test_the_coarse_window_is_chosen_and_kept_in_the_address(driver, look):
    tab = look().at(driver, running(driver).path + METRICS)
    with tab.page.expect_request(lambda asked: "/history?step=10000" in asked.url):
        tab.page.get_by_role("button", name="6 hours, each 10 s").click()
    assert "window=6h" in tab.page.url
    tab.page.reload()
    assert tab.page.get_by_role("button", name="6 hours").get_attribute("aria-pressed") == "true"


def test_a_burst_does_not_make_the_rest_flat(driver, look):
    """A job that catches up for half a minute reads hundreds of times as fast as later."""

    def catching_up(vertex_id, subtask, second):
        return {"records_in": 100 * second + 40_000 * min(second, 30), "records_out": 0}

    job = driver.job(a_minute_ago()).status("RUNNING").runs()
    remember(driver, job, catching_up, seconds=300)
    tab = look().at(driver, job.path + METRICS)
    rates = chart(tab, "Records per second")
    rates.locator(".peak").filter(has_text="highest 80.2 k/s at ").wait_for()
    # Room for twice the usual 200 records a second, or a little less.
    assert 200 < float(rates.locator(".plot").get_attribute("data-top")) < 400
    rates.get_by_role("button", name="Whole scale").click()
    tab.page.wait_for_function("document.querySelector('.peak button').ariaPressed === 'true'")
    assert rates.locator(".plot").get_attribute("data-top") is None
    assert tab.violations() == []


def test_only_new_rows_are_asked_for(driver, look):
    tab = look()
    asked = []
    tab.page.on("request", lambda one: asked.append(one.url) if "/history?" in one.url else None)
    tab.at(driver, running(driver).path + METRICS).shows("200 /s", ".legend")
    tab.page.get_by_label("Time between updates").select_option("1000")
    with tab.page.expect_request(lambda one: "/history?" in one.url and "since=0" not in one.url):
        pass
    assert [("since=0" in one) for one in asked].count(True) == 1


def test_restarts_are_marks_with_words_and_links(driver, look):
    job = running(driver)
    subtask = ExecutionVertexId(SOURCE, 0)
    job.tell(ResetSubtasks((subtask,), False, 7))
    tab = look().at(driver, f"{job.path}/metrics").shows("1 mark in these charts")
    tab.page.get_by_text("1 mark in these charts").click()
    listed = tab.page.locator(".mark-list li")
    assert "restart" in listed.inner_text()
    assert "1 subtask restart from checkpoint 7" in listed.inner_text()
    assert listed.get_by_role("link").get_attribute("href") == f"{job.path}/timeline"


def test_lines_take_the_colours_of_the_theme(driver, look):
    tab = look(color_scheme="light").at(driver, running(driver).path + METRICS)
    tab.shows("200 /s", ".legend")
    resolved = (
        "import('/dashboard/app/parts/charts/plot.js').then(plot => plot.colour('var(--busy)'))"
    )
    light = of_page(tab, resolved)
    tab.page.get_by_label("Colours").select_option("dark")
    assert of_page(tab, resolved) != light


def test_the_vertices_of_the_charts_are_chosen(driver, look):
    tab = look().at(driver, f"{running(driver).path}/metrics")
    tab.shows("Vertices shown: 2 of 2").page.locator(".vertex-choice summary").click()
    tab.page.get_by_role("checkbox", name="Reduce -> Sink: <out>").uncheck()
    tab.shows("Vertices shown: 1 of 2")
    assert f"shown={SOURCE}" in tab.page.url
    assert chart(tab, "Records per second").locator("tr").count() == 1


def test_a_silence_is_a_gap(driver, look):
    job = driver.job(a_minute_ago()).status("RUNNING").runs()
    remember(driver, job, lambda v, s, t: None if 50 < t < 88 else busy(v, s, t), seconds=90)
    tab = look().at(driver, job.path + METRICS).shows("200 /s", ".legend")
    moment(tab, "Records per second").focus()
    told = chart(tab, "Records per second").locator("td")
    tab.page.keyboard.press("PageDown")
    tab.shows("at ", ".legend caption")
    assert told.all_inner_texts() == ["n/a", "n/a"]
    tab.page.keyboard.press("Home")
    for _ in range(3):
        tab.page.keyboard.press("PageUp")
    assert told.all_inner_texts() == ["200 /s", "200 /s"]


ALONE = """async values => {
  const { alone } = await import('/dashboard/app/parts/charts/plot.js');
  return alone({ data: [[], values] }, 1);
}"""


def test_a_value_between_two_gaps_is_drawn_as_a_point(driver, look):
    """As those of a job that restarts again and again: no line goes through them."""
    tab = look().at(driver).shows("This driver has no job yet.")
    assert of_page(tab, ALONE, [1, None, 2, None, 3, 4, None, None, 5]) == [0, 2, 8]


HOUR = """async () => {
  const { History } = await import('/dashboard/app/base/history.js');
  const history = new History(['/x'], '10m', ['f'], []);
  for (let second = 1; second <= 3600; second += 2) {
    const timestamps = [second, second + 1].filter((one) => one % 7).map((one) => one * 1000);
    const told = { id: 'v', name: 'v', timestamps, figures: { f: timestamps } };
    history.take({ now: second * 1000, step: 1000, ...told });
  }
  const values = history.of('v', 'f');
  const times = history.times();
  return {
    rows: times.length,
    last: [times[599], values[599]],
    gaps: times.every((at, place) => (values[place] === null) === (at % 7 === 0)),
    kept: history.vertices.get('v').values.f.length,
  };
}"""


def test_an_hour_of_rows_takes_the_memory_of_ten_minutes(driver, look):
    told = of_page(look().at(driver), HOUR)
    assert told == {"rows": 600, "last": [3600, 3_600_000], "gaps": True, "kept": 600}


SAMPLES = """async () => {
  const { Samples } = await import('/dashboard/app/base/samples.js');
  const samples = new Samples();
  for (let at = 1000; at <= 3_600_000; at += 1000) samples.add(at, new Map([['a', at]]), 1000);
  samples.add(3_620_000, new Map([['a', 1], ['b', 2]]), 1000);
  samples.keep(new Set(['b']));
  return [samples.times.length, samples.values.get('b').slice(-2), samples.values.has('a')];
}"""


def test_collected_metrics_are_bounded_and_a_silence_is_a_gap(driver, look):
    assert of_page(look().at(driver), SAMPLES) == [1800, [None, 2], False]


def test_any_metric_is_collected_from_when_it_is_chosen(driver, look):
    tab = look().at(driver, f"{running(driver).path}/metrics").shows("Any metric")
    tab.page.get_by_label("Filter metrics").fill("numrestarts")
    tab.page.get_by_role("button", name="numRestarts", exact=True).click()
    tab.shows("Collected since").shows("numRestarts: 0", ".chosen")
    figure = chart(tab, "Collected")
    assert figure.locator("tr").inner_text() == "numRestarts of the job\n0"
    address = tab.page.url
    assert "collect=" in address
    assert "metric=numrestarts" in address
    tab.page.reload()
    tab.shows("numRestarts: 0", ".chosen")
    tab.page.get_by_role("button", name="Leave out numRestarts of the job").click()
    tab.shows("Choose metrics: they are collected from then on")
