"""Every mode of checkpointing keeps its promise through failures in the middle: once, or at least
once (docs/spec/checkpoints.md#barriers, #data-in-flight).
"""

from collections import Counter

import pytest

from tests.tools.output_files import hidden_below
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Watcher,
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
)

PREFIX = "execution__checkpointing__"
MODES = {
    "aligned": {},
    "unaligned": {PREFIX + "unaligned__enabled": "true"},
    "aligned for 1 ms": {
        PREFIX + "unaligned__enabled": "true",
        PREFIX + "aligned_checkpoint_timeout": "1 ms",
    },
    "two at a time": {PREFIX + "max_concurrent_checkpoints": "2"},
    "no final one": {PREFIX + "checkpoints_after_tasks_finish": "false"},
}
COUNT = 300


def run(stage, tmp_path, **settings):
    """Fails once, behind a checkpoint."""
    watcher = Watcher(stage, opens_after=2)
    every = {PREFIX + "interval": "10 ms", PREFIX + "dir": str(tmp_path / "checkpoints")}
    env = restarting_environment(watcher, **every | settings)
    source = HeldSource(stage.name, splits=4, count=COUNT, hold=COUNT // 3)
    sums_to_file(env, tmp_path / "out", source, FailsOnce(stage.name, COUNT // 2))
    env.execute("sums")
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    return lines_of(tmp_path / "out")


@pytest.mark.parametrize("mode", MODES)
def test_each_record_counts_once(mode, stage, tmp_path):
    assert run(stage, tmp_path, **MODES[mode]) == expected_sums(4, COUNT)
    assert hidden_below(tmp_path / "out") == []


def test_at_least_once_loses_nothing(stage, tmp_path):
    lines = Counter(run(stage, tmp_path, **{PREFIX + "mode": "AT_LEAST_ONCE"}))
    highest = {split: max(total for at, total in lines if at == split) for split in range(4)}
    assert all(total >= sum(range(COUNT)) for total in highest.values())
