"""Four channels on one connection, one of which is hardly read: what is left of the rate of the other three.

Each channel has a producer and a consumer of its own; producers are threads of one process, consumers of another.
Floor: the same three while the fourth is not connected. The ratio is to be 0.8 or more. `--events`: milliseconds
of one measurement, default 4,000.
"""

from benchmarks.figures import Figure
from benchmarks.workloads.data_planes import Producers, Reader, consumer_plane, rates

OTHERS = 3
SLOW_BATCH_S = 0.2
MEASURED_MS = 4000
WARM_UP_S = 1.0
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()


def measure(milliseconds: int | None, runs: int) -> list[Figure]:
    seconds = (milliseconds or MEASURED_MS) / 1000
    beside, alone, slow = [], [], []
    for _ in range(runs):
        alone.append(sum(_rates(seconds, has_slow=False)))
        *others, slowest = _rates(seconds, has_slow=True)
        beside.append(sum(others))
        slow.append(slowest)
    settings = {
        "channels": OTHERS + 1,
        "slow one takes, s a batch": SLOW_BATCH_S,
        "floor": "three channels alone",
    }
    return [
        Figure("slow_consumer three others", beside, "records/s", alone, settings),
        Figure("slow_consumer the slow one", slow, "records/s", (), settings),
    ]


def _rates(seconds: float, *, has_slow: bool) -> list[float]:
    producers, plane = Producers(OTHERS + 1, 1), consumer_plane()
    readers = [Reader(plane, [(producers.descriptor(i), 0)]) for i in range(OTHERS)]
    if has_slow:
        readers.append(Reader(plane, [(producers.descriptor(OTHERS), 0)], SLOW_BATCH_S))
    found = rates(readers, WARM_UP_S, seconds)
    for reader in readers:
        reader.close()
    producers.close()
    plane.close()
    return found
