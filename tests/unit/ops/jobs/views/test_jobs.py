from penstock.ops.jobs.snapshots import DriverSnapshot
from penstock.ops.jobs.views import jobs
from tests.tools.observation.job_records import BEGAN, JOB, SINK, SOURCE, ToldJob, attempt


def test_a_chain_is_described_one_operator_a_line():
    assert jobs.described("Source: a -> Map <b>") == "Source: a<br/>+- Map &lt;b&gt;<br/>"


def test_a_plan_begins_at_the_sinks_and_sources_have_no_inputs():
    (sink, source) = jobs.plan(ToldJob().now_it_is())["plan"]["nodes"]
    assert (sink["id"], source["id"]) == (SINK, SOURCE)
    assert "inputs" not in source
    assert sink["inputs"] == [
        {"num": 0, "id": SOURCE, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}
    ]


def test_a_running_job_in_the_list():
    (told,) = jobs.overview(DriverSnapshot((ToldJob().runs().now_it_is(50),), BEGAN))["jobs"]
    assert (told["jid"], told["end-time"], told["duration"]) == (JOB, -1, 50)
    assert (told["tasks"]["running"], told["tasks"]["total"]) == (4, 4)


def test_a_job_that_has_ended_lasts_no_longer():
    told = ToldJob().status("FINISHED", 30).now_it_is(500)
    assert jobs.details(told)["duration"] == 30
    assert jobs.result(told)["application-status"] == "SUCCEEDED"


def test_the_state_of_a_vertex_is_the_most_alarming_of_its_subtasks():
    told = ToldJob().runs().moves(attempt(SOURCE, 1), "FAILED").now_it_is()
    details = jobs.details(told)
    assert [vertex["status"] for vertex in details["vertices"]] == ["FAILED", "RUNNING"]
    assert details["status-counts"]["FAILED"] == 1


def test_secrets_of_a_program_are_not_shown():
    told = ToldJob(user_config={"db.password": "x", "url": "jdbc://me:pw@host/db"}).now_it_is()
    shown = jobs.config(told)["execution-config"]["user-config"]
    assert shown == {"db.password": "******", "url": "jdbc://******@host/db"}
