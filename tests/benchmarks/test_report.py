"""Figures as JSON and rows; RESULTS.md keeps the sections of benchmarks that were not run."""

import json

import pytest

from benchmarks import report
from benchmarks.figures import Figure
from benchmarks.report import Section, write_results

ORDER = ["first", "second", "third"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    path = tmp_path / "RESULTS.md"
    monkeypatch.setattr(report, "RESULTS", path)
    return path


def section(name: str, value: float) -> Section:
    return Section(name, [Figure(f"{name} speed", [value], "s")], f"About {name}.")


def test_a_run_replaces_its_own_sections_and_keeps_the_others(results) -> None:
    write_results([section("third", 3), section("first", 1)], 3, ORDER)
    before = results.read_text(encoding="utf-8")
    write_results([section("second", 2)], 3, ORDER)
    write_results([section("first", 7)], 3, ORDER)
    text = results.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## first", "## second", "## third",
    ]  # fmt: skip
    assert "| first speed | 7 (7 to 7) | s |" in text
    assert "first speed | 1" not in text
    assert text[text.index("## third") :] == before[before.index("## third") :]
    assert text.startswith(report.TITLE)


def test_a_section_of_a_benchmark_that_is_no_more_stays_at_the_end(results) -> None:
    write_results([section("former", 1)], 3, ORDER)
    write_results([section("third", 1)], 3, ORDER)
    text = results.read_text(encoding="utf-8")
    assert text.index("## third") < text.index("## former")


def test_a_published_figure_is_called_a_peer() -> None:
    figure = Figure("deploy", [1.0, 2.0, 3.0], "s", (17.183,), {"tasks": 20_000}, "peer")
    line = json.loads(figure.json_line())
    assert (line["value"], line["unit"], line["peer"]) == (2.0, "s", 17.18)
    assert line["ratio"] == 0.1164
    assert line["settings"] == {"tasks": 20_000}
    assert "floor" not in line
