from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.events import FailureSeen, FailuresSeen
from penstock.ops.jobs.views import exceptions
from tests.tools.observation.job_records import PLACE, ToldJob, attempt


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
