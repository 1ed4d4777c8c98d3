"""When an idle TaskManager gives memory back, and which."""

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.hosting.taskmanager.idle_memory import (
    IdleMemory,
    give_back_memory,
    unchanged_libraries,
)
from penstock.hosting.taskmanager.thread_times import Spans

PASSED = 1000

LIBRARY = """\
7f00-8f00 r-xp 00001000 08:01 77                         /usr/lib/libarrow.so
Size:                 64 kB
Rss:                  48 kB
Pss:                   3 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
"""


def times(*looks: tuple[int, float], takes: float = 0.0) -> int:
    """How often memory was given back when the process used so much of a core for so many ticks.

    `takes`: what the giving back uses, in ticks.
    """
    given: list[int] = []
    used = 0

    def give() -> None:
        nonlocal used
        used += int(takes * PASSED)
        given.append(1)

    memory = IdleMemory(give, lambda: used)
    for count, share in looks:
        for _ in range(count):
            used += int(share * PASSED)
            memory.look(Spans(PASSED, {}, {}))
    return len(given)


def test_memory_is_given_back_after_two_seconds_of_rest_and_once():
    assert times((7, 0.03)) == 0
    assert times((8, 0.03)) == 1
    assert times((2000, 0.03)) == 1


def test_little_work_is_no_rest():
    assert times((100, 0.06)) == 0


def test_work_in_between_begins_the_rest_anew():
    assert times((7, 0), (1, 0.9), (7, 0)) == 0
    assert times((7, 0), (1, 0.9), (8, 0)) == 1


def test_a_heartbeat_now_and_then_is_no_work():
    assert times(*[(1, 0.04), (7, 0.01)] * 30) == 1


def test_a_job_of_a_moment_is_work():
    assert times((9, 0), (1, 0.06), (100, 0)) == 2


def test_what_the_giving_back_itself_takes_is_no_work():
    assert times((200, 0), takes=0.2) == 1


def test_a_later_rest_gives_back_again_but_not_within_ten_seconds():
    assert times((9, 0), (1, 0.9), (37, 0)) == 1
    assert times((9, 0), (1, 0.9), (38, 0)) == 2
    assert times((8, 0), (300, 0.9), (8, 0)) == 2


def test_an_unchanged_mapping_of_a_library_is_found():
    assert list(unchanged_libraries(LIBRARY.replace("arrow.so", "arrow.so.2600"))) == [
        (0x7F00, 0x1000)
    ]
    assert list(unchanged_libraries(LIBRARY)) == [(0x7F00, 0x1000)]
    assert len(list(unchanged_libraries(LIBRARY + LIBRARY.replace("7f00-8f00", "9f00-af00")))) == 2


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("r-xp", "rw-p"),
        ("r-xp", "r-xs"),
        ("Anonymous:             0 kB", "Anonymous:             4 kB"),
        ("Anonymous:             0 kB\n", ""),
        ("Rss:                  48 kB", "Rss:                   0 kB"),
        ("/usr/lib/libarrow.so", "[vdso]"),
        ("/usr/lib/libarrow.so", "/data/prices.arrow"),
        ("/usr/lib/libarrow.so", "/usr/lib/libarrow.so (deleted)"),
    ],
    ids=["writable", "shared", "changed", "unknown", "not in memory", "none", "data", "deleted"],
)
def test_other_mappings_are_left(part, other):
    assert part in LIBRARY
    assert list(unchanged_libraries(LIBRARY.replace(part, other))) == []


def test_a_page_that_was_given_back_is_read_again(tmp_path):
    path = tmp_path / "library.so"
    path.write_bytes(b"code" * 4096)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as m,
    ):
        assert m[:4] == b"code"
        give_back_memory()
        assert m[:] == b"code" * 4096


def test_a_process_with_libraries_gets_smaller_and_works_on():
    """In a process of its own, because this one's memory belongs to other tests, too."""
    program = """
import re
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from penstock.hosting.taskmanager.idle_memory import give_back_memory

def resident():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Rss:\\s+(\\d+) kB", text)[1])

before = resident()
give_back_memory()
after = resident()
total = pc.sum(pa.array(np.arange(10))).as_py()
print(before, after, total)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    before, after, total = map(int, run.stdout.split())
    assert total == 45
    assert after < before


def test_this_process_has_such_mappings():
    assert list(unchanged_libraries(Path("/proc/self/smaps").read_text()))
