"""The table of routes against Flink's paths, and the OpenAPI document that is made of it."""

import json
import re
from collections import Counter

import pytest

from penstock.ops.rest.routes import ROUTES, UNSERVED, document

FLINK = """
DELETE /cluster
GET /config
GET /datasets
DELETE /datasets/:datasetid
GET /datasets/delete/:triggerid
GET /overview
GET /jobs
POST /jobs
GET /jobs/metrics get agg jobs
GET /jobs/overview
GET /jobs/:jobid
PATCH /jobs/:jobid mode
GET /jobs/:jobid/accumulators includeSerializedValue
PATCH /jobs/:jobid/clientHeartbeat
GET /jobs/:jobid/config
POST /jobs/:jobid/coordinators/:operatorUid
GET /jobs/:jobid/exceptions maxExceptions failureLabelFilter
GET /jobs/:jobid/execution-result
GET /jobs/:jobid/jobmanager/config
GET /jobs/:jobid/jobmanager/environment
GET /jobs/:jobid/jobmanager/log-url
GET /jobs/:jobid/metrics get
GET /jobs/:jobid/plan
GET /jobs/:jobid/status
GET /jobs/:jobid/taskmanagers/:taskmanagerid/log-url
GET /jobs/:jobid/yarn-cancel
GET /jobs/:jobid/yarn-stop
GET /jobs/:jobid/vertices/:vertexid
GET /jobs/:jobid/vertices/:vertexid/accumulators
GET /jobs/:jobid/vertices/:vertexid/backpressure
GET /jobs/:jobid/vertices/:vertexid/flamegraph type subtaskindex
GET /jobs/:jobid/vertices/:vertexid/jm-operator-metrics get
GET /jobs/:jobid/vertices/:vertexid/metrics get
GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex
GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt
GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators
GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/metrics get
GET /jobs/:jobid/vertices/:vertexid/subtasks/accumulators
GET /jobs/:jobid/vertices/:vertexid/subtasks/metrics get agg subtasks
GET /jobs/:jobid/vertices/:vertexid/subtasktimes
GET /jobs/:jobid/vertices/:vertexid/taskmanagers
GET /jobs/:jobid/vertices/:vertexid/watermarks
GET /jobs/:jobid/checkpoints
POST /jobs/:jobid/checkpoints
GET /jobs/:jobid/checkpoints/:triggerid
GET /jobs/:jobid/checkpoints/config
GET /jobs/:jobid/checkpoints/details/:checkpointid
GET /jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid
GET /jobs/:jobid/rescales/config
GET /jobs/:jobid/rescales/details/:rescaleuuid
GET /jobs/:jobid/rescales/history
GET /jobs/:jobid/rescales/overview
GET /jobs/:jobid/rescales/summary
PATCH /jobs/:jobid/rescaling parallelism
GET /jobs/:jobid/rescaling/:triggerid
GET /jobs/:jobid/resource-requirements
PUT /jobs/:jobid/resource-requirements
POST /jobs/:jobid/savepoints
GET /jobs/:jobid/savepoints/:triggerid
POST /jobs/:jobid/stop
POST /savepoint-disposal
GET /savepoint-disposal/:triggerid
GET /taskmanagers
GET /taskmanagers/:taskmanagerid
GET /taskmanagers/:taskmanagerid/log
GET /taskmanagers/:taskmanagerid/logs
GET /taskmanagers/:taskmanagerid/logs/:filename
GET /taskmanagers/:taskmanagerid/metrics get
GET /taskmanagers/:taskmanagerid/profiler
POST /taskmanagers/:taskmanagerid/profiler
GET /taskmanagers/:taskmanagerid/profiler/:filename
GET /taskmanagers/:taskmanagerid/stdout
GET /taskmanagers/:taskmanagerid/thread-dump
GET /taskmanagers/metrics get agg taskmanagers
GET /jobmanager/config
GET /jobmanager/environment
GET /jobmanager/logs
GET /jobmanager/logs/:filename
GET /jobmanager/metrics get
GET /jobmanager/profiler
POST /jobmanager/profiler
GET /jobmanager/profiler/:filename
GET /jobmanager/thread-dump
GET /jars
DELETE /jars/:jarid
GET /jars/:jarid/plan
POST /jars/:jarid/plan
POST /jars/:jarid/run
POST /jars/:jarid/run-application
POST /jars/upload
GET /applications/:applicationid
POST /applications/:applicationid/cancel
GET /applications/:applicationid/exceptions
GET /applications/:applicationid/jobmanager/config
GET /applications/overview
GET /jobmanager/log
GET /jobmanager/stdout
""".strip().splitlines()
"""Method, path and query parameters of Flink 2.3 (Flink WebMonitorEndpoint, DispatcherRestEndpoint, and their MessageHeaders). Those of
jars have no parameters here: nobody serves them.
"""


def _route(method, path):
    stars = re.sub(r":\w+", "*", path)
    (found,) = (
        route
        for route in ROUTES
        if (route.method, re.sub(r"\{\w+\}", "*", route.path)) == (method, stars)
    )
    return found


NEEDS_JAVA = re.compile(
    r"/jars.*|/datasets/.*|.*/profiler.*|/jobs/:jobid/(coordinators|rescaling)/?.*|.*/yarn-stop"
)
"""Programs, plans, data sets and profilers of Java, and what Flink refuses, too."""
SERVED = [one for one in FLINK if one != "POST /jobs" and not NEEDS_JAVA.fullmatch(one.split()[1])]


@pytest.mark.parametrize("flinks", SERVED)
def test_flinks_path_is_routed_and_takes_its_parameters(flinks):
    method, path, *query = flinks.split()
    assert set(query) <= set(_route(method, path).query)


def test_what_needs_java_is_listed_and_not_routed():
    theirs = {one.split()[1] for one in FLINK if NEEDS_JAVA.fullmatch(one.split()[1])} | {"/jobs"}
    assert {re.sub(r":\w+", "*", one) for one in theirs} == {
        re.sub(r"\{\w+\}", "*", one) for one in UNSERVED
    }
    assert {route.path for route in ROUTES} & set(UNSERVED) == {"/jobs"}
    assert ("POST", "/jobs") not in {(route.method, route.path) for route in ROUTES}


OWN = [
    "/live",
    "/switches",
    "/slots",
    "/taskmanagers/health",
    "/jobs/{jobid}/vertices/{vertexid}/pressure",
    "/jobs/{jobid}/bottleneck",
    "/jobs/{jobid}/metrics/top-n",
    "/jobs/{jobid}/head",
    "/jobs/{jobid}/graph",
    "/jobs/{jobid}/exceptions/groups",
    "/jobs/{jobid}/options",
    "/jobs/{jobid}/vertices/{vertexid}/table",
    "/jobs/{jobid}/archive",
    "/jobs/{jobid}/vertices/{vertexid}/lanes",
    "/jobs/{jobid}/vertices/{vertexid}/skew",
    "/jobs/{jobid}/timeline",
    "/jobs/{jobid}/watermarks",
    "/jobs/{jobid}/checkpoints/strip",
    "/jobs/{jobid}/checkpoints/details/{checkpointid}/gantt",
]


@pytest.mark.parametrize("path", OWN)
def test_a_path_of_our_own_is_routed(path):
    (route,) = (route for route in ROUTES if route.path == path)
    assert route.summary.endswith(" Not in Flink.")


def test_a_path_is_routed_once():
    assert max(Counter((route.method, route.path) for route in ROUTES).values()) == 1


def test_a_path_without_parameters_is_not_hidden_by_one_that_has_some():
    """The first route that fits is taken."""
    for place, route in enumerate(ROUTES):
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
        for later in ROUTES[place + 1 :]:
            if later.method == route.method and later.path != route.path:
                assert (
                    not pattern.fullmatch(later.path.replace("{", "").replace("}", ""))
                    or "{" in later.path.rpartition("/")[2]
                )


def test_whatever_is_no_get_changes_something():
    assert all(route.changes for route in ROUTES if route.method != "GET")


def test_the_document_describes_each_route_once():
    paths = json.loads(json.dumps(document(ROUTES)))["paths"]
    described = [(method, path) for path, methods in paths.items() for method in methods]
    assert Counter(described) == Counter((one.method.lower(), one.path) for one in ROUTES)
    names = [methods[method]["operationId"] for methods in paths.values() for method in methods]
    assert max(Counter(names).values()) == 1
    for path, methods in paths.items():
        for operation in methods.values():
            told = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert told == set(re.findall(r"\{(\w+)\}", path))
