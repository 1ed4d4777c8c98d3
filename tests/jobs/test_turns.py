"""A record's trip through the code is short: how many files a producer's turn visits, and how often it changes from one to another.

The shortest program: source and keyBy, without a function, to a channel of the same process.
"""

from statistics import median

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    QueueEnumerator,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import RowBatch
from tests.tools.programs.environments import minicluster_environment
from tests.tools.runtime.turns import traced_turns

RECORDS = 100
MOST_FILES, MOST_STAYS = 45, 150
"""Of the plan for the engine's structure."""


class OneATurn(Source):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context):
        return QueueEnumerator(context, ["s"])

    def create_reader(self, context):
        return OneATurnReader(context)


class OneATurnReader(SourceReader):
    """Gives one record, and nothing more in the same millisecond."""

    def __init__(self, context):
        self.context = context
        self.given = 0
        self.is_due = False

    def start(self):
        self.context.send_split_request()

    def add_splits(self, _splits):
        self.is_due = True

    def notify_no_more_splits(self):
        pass

    def poll_next(self):
        if self.given == RECORDS:
            return ReaderStatus.END_OF_INPUT
        self.is_due = not self.is_due
        if self.is_due:
            self.context.wake_at(self.context.monotonic_ms() + 1)
            return ReaderStatus.NOTHING_AVAILABLE
        self.given += 1
        return SplitBatch(RowBatch([self.given]), "s")


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=1))


def test_a_producers_turn_visits_few_files_and_seldom_comes_back(env):
    numbers = env.from_source(OneATurn(), WatermarkStrategy.no_watermarks(), "numbers")
    keyed = numbers.key_by(lambda number: number % 7)
    with traced_turns() as turns, keyed.reduce(max).execute_and_collect() as results:
        assert len(list(results)) == RECORDS
    (of_source,) = (ones for name, ones in turns.items() if "numbers" in name)
    with_record = [turn for turn in of_source if any("/partition/" in one for one in turn.files)]
    assert len(with_record) >= RECORDS
    assert median(len(set(turn.files)) for turn in with_record) <= MOST_FILES
    assert median(turn.stays for turn in with_record) <= MOST_STAYS
