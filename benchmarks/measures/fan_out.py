"""One producer with 2, 32 and 256 subpartitions, all read by one task in another process: throughput and memory.

Records go round robin. Memory: resident, of both processes at the end. `--events`: milliseconds of one
measurement, default 4,000.
"""

import os

from benchmarks.figures import Figure
from benchmarks.memory import resident_mib
from benchmarks.workloads.data_planes import Producers, Reader, consumer_plane, rates

SUBPARTITIONS = (2, 32, 256)
MEASURED_MS = 4000
WARM_UP_S = 1.0
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()


def measure(milliseconds: int | None, runs: int) -> list[Figure]:
    seconds = (milliseconds or MEASURED_MS) / 1000
    figures = []
    for count in SUBPARTITIONS:
        found = [_measured(count, seconds) for _ in range(runs)]
        settings = {"subpartitions": count}
        for at, (what, unit) in enumerate((
            ("throughput", "records/s"),
            ("producer's memory", "MiB"),
            ("consumer's memory", "MiB"),
        )):
            values = [one[at] for one in found]
            figures.append(Figure(f"fan_out {what} at {count}", values, unit, (), settings))
    return figures


def _measured(count: int, seconds: float) -> tuple[float, float, float]:
    producers, plane = Producers(1, count), consumer_plane()
    reader = Reader(plane, [(producers.descriptor(0), place) for place in range(count)])
    (rate,) = rates([reader], WARM_UP_S, seconds)
    memory = resident_mib(producers.pid), resident_mib(os.getpid())
    reader.close()
    producers.close()
    plane.close()
    return rate, *memory
