"""A job whose enumerator fails before the first checkpoint: it reads everything when it begins again."""

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    PolledSplitReader,
    QueueEnumerator,
    RowBatch,
    Source,
)
from penstock.testing import CollectingSink
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment

STARTS = []


class FailsOnce(QueueEnumerator):
    """Fails at its first start, before it has found its splits."""

    def start(self):
        STARTS.append(self)
        if len(STARTS) == 1:
            raise OSError("the folder cannot be listed now")
        self.add([1, 2, 3])


class Numbers(Source):
    boundedness = Boundedness.BOUNDED
    produced_type = Types.INT()

    def create_enumerator(self, context):
        return FailsOnce(context, ())

    def create_reader(self, context):
        return NumberReader(context)


class NumberReader(PolledSplitReader):
    def read(self, split):
        yield RowBatch([split, 10 * split])


def test_an_enumerator_that_failed_at_its_start_begins_anew_and_nothing_is_lost():
    STARTS.clear()
    env = restarting_environment(Watcher(), parallelism=2)
    sink = CollectingSink()
    env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers").sink_to(sink)
    env.execute("begins anew")
    assert sorted(sink.values) == [1, 2, 3, 10, 20, 30]
    assert len(STARTS) == 2
