"""Names of metrics, with examples of a true cluster."""

import pytest

from penstock.engine.metrics.scopes import (
    Component,
    Place,
    ScopeFormats,
    delimiter_of,
    identifier,
    logical_scope,
    operator_name,
    query_id,
    scope_formats,
    user_variables,
    variables_of,
)
from penstock.engine.model.config import Settings

VARIABLES = {
    "host": "127.0.0.1",
    "tm_id": "127.0.0.1:39837-77f77f",
    "job_id": "j",
    "job_name": "obs test 1",
    "task_id": "v",
    "task_name": "Source: my src -> my map",
    "subtask_index": "0",
    "operator_id": "o",
    "operator_name": "my map",
}
OPERATOR = Place(Component.OPERATOR, VARIABLES)
GROUPS = (("my grp", None), ("k.1", "v:1 x"))


def settings(**given: str) -> Settings:
    return Settings({key.replace("__", "-").replace("_", "."): one for key, one in given.items()})


def test_an_identifier_is_the_one_of_a_true_cluster():
    found = identifier(OPERATOR, (), "numRecordsIn", ScopeFormats())
    expected = "127_0_0_1.taskmanager.127_0_0_1:39837-77f77f.obs test 1.my map.0.numRecordsIn"
    assert found == expected


def test_groups_stand_before_the_name_and_lose_the_delimiter_but_the_name_keeps_it():
    found = identifier(OPERATOR, GROUPS, "my.counter", ScopeFormats())
    assert found.endswith(".my map.0.my grp.k_1.v:1 x.my.counter")


def test_a_delimiter_that_is_an_underscore_is_replaced_by_a_hyphen():
    place = Place(Component.TASKMANAGER, {"host": "a_b", "tm_id": "c"})
    assert identifier(place, (), "n", ScopeFormats(), "_") == "a-b_taskmanager_c_n"


@pytest.mark.parametrize(
    ("component", "words"),
    [
        (Component.JOBMANAGER, "jobmanager"),
        (Component.JM_JOB, "jobmanager.job"),
        (Component.JM_OPERATOR, "jobmanager.job.operator"),
        (Component.TASKMANAGER, "taskmanager"),
        (Component.TM_JOB, "taskmanager.job"),
        (Component.TASK, "taskmanager.job.task"),
        (Component.OPERATOR, "taskmanager.job.task.operator"),
    ],
)
def test_the_logical_scope_is_the_path_of_components(component, words):
    assert logical_scope(component, ()) == words


def test_of_a_key_value_group_the_key_is_in_the_logical_scope_and_the_value_a_variable():
    assert logical_scope(Component.TASK, GROUPS) == "taskmanager.job.task.my grp.k_1"
    assert user_variables(GROUPS) == {"k.1": "v:1 x"}


def test_a_component_has_the_variables_of_all_around_it():
    assert variables_of(Component.OPERATOR) == (
        "host", "tm_id", "job_id", "job_name", "task_id", "task_name", "task_attempt_id",
        "task_attempt_num", "subtask_index", "operator_id", "operator_name",
    )  # fmt: skip
    assert variables_of(Component.JM_JOB) == ("host", "job_id", "job_name")


def test_query_ids_replace_blanks_dots_colons_and_commas_and_nothing_else():
    groups = (("my grp", None), ("k.1", "v:1,x"))
    found = query_id(groups, "win & co <x>", "my map")
    assert found == "my_map.my_grp.k_1.v_1_x.win_&_co_<x>"


def test_a_query_id_without_operator_begins_with_the_groups():
    assert query_id((("Status", None), ("JVM", None)), "Load") == "Status.JVM.Load"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a" * 80, "a" * 80),
        ("a" * 81, "a" * 80),
        ("a" * 90 + ": Writer", "a" * 72 + ": Writer"),
        ("a" * 90 + ": Committer", "a" * 69 + ": Committer"),
    ],
)
def test_an_operators_name_is_cut_but_keeps_its_ending(name, shown):
    assert operator_name(name) == shown


def test_only_whole_components_are_variables_and_what_is_missing_is_null():
    formats = ScopeFormats({Component.TASK: "<host>x.<job_name>.<nothing>.<task_attempt_id>"})
    place = Place(Component.TASK, {"host": "h", "job_name": ""})
    assert formats.of(place) == ("<host>x", "null", "<nothing>", "null")


def test_a_star_stands_for_the_format_around():
    formats = ScopeFormats({Component.TASK: "*.<subtask_index>", Component.TM_JOB: "*.job"})
    place = Place(Component.TASK, VARIABLES)
    assert formats.of(place) == (
        "127.0.0.1", "taskmanager", "127.0.0.1:39837-77f77f", "job", "0",
    )  # fmt: skip


def test_a_format_that_cannot_be_used_gives_all_their_defaults_and_says_why():
    formats, wrong = scope_formats(settings(metrics_scope_tm="*.x", metrics_scope_task="only"))
    assert "metrics.scope.tm is '*.x'" in (wrong or "")
    assert formats.of(Place(Component.TASK, VARIABLES))[0] == "127.0.0.1"


def test_formats_come_from_the_configuration():
    formats, wrong = scope_formats(settings(metrics_scope_task="only.<subtask_index>"))
    assert wrong is None
    assert formats.of(Place(Component.TASK, VARIABLES)) == ("only", "0")


def test_only_the_first_character_of_the_delimiter_counts():
    assert delimiter_of(settings(metrics_scope_delimiter="-x")) == "-"
    assert delimiter_of(settings()) == "."
