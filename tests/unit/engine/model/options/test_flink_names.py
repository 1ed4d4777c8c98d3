"""Our names of Flink's options are those of Flink 2.3, of which `flink_keys.json` has all: what its option classes say, read from the
released jars. `former`: deprecated keys, with the present ones.
"""

import json
from pathlib import Path

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.options.catalogue import FORMER_KEYS, OPTIONS, check_spelling, nearest
from penstock.engine.model.options.checkpoints import CheckpointOptions
from penstock.engine.model.options.flink_names import FLINK_NAMES

FLINK = json.loads((Path(__file__).parent / "flink_keys.json").read_text(encoding="utf-8"))
PRESENT, FORMER = set(FLINK["present"]), FLINK["former"]
OF_FLINK_1 = {
    "execution.checkpointing.prefer-checkpoint-for-recovery",
    "high-availability.zookeeper.path.checkpoint-counter",
    "high-availability.zookeeper.path.checkpoints",
    "high-availability.zookeeper.path.latch",
    "high-availability.zookeeper.path.leader",
    "high-availability.zookeeper.path.running-registry",
    "jobmanager.heap.size",
    "local.number-resourcemanager",
    "state.backend.async",
    "state.backend.rocksdb.ttl.compaction.filter.enabled",
    "taskmanager.heap.size",
    "taskmanager.network.netty.num-arenas",
    "taskmanager.network.netty.sendReceiveBufferSize",
    "taskmanager.network.netty.transport",
}
"""Names that Flink 2 has no more."""


def test_the_names_without_effect_are_names_of_flink():
    assert FLINK_NAMES - PRESENT - FORMER.keys() == OF_FLINK_1 | {"web.address"}


@pytest.mark.parametrize("key", sorted({*PRESENT, *FORMER}))
def test_no_option_of_flink_is_taken_for_a_misspelt_one(key):
    check_spelling(key)
    assert nearest(key) is None


def test_a_former_name_in_flink_has_the_effect_of_the_present_one():
    used = {old: new for old, new in FORMER.items() if new in OPTIONS and OPTIONS[new].is_used}
    others = {old: new for old, new in used.items() if old not in OPTIONS}
    assert len(others) > 30
    assert {old: FORMER_KEYS.get(old) for old in others} == others


def test_where_checkpoints_lie_can_be_said_with_the_name_of_flink_1_0():
    settings = Settings({"state.backend.fs.checkpointdir": "/checkpoints"})
    assert settings.get(CheckpointOptions.DIR) == "/checkpoints"
