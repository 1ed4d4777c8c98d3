"""A high-availability entry that commit 5e53c48 wrote is taken over: see `README.md` beside this."""

import json

from penstock.hosting.ha.election import Election
from penstock.hosting.ha.settings import ha_settings_of
from penstock.model.config import Settings
from penstock.model.states import JobStatus
from penstock.testing import MiniCluster
from tests.former import program
from tests.former.test_former import EXPECTED


def test_a_driver_takes_a_former_entry_over_and_finishes_its_job(folder):
    """Its graph, its operators and its coordinators are unpickled; its program is not there."""
    at = folder("ha")
    assert len(program.written(at / "out")) < len(EXPECTED)
    store = Election(ha_settings_of(Settings(program.HA)), lambda _text: None).store
    (key,) = store.job_keys()
    entry = store.find(key)
    (metadata,) = (at / "checkpoints").rglob("_metadata")
    pointers = json.loads(store.read(entry, "checkpoints"))
    store.put_checkpoints(entry, json.dumps([[pointers[-1][0], str(metadata.parent)]]).encode())
    ((name, control),) = MiniCluster(parallelism=2).executor().recover(program.HA)
    outcome = control.wait(120)
    assert (name, outcome.status) == ("former", JobStatus.FINISHED), outcome.failure
    assert program.written(at / "out") == EXPECTED
    assert store.job_keys() == []
