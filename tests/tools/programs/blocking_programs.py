"""Programs with blocking edges for a MiniCluster, whose subtasks share this module's memory with the test."""

import os
import random
import threading
from collections import Counter, defaultdict
from contextlib import suppress

from penstock.datastream import MapFunction, StreamExchangeMode, StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.programs.environments import RESTARTS, minicluster_environment

BATCH = StreamExchangeMode.BATCH
NETWORK_BYTES = 1 << 20
WAIT_S = 30
BLOCKING_TYPE = "taskmanager.network.blocking-shuffle.type"
RECORDS, RECORD_BYTES = 5000, 1000


def cut_the_files_short() -> None:
    for path, _, names in os.walk(SHARED.folder):
        for name in names:
            if name.endswith(".result"):
                os.truncate(os.path.join(path, name), 1000)


class Shared:
    """What the functions of a program tell the test, and wait for. Reset by `environment`."""

    def __init__(self) -> None:
        self.opened: Counter = Counter()
        self.seen: dict = defaultdict(list)
        self.largest = 0
        self.folder = ""
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.both_are_open = threading.Barrier(2, cut_the_files_short)
        self.fast_is_done = threading.Event()
        self.lock = threading.Lock()


SHARED = Shared()


def blocking_environment(
    tmp_path, kind="file", **options
) -> tuple[StreamExecutionEnvironment, MiniCluster]:
    """Two TaskManagers of one slot, little network memory, results in `tmp_path`."""
    SHARED.__init__()
    SHARED.folder = str(tmp_path)
    given = {
        "io.tmp.dirs": str(tmp_path),
        "taskmanager.memory.network": f"{NETWORK_BYTES} bytes",
        BLOCKING_TYPE: kind,
    } | {name.replace("_", "."): value for name, value in options.items()}
    cluster = MiniCluster(parallelism=2)
    return minicluster_environment(cluster, RESTARTS | given), cluster


def payload(number: int) -> tuple[int, bytes]:
    """Does not compress."""
    return number, random.Random(number).randbytes(RECORD_BYTES)


def number_of(value) -> int:
    return value[0]


def bytes_in(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # released in the meantime
                total += os.path.getsize(os.path.join(path, name))
    return total


class Producer(MapFunction):
    """Counts its attempts."""

    def open(self, runtime_context):
        with SHARED.lock:
            SHARED.opened["producer", runtime_context.get_index_of_this_subtask()] += 1

    def map(self, value):
        return payload(value)


class Consumer(MapFunction):
    """Checks each record; `act(subtask, attempt, count)` may do something else."""

    def __init__(self, name, act=None, *, is_cut_off=False):
        """`is_cut_off`: what the first attempts are to read is cut short before they begin."""
        self.name = name
        self.act = act
        self.is_cut_off = is_cut_off
        self.count = 0

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        with SHARED.lock:
            SHARED.opened[self.name, self.subtask] += 1
            self.attempt = SHARED.opened[self.name, self.subtask]
            SHARED.largest = max(SHARED.largest, bytes_in(SHARED.folder))
        if self.is_cut_off and self.attempt == 1:
            SHARED.both_are_open.wait(WAIT_S)

    def map(self, value):
        self.count += 1
        if self.act is not None:
            self.act(self.subtask, self.attempt, self.count)
        assert value == payload(value[0])
        return self.name, value[0]

    def close(self):
        if self.name == "fast":
            SHARED.fast_is_done.set()
