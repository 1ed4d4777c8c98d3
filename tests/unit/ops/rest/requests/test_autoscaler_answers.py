"""What REST tells of an autoscaler, from decisions made by hand."""

import math

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.decisions import (
    Change,
    Decision,
    EventKind,
    Outcome,
    ScalingEvent,
)
from penstock.ops.autoscaler.rules.evaluation import Evaluated, Evaluation
from penstock.ops.rest.requests.autoscaler_answers import decisions_to_plain, evaluation_to_plain


class Measured:
    parallelism = 2


MAP = VertexId("map")
EVALUATED = Evaluated(MAP, Measured(), math.inf, False, 10.0, 0.5, 15.0, 12.0, math.inf)
EVALUATION = Evaluation(1000, {MAP: EVALUATED}, False, 2.0)
GROWS = Change(MAP, "my map", 2, 4, True, "it can do 8 records/s, and 12 are needed")
FULL = ScalingEvent(1000, EventKind.CLUSTER_FULL, "3 slots are free", MAP)


def decided(*changes, events=(), is_applied=True, held_by="", outcome=None, at_ms=1000):
    return Decision(
        at_ms, changes, events, is_applied, held_by, 2, 4, EVALUATION, {}, outcome
    )  # fmt: skip


def test_rates_without_a_bound_are_null():
    (vertex,) = evaluation_to_plain(EVALUATION)["vertices"]
    assert (vertex["true-rate"], vertex["bounds"]) == (None, [12.0, None])
    assert (vertex["target-rate"], vertex["capacity"], vertex["parallelism"]) == (10.0, 15.0, 2)


def test_before_the_first_window_is_full_there_is_no_evaluation():
    assert evaluation_to_plain(None) is None


def test_the_newest_decision_is_first_with_its_reasons_and_what_became_of_it():
    done = decided(GROWS, outcome=Outcome(1500, 500))
    held = decided(GROWS, events=(FULL,), is_applied=False, held_by="a dry run", at_ms=2000)
    newest, oldest = decisions_to_plain([done, held])
    assert (newest["timestamp"], newest["applied"], newest["held-by"]) == (2000, False, "a dry run")
    assert newest["outcome"] is None
    assert newest["events"] == [
        {"timestamp": 1000, "kind": "CLUSTER_FULL", "text": "3 slots are free", "id": "map"}
    ]
    assert oldest["outcome"] == {"timestamp": 1500, "took": 500, "refusal": None}
    assert oldest["slots"] == {"before": 2, "after": 4}
    assert oldest["changes"] == [
        {"id": "map", "name": "my map", "before": 2, "after": 4, "reason": GROWS.reason}
    ]


def test_a_refusal_is_told():
    (told,) = decisions_to_plain([decided(GROWS, outcome=Outcome(1500, None, "no slots"))])
    assert told["outcome"] == {"timestamp": 1500, "took": None, "refusal": "no slots"}
