import json
import re
from pathlib import Path

from penstock.engine.model.config import Layer
from penstock.engine.model.options.catalogue import GROUPS, OPTIONS
from penstock.ops.jobs.snapshots import DriverSnapshot, OptionFacts
from penstock.ops.jobs.views import jobs
from penstock.ops.jobs.views.jobs import options, page_of
from tests.tools.observation.job_records import BEGAN, JOB, SINK, SOURCE, ToldJob, attempt

PAGE = Path(__file__).parents[5] / "docs" / "reference" / "configuration.md"


def told_of(configuration, origins=None, host_defaults=None, **more):
    facts = OptionFacts(origins or dict.fromkeys(configuration, Layer.PROGRAM), host_defaults or {})
    told = options(ToldJob(configuration=configuration, options=facts, **more).now_it_is())
    assert json.loads(json.dumps(told)) == told
    return told


def rows(told):
    return {one["key"]: one for subject in told["subjects"] for one in subject["options"]}


def test_each_option_is_there_once():
    told = told_of({})
    keys = [one["key"] for subject in told["subjects"] for one in subject["options"]]
    assert sorted(keys) == sorted(OPTIONS)
    assert (told["total"], told["set"]) == (len(OPTIONS), 0)


def test_an_option_that_nobody_set():
    assert rows(told_of({}))["heartbeat.interval"] == {
        "key": "heartbeat.interval",
        "value": "10 s",
        "default": "10 s",
        "flink-default": "10 s",
        "set": False,
        "set-by": None,
        "set-as": None,
        "type": "duration",
        "doc": "Time between two heartbeats.",
    }


def test_who_set_an_option():
    keys = ("parallelism.default", "slot.idle.timeout", "heartbeat.timeout")
    origins = dict(zip(keys, (Layer.PROGRAM, Layer.COMMAND_LINE, Layer.SPARK), strict=True))
    told = told_of(dict.fromkeys(keys, "7"), origins)
    found = rows(told)
    assert [found[key]["set-by"] for key in keys] == ["program", "-D", "spark"]
    assert {(found[key]["value"], found[key]["set"]) for key in keys} == {("7", True)}
    assert told["set"] == 3


def test_a_default_of_the_host_is_not_set_by_anybody():
    one = {"heartbeat.interval": "500 ms"}
    row = rows(told_of(one, {"heartbeat.interval": Layer.DEFAULT}, one))["heartbeat.interval"]
    assert (row["value"], row["default"], row["flink-default"]) == ("500 ms", "500 ms", "10 s")
    assert (row["set"], row["set-by"]) == (False, None)
    row = rows(told_of({"heartbeat.interval": "1 s"}, None, one))["heartbeat.interval"]
    assert (row["value"], row["default"], row["set"]) == ("1 s", "500 ms", True)


def test_an_older_option_that_holds_instead():
    option = next(one for one in OPTIONS.values() if one.fallback is not None)
    row = rows(told_of({option.fallback.key: "5"}))[option.key]
    assert (row["value"], row["set"], row["set-as"]) == ("5", True, option.fallback.key)


def test_options_for_names_stand_with_their_pattern():
    told = told_of({"metrics.reporter.mine.port": "9999"})
    (subject,) = [
        one
        for one in told["subjects"]
        if any(row["key"] == "metrics.reporter.mine.port" for row in one["options"])
    ]
    keys = [one["key"] for one in subject["options"]]
    assert keys[keys.index("metrics.reporter.mine.port") - 1] == "metrics.reporter.<name>.port"
    assert rows(told)["metrics.reporter.mine.port"]["value"] == "9999"


def test_secrets_are_hidden():
    told = told_of({"security.ssl.internal.key-password": "pa55word", "my.token": "abc"})
    assert "pa55word" not in json.dumps(told)
    assert rows(told)["my.token"]["value"] == "******"


def test_keys_that_nobody_knows_come_last():
    (*_, last) = told_of({"my.own.key": "x"})["subjects"]
    assert [one["key"] for one in last["options"]] == ["my.own.key"]
    assert (last["page"], last["options"][0]["type"]) == (None, None)


def test_the_parameters_of_the_program():
    told = told_of({}, user_config={"input": "/data", "password": "p"})
    assert told["job-parameters"] == {"input": "/data", "password": "******"}


def test_each_subject_has_its_place_in_the_documentation():
    headings = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
    pages = {subject["page"] for subject in told_of({})["subjects"]}
    assert {page.partition("#")[2] for page in pages} <= anchors
    assert {page.partition("#")[0] for page in pages} == {"reference/configuration/"}
    assert page_of(GROUPS[0].title) in pages


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
