"""What `penstock doctor` makes of what it has found: each rule, what it stops, and the setting that it names.

Expectations: Spark's documentation of its settings; what TaskManagers are (tasks that run as long as their job).
"""

from dataclasses import replace

import pytest

from penstock.engine.hosting.spark.checks import (
    ALL_JOBS,
    NO_JOBS,
    STREAMING,
    Finding,
    JobKind,
    configuration_findings,
)
from penstock.ops.cli.doctor import rendered
from penstock.ops.doctor.examine import Diagnosis
from penstock.ops.doctor.findings import (
    DriverFacts,
    ExecutorFacts,
    Slots,
    probe_findings,
    slot_findings,
)

CLUSTER = "spark://there:7077"
ON = "spark.dynamicAllocation.enabled"

KEPT_SIZE = {"spark.kubernetes.allocation.recoveryMode.enabled": "false"}
PROTECTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def named(found):
    """What of the findings a user acts on: what they stop, and whether the remedy names a setting."""
    return [(finding.stops, finding.is_hint) for finding in found]


@pytest.mark.parametrize("master", [CLUSTER, "local[4,3]", "local-cluster[2,2,1024]"])
def test_a_plain_configuration_has_nothing_wrong(master):
    assert configuration_findings({"spark.app.name": "x"} | PROTECTED, master) == []


@pytest.mark.parametrize(
    ("conf", "master", "stops", "is_hint", "remedy"),
    [
        ({"spark.speculation": "true"}, CLUSTER, STREAMING, False, "spark.speculation=false"),
        (
            {
                "spark.python.worker.killOnIdleTimeout": "true",
                "spark.python.worker.idleTimeoutSeconds": "60",
            },
            CLUSTER, NO_JOBS, False, "killOnIdleTimeout=false",
        ),
        ({"spark.executor.pyspark.memory": "1g"}, CLUSTER, NO_JOBS, False, "memoryOverhead"),
        ({}, "local[4]", NO_JOBS, True, "local[4,4]"),
        ({}, "local", NO_JOBS, True, "local[1,4]"),
        ({"spark.task.maxFailures": "1"}, CLUSTER, NO_JOBS, True, "spark.task.maxFailures=4"),
        (
            {ON: "true", "spark.dynamicAllocation.shuffleTracking.enabled": "false"},
            CLUSTER, NO_JOBS, False, "shuffleTracking.enabled=true",
        ),
        (
            {ON: "true", "spark.dynamicAllocation.maxExecutors": "1"},
            CLUSTER, NO_JOBS, False, "maxExecutors",
        ),
        (
            {"spark.databricks.clusterUsageTags.clusterId": "x"},
            CLUSTER, NO_JOBS, False, "preemption.enabled=false",
        ),
        ({}, "yarn", NO_JOBS, False, "spark.executor.memoryOverhead"),
        (KEPT_SIZE, "k8s://https://there", NO_JOBS, False, "spark.executor.memoryOverhead"),
        (
            {"spark.executor.memoryOverhead": "2g"},
            "k8s://https://there", NO_JOBS, False, "recoveryMode.enabled=false",
        ),
        ({"spark.python.worker.reuse": "false"}, CLUSTER, NO_JOBS, True, "reuse=true"),
    ],
)  # fmt: skip
def test_each_setting_that_harms_is_found_with_what_to_set(conf, master, stops, is_hint, remedy):
    (found,) = configuration_findings(conf | PROTECTED, master)
    assert (found.stops, found.is_hint) == (stops, is_hint)
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("conf", "master"),
    [
        ({ON: "true"}, CLUSTER),
        (
            {
                ON: "true",
                "spark.shuffle.service.enabled": "true",
                "spark.dynamicAllocation.shuffleTracking.enabled": "false",
            },
            CLUSTER,
        ),
        ({"spark.dynamicAllocation.maxExecutors": "1"}, CLUSTER),
        ({"spark.executor.memoryOverhead": "2g"}, "yarn"),
        (
            {
                "spark.databricks.clusterUsageTags.clusterId": "x",
                "spark.databricks.preemption.enabled": "false",
            },
            CLUSTER,
        ),
    ],
)
def test_settings_that_do_no_harm_are_left_alone(conf, master):
    assert configuration_findings(conf | PROTECTED, master) == []


@pytest.mark.parametrize("master", [CLUSTER, "local-cluster[2,2,1024]", "k8s://https://there"])
@pytest.mark.parametrize(
    "missing", [("spark.authenticate",), ("spark.network.crypto.enabled",), tuple(PROTECTED)]
)
def test_an_unprotected_network_is_a_warning_that_names_what_is_missing(master, missing):
    conf = {key: value for key, value in PROTECTED.items() if key not in missing}
    conf |= {"spark.executor.memoryOverhead": "2g"} | KEPT_SIZE
    (found,) = configuration_findings(conf, master)
    assert (found.stops, found.is_hint) == (NO_JOBS, False)
    assert [key for key in PROTECTED if f"{key}=true" in found.remedy] == list(missing)


def test_in_local_mode_nothing_crosses_a_network():
    assert configuration_findings({}, "local[4,4]") == []


def test_tls_of_sparks_rpc_counts_as_encryption():
    conf = {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}
    assert configuration_findings(conf, CLUSTER) == []


def test_what_stops_jobs_comes_first_and_hints_last():
    conf = {"spark.speculation": "true", "spark.executor.pyspark.memory": "1g"}
    found = configuration_findings(conf, "local[2]")
    assert named(found) == [(STREAMING, False), (NO_JOBS, False), (NO_JOBS, True)]


# ---------------------------------------------------------------------- room

ROOM = Slots(
    total=8,
    used=0,
    wanted=4,
    why="parallelism.default=4",
    cores_each=1,
    slots_each=1,
    master="yarn",
)


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        ({}, []),
        ({"total": None, "wanted": 100}, []),
        ({"total": 0}, [ALL_JOBS]),
        ({"used": 5}, [STREAMING]),
        ({"wanted": 8}, [NO_JOBS]),
        ({"slots_each": 4}, [NO_JOBS]),
        ({"slots_each": 4, "cores_each": 4}, []),
    ],
)
def test_room_for_a_job(changes, stops):
    found = list(slot_findings(replace(ROOM, **changes)))
    assert [one.stops for one in found] == stops
    for one in found:
        assert "spark." in one.remedy or "parallelism.default" in one.remedy


@pytest.mark.parametrize(
    ("master", "setting"),
    [
        ("spark://here:7077", "spark.cores.max"),
        ("yarn", "spark.executor.instances"),
        ("k8s://https://here", "spark.executor.instances"),
        ("local[2]", "the number in the master"),
    ],
)
def test_the_setting_that_gives_more_room_is_the_one_of_the_master(master, setting):
    (found,) = slot_findings(replace(ROOM, used=5, master=master))
    assert found.remedy.startswith(f"raise {setting}, ")


# ---------------------------------------------------------------------- what tasks find

DRIVER = DriverFacts("10.0.0.1:50100", "3.11.7", {"pyarrow": "21.0.0", "numpy": "2.3.1"})
GOOD = ExecutorFacts(
    "left", 1, "3.11.2", {"pyarrow": "21.0.0", "numpy": "2.1.0"}, {}, None, 50_000, peers=2
)


def test_executors_that_are_right_give_no_findings():
    assert probe_findings([GOOD, replace(GOOD, host="right")], DRIVER) == []


@pytest.mark.parametrize(
    ("changes", "stops", "what", "remedy"),
    [
        ({"python": "3.12.1"}, ALL_JOBS, "Python is 3.12.1 on right", "spark.pyspark.python"),
        (
            {"modules": {"pyarrow": None, "numpy": "2.1.0"}},
            ALL_JOBS, "pyarrow cannot be imported on right", "install pyarrow",
        ),
        (
            {"modules": {"pyarrow": "14.0.2", "numpy": "2.1.0"}},
            ALL_JOBS, "pyarrow is 14.0.2 on right", "pyarrow 15 or newer",
        ),
        (
            {"modules": {"pyarrow": "21.0.0", "numpy": "1.26.4"}},
            NO_JOBS, "numpy is 1.26.4 on right and 2.3.1 on the driver", "same numpy",
        ),
        (
            {"control_error": "timed out"},
            STREAMING, "cannot be reached at 10.0.0.1:50100 from right: timed out",
            "jobmanager.rpc.address",
        ),
        ({"data_error": "no port"}, STREAMING, "right could not listen", "taskmanager.data.port"),
        (
            {"peer_errors": {"10.0.0.2:5000": "refused"}},
            STREAMING, "1 of 4 connections between tasks failed: right to 10.0.0.2:5000 (refused)",
            "taskmanager.data.port",
        ),
        ({"tmp_error": "read-only"}, ALL_JOBS, "temporary files can be written on right", "TMPDIR"),
        ({"free_mb": 100}, NO_JOBS, "free for temporary files on right", "io.tmp.dirs"),
        (
            {"folder_errors": {"/mnt/x": "not the driver's"}},
            STREAMING, "execution.checkpointing.dir /mnt/x cannot be used on right", "share",
        ),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_where_tasks_run(changes, stops, what, remedy):
    (found,) = probe_findings([GOOD, replace(GOOD, host="right", **changes)], DRIVER)
    assert found.stops == stops
    assert what in found.what
    assert remedy in found.remedy


def test_many_hosts_are_one_finding():
    wrong = [replace(GOOD, host=f"h{number}", python="3.9.1") for number in range(9)]
    (found,) = probe_findings(wrong, DRIVER)
    assert "h0, h1, h2 and 6 more" in found.what


# ---------------------------------------------------------------------- as text


def test_the_text_says_what_is_wrong_what_to_set_and_which_jobs_can_run():
    findings = (
        Finding("a is b", "set a=c", STREAMING),
        Finding("d is slow", "set d=e"),
        Finding("f is good enough", "set f=g", is_hint=True),
    )
    diagnosis = Diagnosis(("Spark is there",), findings)
    text = list(rendered(diagnosis))
    assert text[0] == "Spark is there"
    assert [line.split()[0] for line in text if "is" in line[1:]][1:] == [
        "ERROR",
        "WARNING",
        "HINT",
    ]
    assert "         Set a=c." in text
    assert text[-2:] == ["STREAMING jobs cannot run.", "BATCH jobs can run."]
    assert [diagnosis.can_run(kind) for kind in JobKind] == [False, True]
