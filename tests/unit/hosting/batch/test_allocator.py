"""Large blocks are used again while a BATCH task runs, and go back to the system behind it.

In processes of their own, for it is the whole process that is changed.
"""

import os
import subprocess
import sys

import pytest

from tests.tools.terminal import ROOT

BLOCK = 8 << 20
PROGRAM = f"""
import ctypes, sys
from penstock.hosting.batch.allocator import large_blocks_kept

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]

libc = ctypes.CDLL(None)
libc.mallinfo.restype = Mallinfo
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def mapped_apart():
    before = libc.mallinfo().hblkhd
    block = libc.malloc({BLOCK})
    mapped = libc.mallinfo().hblkhd - before
    libc.free(block)
    return mapped >= {BLOCK}

print(mapped_apart())
with large_blocks_kept():
    print(mapped_apart(), libc.mallinfo().keepcost >= {BLOCK})
print(libc.mallinfo().keepcost < {BLOCK})
"""


def told(**environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    return done.stdout.split()


def test_a_freed_block_stays_until_the_end():
    assert told() == ["True", "False", "True", "True"]


@pytest.mark.parametrize("chosen", [{"MALLOC_MMAP_THRESHOLD_": "1000000"}])
def test_the_settings_of_the_user_stay(chosen):
    assert told(**chosen) == ["True", "True", "False", "True"]
