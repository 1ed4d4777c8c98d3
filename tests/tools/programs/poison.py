"""Records of which some are poison, functions that fail for these, and operators that are fed with both."""

import numpy as np

from penstock.datastream import OutputTag
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import StreamHarness

BAD = OutputTag("bad")
POISON = ("a", 0)
"""Never the first record of its key in a window, which a reduce function does not see."""


def over(value):
    """Fails for the poison record."""
    return 12 / value[1]


def key(value):
    return value[0]


CLEAN = [(name, number) for number in range(1, 13) for name in "ab"]
DIRTY = [*CLEAN[:2], POISON, *CLEAN[2:12], POISON, POISON, *CLEAN[12:], POISON]
POISON_COUNT = DIRTY.count(POISON)


def emit_batch(harness, batch):
    """Feed a whole batch, rows or columns, to the first input."""
    harness._wiring.emit(harness._sources[0], batch)


def run(build, values, stamps, *, in_one_batch):
    """The results, dead letters and count of poison records of an operator that is fed these values."""
    with StreamHarness(build) as harness:
        if in_one_batch:
            given = None if stamps is None else np.array(stamps, np.int64)
            emit_batch(harness, RowBatch(list(values), given))
        else:
            for place, value in enumerate(values):
                harness.process_element(value, None if stamps is None else stamps[place])
        harness.wait_for_async()
        harness.end_input()
        letters = harness.values(1) if len(harness._outputs) > 1 else []
        return harness.values(), letters, harness.poison_records


def with_letters(make):
    def build(ds):
        stream = make(ds).on_error(BAD)
        return stream, stream.get_side_output(BAD)

    return build
