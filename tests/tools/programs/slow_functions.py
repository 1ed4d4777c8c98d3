"""A job whose function waits for the test at each record, and whose source tells when it has sent a barrier."""

import threading

from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitBatch
from tests.tools.programs.checkpoint_programs import WAIT_S, HeldSource

RECORDS = 6000
STEPS: dict[str, "Steps"] = {}


class Steps:
    """What the test and the tasks of its job know of each other."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.entered: list[int] = []
        self.source_has_sent_its_barrier = threading.Event()


class AllAtOnce(HeldSource):
    """One reader, one batch with all records. It says when it takes part in a snapshot, which follows its barrier."""

    def create_reader(self, context):
        reader = super().create_reader(context)
        gives = [RowBatch(list(range(RECORDS)))]

        def poll():
            return SplitBatch(gives.pop()) if gives else ReaderStatus.NOTHING_AVAILABLE

        def snapshot():
            STEPS[self.stage].source_has_sent_its_barrier.set()
            return []

        reader.poll_next, reader.snapshot_state = poll, snapshot
        return reader


class Slow:
    """The function of the job with this name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value):
        STEPS[self.name].entered.append(value)
        STEPS[self.name].permits.acquire(timeout=WAIT_S)
        return value
