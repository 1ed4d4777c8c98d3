"""Random programs are the same for the same seed, run, and what differs between two engines is found."""

import json
from pathlib import Path

import pytest

from differential import program_side
from differential.explained import RULES
from differential.generator import program
from differential.outcomes import difference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
SEEDS = range(40)


def test_a_seed_is_a_program():
    assert [program(seed) for seed in SEEDS] == [program(seed) for seed in SEEDS]
    assert len({program(seed).text for seed in SEEDS}) == len(SEEDS)


def test_programs_have_all_that_the_generator_knows():
    found = set().union(*(program(seed).features for seed in range(400)))
    assert found >= {
        "AggregateFunction", "CoFlatMapFunction", "CoMapFunction", "EventTimeSessionWindows",
        "KeyedCoProcessFunction", "KeyedProcessFunction", "ProcessAllWindowFunction",
        "ProcessFunction", "ProcessWindowFunction", "SlidingEventTimeWindows",
        "TumblingEventTimeWindows", "WindowFunction", "allowed_lateness", "count_window", "filter",
        "flat_map", "key_by", "map", "max", "max_by", "min", "min_by", "reduce", "sum", "union",
        "watermarks", "window_all",
    }  # fmt: skip


@pytest.mark.parametrize("seed", [5, 9])
def test_a_group_of_programs_runs_and_tells_its_lines(tmp_path, seed):
    made = program(seed)
    group = {"number": seed, "is_batch": made.is_batch, "has_chains": made.has_chains}
    asked, answers = tmp_path / "programs", tmp_path / "results"
    asked.write_text(json.dumps(group | {"programs": [(seed, made.text)]}) + "\n")
    program_side.main("penstock", asked, answers)
    program_side.main("penstock", asked, answers)
    first, second = map(json.loads, answers.read_text().splitlines())
    assert first == second and first["lines"][str(seed)]


def test_lines_that_only_one_engine_has_are_a_difference():
    found = difference(program(1), ["a", "a", "b"], ["b", "a", "c"])
    assert (found.only_flink, found.only_ours) == (("a",), ("c",))
    assert "only PyFlink:  a" in found.text() and program(1).text in found.text()
    assert not difference(program(1), ["b", "a"], ["a", "b"]).is_any


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_names_a_row_of_the_page(rule):
    assert rule.row in PAGE.read_text("utf-8")


ROLLING = {"reduce", "sum", "min", "max", "min_by", "max_by"}
TIMERS = {
    "window_all",
    "EventTimeSessionWindows",
    "TumblingEventTimeWindows",
    "SlidingEventTimeWindows",
}


def test_programs_of_batch_run_in_batch_on_pyflink_unless_they_have_timers():
    batch = [one for one in map(program, range(1000)) if one.is_batch]
    both = [one for one in batch if one.is_batch_on_flink]
    ours = [one for one in batch if not one.is_batch_on_flink]
    assert both and ours
    assert not set().union(*(one.features for one in both)) & TIMERS
    assert not any("on_timer" in one.text for one in both)
    assert set().union(*(one.features for one in both)) >= ROLLING | {"count_window"}
    assert not set().union(*(one.features for one in ours)) & (ROLLING | {"count_window"})
    assert set().union(*(one.features for one in ours)) >= TIMERS
    assert not any(one.is_batch_on_flink for one in map(program, SEEDS) if not one.is_batch)


def test_programs_without_merges_give_the_same_here(tmp_path):
    merging = [one for one in map(program, range(300)) if one.without_merges][:6]
    assert len(merging) == 6 and all(one.without_merges != one.text for one in merging)
    asked, answers = tmp_path / "programs", tmp_path / "results"
    for name in ("text", "without_merges"):
        texts = [(one.seed, getattr(one, name)) for one in merging]
        group = {"number": 0, "is_batch": False, "has_chains": True, "programs": texts}
        asked.write_text(json.dumps(group) + "\n")
        program_side.main("penstock", asked, answers)
    first, second = map(json.loads, answers.read_text().splitlines())
    assert first == second and any(first["lines"].values())
