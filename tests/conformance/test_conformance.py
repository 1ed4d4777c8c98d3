"""The sample cases and our own, one test each. The driver is `python -m tests.conformance`."""

from pathlib import Path

import pytest

from tests.conformance.compare import differences
from tests.conformance.driver import Verdict, load, run, run_case

HERE = Path(__file__).parent
SCHEDULER = load(HERE / "scheduler_public.json")
RUNTIME = load(HERE / "runtime_public.json")
OWN = load(HERE / "own_cases.json")


@pytest.mark.parametrize("case", [*SCHEDULER, *RUNTIME, *OWN], ids=lambda case: case["id"])
def test_case(case: dict) -> None:
    outcome = run_case(case)
    assert outcome.verdict is not Verdict.FAILED, outcome.text


def test_every_scheduler_area_is_covered_but_speculation_which_is_sparks() -> None:
    left_out = {o.area for o in run(SCHEDULER) if o.verdict is Verdict.NOT_COVERED}
    assert left_out == {"slow_task_detection"}


def test_areas_with_variants_answer_as_one_generation() -> None:
    assert not [outcome for outcome in run([*RUNTIME, *OWN]) if outcome.verdict is Verdict.FAILED]


def test_our_own_cases_are_all_covered() -> None:
    assert not {o.case_id for o in run(OWN) if o.verdict is Verdict.NOT_COVERED}


def test_a_wrong_answer_is_a_failure() -> None:
    case = {
        "id": "x", "area": "max_parallelism", "given": {"parallelism": 1},
        "expect": {"default_max_parallelism": 127},
    }  # fmt: skip
    assert run_case(case).verdict is Verdict.FAILED
    assert run_case(case | {"area": "of another world"}).verdict is Verdict.NOT_COVERED


def test_a_refusal_is_expected_only_where_the_case_says_so() -> None:
    graph = {
        "vertices": [
            {"name": "A", "parallelism": 1, "co_location_group": "c"},
            {"name": "B", "parallelism": 1, "co_location_group": "c"},
        ],
        "edges": [],
    }
    case = {"id": "x", "area": "region_computation", "given": {"graph": graph}}
    assert run_case(case | {"expect": {"error": "refused"}}).verdict is Verdict.PASSED
    assert run_case(case | {"expect": {"num_regions": 2}}).verdict is Verdict.FAILED


def test_only_sets_of_sets_compare_without_order() -> None:
    assert differences({"groups": [["a", "b"], ["c"]]}, {"groups": [["c"], ["b", "a"]]}) is None
    assert differences({"order": ["a", "b"]}, {"order": ["b", "a"]}) is not None
    assert differences({"terminal": True}, {"terminal": 1}) is not None
