"""What another user may ask for without the token, where `penstock.rest.token` is `never`: nothing that names a folder."""

from types import SimpleNamespace

import pytest

from penstock.ops.rest.answers import Asked, RestError
from penstock.ops.rest.operations import Operations
from penstock.ops.rest.requests import actions
from tests.tools.waiting import wait_until

JOB = "a" * 32


class Control:
    """A job that takes savepoints. `folders`: where they were asked for."""

    job_id = JOB

    def __init__(self):
        self.folders = []

    def start_savepoint(self, _kind, directory):
        self.folders.append(directory)
        return lambda _timeout: "there"


@pytest.fixture
def control():
    return Control()


@pytest.fixture
def driver(control):
    return SimpleNamespace(
        job=lambda _asked: SimpleNamespace(job_id=JOB),
        job_registry=SimpleNamespace(control=lambda _job_id: control),
        operations=Operations(60),
    )


FOLDERS = [
    (actions.trigger_savepoint, "target-directory"),
    (actions.stop, "targetDirectory"),
    (actions.dispose_savepoint, "savepoint-path"),
]


@pytest.mark.parametrize(("action", "name"), FOLDERS)
def test_a_stranger_names_no_folder(action, name, driver, control):
    with pytest.raises(RestError, match="Only the driver's user") as refused:
        action(driver, Asked({"jobid": JOB}, {}, {name: "/home/me"}, is_stranger=True))
    assert refused.value.status == 403
    assert control.folders == []


@pytest.mark.parametrize("action", [actions.trigger_savepoint, actions.stop])
@pytest.mark.parametrize(("is_stranger", "folder"), [(True, None), (False, "/home/me")])
def test_his_savepoints_go_where_the_user_has_configured(
    action, is_stranger, folder, driver, control
):
    name = dict(FOLDERS)[action]
    body = {} if folder is None else {name: folder}
    action(driver, Asked({"jobid": JOB}, {}, body, is_stranger=is_stranger))
    wait_until(lambda: control.folders, "no savepoint was asked for")
    assert control.folders == [folder]
