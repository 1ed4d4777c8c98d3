"""Groups of programs run on both engines, and a difference is explained only by a rule that holds."""

from collections import Counter
from collections.abc import Callable, Sequence

from differential.__main__ import EMPTY, EQUAL, GROUP, UNEXPLAINED, differences, groups, kind
from differential.generator import Program, program
from differential.sides import HANGS

MERGING = next(one for one in map(program, range(400)) if one.without_merges)
PLAIN = next(one for one in map(program, range(400)) if not one.without_merges)


class Answers:
    """A side that answers with the lines of a function, or with its error."""

    def __init__(self, lines: Callable[[Program], Sequence[str]], error: str = "") -> None:
        self.lines, self.error, self.asked = lines, error, []

    def outcome(self, group, limit_s):
        self.asked.append([one.seed for one in group])
        if self.error and any(self.error in one.text for one in group):
            return {"error": "ValueError: no"}
        return {"lines": {str(one.seed): self.lines(one) for one in group}}


def pair(flink, penstock=None, *, error=""):
    return {
        "flink": Answers(flink),
        "penstock": Answers(penstock or (lambda one: ["a"]), error),
    }


def test_groups_have_all_programs_once_and_one_kind_each():
    found = list(groups(100, 200))
    assert Counter(one.seed for group in found for one in group) == Counter(range(100, 300))
    for group in found:
        assert 1 <= len(group) <= GROUP
        assert len({(one.is_batch, one.is_batch_on_flink, one.has_chains) for one in group}) == 1


def test_programs_of_a_group_that_fails_run_alone():
    both = [MERGING, PLAIN]
    used = pair(lambda one: ["a"], error=MERGING.text)
    found = list(differences(both, used))
    assert [one.is_any for one, _ in found] == [True, False]
    assert found[0][0].only_ours == ("FAILED on penstock: ValueError: no",)
    assert used["flink"].asked == [[MERGING.seed, PLAIN.seed], [MERGING.seed], [PLAIN.seed]]


def test_a_program_that_hangs_gets_more_time_once():
    used = pair(lambda one: ["a"])
    slow = used["flink"]
    answer, limits = slow.outcome, []

    def outcome(group, limit_s):
        limits.append(limit_s)
        return answer(group, limit_s) if limit_s > 100 else {"error": HANGS}

    slow.outcome = outcome
    ((found, ours),) = differences([PLAIN], used)
    assert kind(found, ours, used) == EQUAL
    assert limits == [70.0, 280.0]
    slow.outcome = lambda _group, _limit_s: {"error": HANGS}
    ((found, _),) = differences([PLAIN], used)
    assert found.only_flink == (f"{HANGS} on flink",)


def test_programs_that_fail_on_both_differ():
    failing = {name: Answers(lambda one: [], PLAIN.text) for name in ("flink", "penstock")}
    ((found, ours),) = differences([PLAIN], failing)
    assert kind(found, ours, failing) == UNEXPLAINED


def test_merging_sessions_explain_what_is_equal_without_them():
    used = pair(lambda one: ["a"] if one.text == MERGING.without_merges else ["lost"])
    ((found, ours),) = differences([MERGING], used)
    assert kind(found, ours, used) == "merging sessions"


def test_merging_sessions_explain_nothing_else():
    used = pair(lambda one: ["b"])
    for made in (MERGING, PLAIN):
        ((found, ours),) = differences([made], used)
        assert kind(found, ours, used) == UNEXPLAINED


def test_programs_without_a_result_are_counted_apart():
    for lines, name in ((["a"], EQUAL), ([], EMPTY)):
        used = pair(lambda one, lines=lines: lines, lambda one, lines=lines: lines)
        ((found, ours),) = differences([PLAIN], used)
        assert kind(found, ours, used) == name
