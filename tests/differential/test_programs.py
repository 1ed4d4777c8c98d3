"""Random programs are the same for the same seed, run, and what differs between two engines is found."""

import json
from pathlib import Path

import pytest

from differential import program_side
from differential.explained import RULES, rule_for
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


def test_what_no_rule_has_is_not_explained():
    plain = next(one for one in map(program, SEEDS) if "AggregateFunction" not in one.features)
    assert rule_for(difference(plain, ["a"], ["b"])) is None
