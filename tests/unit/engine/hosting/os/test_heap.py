"""The heap's spare memory goes back to the system."""

import ctypes
import os
from pathlib import Path

import pytest

from penstock.engine.hosting.os import heap
from penstock.engine.hosting.os.heap import HeapTrims, trim_heap

BLOCK = 4096
BLOCKS = 10_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_what_was_freed_below_a_block_in_use_is_returned():
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:
        libc.free(block)
    before = resident_bytes()
    trim_heap()
    assert before - resident_bytes() > BLOCK * BLOCKS // 2
    libc.free(blocks[-1])


def test_it_is_trimmed_every_ten_minutes(monkeypatch: pytest.MonkeyPatch):
    now_s, trims = [100.0], []
    monkeypatch.setattr(heap, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(heap, "trim_heap", lambda: trims.append(now_s[0]))
    trimming = HeapTrims()
    for now_s[0] in (100.0, 699.0, 700.0, 701.0, 1299.0, 1300.0):
        trimming.tick()
    assert trims == [700.0, 1300.0]
