import json

import pytest

from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.snapshots import RestartFacts
from penstock.ops.jobs.views import exceptions
from tests.tools.observation.job_records import BEGAN, JOB, PLACE, SOURCE, ToldJob, attempt

TEXT = """\
ValueError: cannot use 17 of http://me:word@host
  File "/home/me/prices.py", line 20, in parse
    return int(value)
  in operator: parse
  at record:   17
  built at:    /home/me/prices.py:40"""


def seen(number=1, text=TEXT, **more):
    failure = FailureInfo("UserCodeError", text, is_user_code=True)
    return FailureSeen(failure, BEGAN + number, "M[1]", attempt(subtask=1), PLACE, number, **more)


def told_of(told, *entries, fingerprint=None):
    told.tell(FailuresSeen(entries))
    answer = exceptions.groups(told.now_it_is(10), fingerprint)
    assert json.loads(json.dumps(answer)) == answer
    return answer


def fixed(most=3):
    return ToldJob(restarts=RestartFacts("fixed-delay", most))


def test_a_group_with_its_line_record_and_restart():
    told = fixed().status("RUNNING").status("RESTARTING").status("RUNNING")
    answer = told_of(told, (seen(restart=1, delay_ms=1500), ()))
    (group,) = answer.pop("groups")
    assert answer == {"now": BEGAN + 10, "total": 1, "shown": 1, "failures": 1, "restarts": 1}
    assert len(group.pop("fingerprint")) == 16
    text = TEXT.replace("me:word@", "******@")
    assert group == {
        "exception": "ValueError",
        "headline": "ValueError: cannot use 17 of http://******@host",
        "line": {
            "file": "/home/me/prices.py",
            "line": 20,
            "function": "parse",
            "text": "return int(value)",
        },
        "operator": "parse",
        "built-at": "/home/me/prices.py:40",
        "record": "17",
        "root": True,
        "count": 1,
        "first": BEGAN + 1,
        "last": BEGAN + 1,
        "vertex-id": SOURCE,
        "vertex-name": "Source: Numbers -> Map",
        "subtask": 1,
        "attempt": 0,
        "subtasks": [{"subtask": 1, "count": 1}],
        "more-failures": 0,
        "places": [
            {
                "host": "host-a",
                "taskmanager-id": taskmanager_name(JOB, PLACE.resource_id),
                "count": 1,
            }
        ],
        "restart": {"number": 1, "of": 3, "after": 1500},
        "hint": "Restart 1 of 3 followed 1 s after the failure.",
        "text": text,
        "text-total": len(text),
    }


def hint_of(told, **more):
    (group,) = told_of(told, (seen(**more), ()))["groups"]
    return group["hint"]


def running(facts):
    return ToldJob(restarts=facts).status("RUNNING")


def test_what_follows_while_the_job_waits():
    told = fixed().status("RESTARTING")
    assert (
        hint_of(told, restart=2, delay_ms=50) == "Restart 2 of 3 follows 50 ms after the failure."
    )


def test_the_last_restart_says_what_comes_next():
    assert hint_of(running(RestartFacts("f", 3)), restart=3, delay_ms=50) == (
        "Restart 3 of 3 followed 50 ms after the failure. The next failure ends the job."
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (RestartFacts("fixed-delay", 2), "allows 2 restarts, and they are used up."),
        (RestartFacts("none", 0), "is none."),
        (RestartFacts("failure-rate", 2, 60_000), "allows 2 within 1 min."),
        (RestartFacts(), "allows no restart after it."),
    ],
)
def test_a_failure_that_ends_the_job(facts, text):
    told = running(facts).status("FAILING").status("FAILED")
    assert hint_of(told) == f"The job fails with it. Its restart strategy {text}"


def test_a_rate_of_restarts():
    hint = hint_of(running(RestartFacts("failure-rate", 2, 60_000)), restart=9, delay_ms=2000)
    assert hint == "Restart 9 (at most 2 within 1 min) followed 2 s after the failure."


def test_a_failure_that_came_with_another_one():
    told = running(RestartFacts())
    other = seen(2, "ConnectionError: broken", restart=1, delay_ms=5)
    consequence, _ = told_of(told, (seen(restart=1, delay_ms=5), (other,)))["groups"]
    assert consequence["hint"].startswith("It came with another failure. Restart 1 followed 5 ms")


def test_a_long_text_is_cut_unless_its_group_is_asked_for():
    long = TEXT + "\n" + "x" * 10_000
    answer = told_of(fixed(), (seen(text=long), ()), (seen(2, "KeyError: y"), ()))
    assert (answer["total"], answer["shown"]) == (2, 2)
    other, group = answer["groups"]
    assert other["exception"] == "KeyError"
    assert (len(group["text"]), group["text-total"] > 10_000) == (4_000, True)
    name = group["fingerprint"]
    alone = exceptions.groups(fixed().now_it_is(), name)
    assert (alone["shown"], alone["total"]) == (0, 0)
    again = told_of(fixed(), (seen(text=long), ()), fingerprint=name)
    assert len(again["groups"][0]["text"]) == again["groups"][0]["text-total"]


def test_a_failure_of_the_job_as_a_whole():
    failure = FailureInfo("CheckpointFailed", "checkpoint 3 failed")
    told = fixed().status("RUNNING")
    (group,) = told_of(told, (FailureSeen(failure, BEGAN, number=1), ()))["groups"]
    assert (group["vertex-id"], group["subtask"], group["places"]) == (None, None, [])
    assert (group["exception"], group["line"]) == ("CheckpointFailed", None)


def failed(*texts):
    seen = [FailureSeen(FailureInfo("ValueError", text), at) for at, text in enumerate(texts)]
    return ToldJob().tell(FailuresSeen(tuple((one, ()) for one in seen))).now_it_is()


def test_the_newest_failure_comes_first_and_the_rest_is_said_to_be_cut():
    told = exceptions.history(failed("a", "b", "c"), 2)["exceptionHistory"]
    assert [one["stacktrace"] for one in told["entries"]] == ["c", "b"]
    assert told["truncated"] is True


def test_a_failure_of_a_task_names_its_place():
    one = FailureSeen(FailureInfo("ValueError", "x"), 5, "Map (1/2)", attempt(number=3), PLACE)
    job = ToldJob().tell(FailuresSeen(((one, (one,)),))).now_it_is()
    (entry,) = exceptions.history(job)["exceptionHistory"]["entries"]
    assert entry["taskName"] == "Map (1/2) - execution #3"
    assert (entry["endpoint"], entry["taskManagerId"]) == ("host-a:5001", "tm-1-aaaaaa")
    assert len(entry["concurrentExceptions"]) == 1


def test_a_failure_of_the_job_as_a_whole_names_none():
    (entry,) = exceptions.history(failed("x"))["exceptionHistory"]["entries"]
    assert not {"taskName", "endpoint", "taskManagerId"} & entry.keys()


def test_an_application_tells_what_ended_it():
    running = exceptions.of_application(ToldJob().status("RUNNING").now_it_is())
    assert running["exceptionHistory"]["entries"] == []
    failure = FailureInfo("ValueError", "x")
    ended = exceptions.of_application(ToldJob().status("FAILED", failure=failure).now_it_is())
    assert ended["exceptionHistory"]["entries"][0]["exceptionName"] == "ValueError"


def test_credentials_in_the_text_of_an_error_are_hidden():
    text = "cannot reach amqp://me:secret@host/q"
    (entry,) = exceptions.history(failed(text))["exceptionHistory"]["entries"]
    assert entry["stacktrace"] == "cannot reach amqp://******@host/q"
