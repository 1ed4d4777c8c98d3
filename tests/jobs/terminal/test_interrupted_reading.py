"""Ctrl-C anywhere within an iterator over results: one line says that the job is cancelled, and it is."""

import dis
import sys

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.datastream.data_stream import iterator
from penstock.engine.hosting.jobmanager import driver_streams, handle
from penstock.engine.hosting.os import waiting
from penstock.testing import MiniCluster
from tests.tools.programs.environments import minicluster_environment

FILES = {module.__file__ for module in (iterator, handle, driver_streams, waiting)}
TOLD = "penstock: interrupted; job 'numbers' is cancelled"
BATCHES = 3


class CtrlC:
    """Interrupts the calling thread at the first place that is not in `done` where Python looks for signals: behind a call, at the
    begin of a function or of a turn of a loop. Only in `FILES`. A place counts twice, for its first time and for all later ones: how
    often a loop turns is a matter of the job.
    """

    def __init__(self, done):
        self.place = None
        self._done = done
        self._looks = {}
        self._passed = set()

    def __enter__(self):
        sys.settrace(self._called)

    def __exit__(self, *_):
        sys.settrace(None)

    def _called(self, frame, event, _):
        # What a finalizer raises goes to nobody, and the collector decides when it runs.
        if frame.f_code.co_filename not in FILES or frame.f_code is waiting._let_go.__code__:
            return None
        frame.f_trace_opcodes = True
        return self._traced

    def _traced(self, frame, event, _):
        if event != "opcode" or self.place is not None:
            return self._traced
        if self._looks.get(frame):
            where = frame.f_code.co_qualname, frame.f_lineno, frame.f_lasti
            place = *where, where in self._passed
            self._passed.add(where)
            if place not in self._done:
                sys.settrace(None)
                self.place = place
                raise KeyboardInterrupt
        code = frame.f_code.co_code[frame.f_lasti]
        self._looks[frame] = dis.opname[code].startswith(("CALL", "RESUME", "JUMP_BACKWARD"))
        return self._traced


def read(ctrl_c):
    """Reads a job's first rows, and is interrupted, at the latest behind them. Returns: the job's state."""
    env = minicluster_environment(MiniCluster()).set_parallelism(1)
    endless = NumberSequenceSource(0, 10**12)
    stream = env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless")
    with pytest.raises(KeyboardInterrupt), stream.execute_and_collect("numbers") as rows:
        batches = iter(rows)
        next(batches)
        with ctrl_c:
            for _ in range(BATCHES):
                rows._values = iter(())  # So that the next call asks for a batch.
                next(batches)
        ctrl_c.place = None
        raise KeyboardInterrupt
    return rows.get_job_client().get_job_status().result().name


def test_ctrl_c_at_each_place_says_so_once_and_cancels(capsys):
    done = set()
    while True:
        ctrl_c = CtrlC(done)
        assert read(ctrl_c) == "CANCELED", ctrl_c.place
        assert capsys.readouterr().err.count(TOLD) == 1, ctrl_c.place
        if ctrl_c.place is None:
            break
        done.add(ctrl_c.place)
    seen = {place[0] for place in done}
    assert {"CloseableIterator.__next__", "Reader.__enter__", "Reader.__exit__"} < seen
