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
from penstock.engine.hosting.spark.batch.allocator import large_blocks_kept

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


def test_other_settings_of_malloc_do_not_matter():
    """YARN sets this one."""
    assert told(MALLOC_ARENA_MAX="4") == ["True", "False", "True", "True"]


def test_a_freed_block_stays_until_the_end():
    assert told() == ["True", "False", "True", "True"]


@pytest.mark.parametrize("chosen", [{"MALLOC_MMAP_THRESHOLD_": "1000000"}])
def test_the_settings_of_the_user_stay(chosen):
    assert told(**chosen) == ["True", "True", "False", "True"]


NAME = "ARROW_DEFAULT_MEMORY_POOL"
POOL_PROGRAM = """
import os, sys
if sys.argv[1] == "loaded":
    import pyarrow
from penstock.engine.hosting.spark.batch.allocator import load_arrow
load_arrow()
load_arrow()
import pyarrow as pa
print(pa.default_memory_pool().backend_name, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


def pool(chosen=None, how="not loaded", **more):
    clean = {name: value for name, value in os.environ.items() if name != NAME} | more
    if chosen is not None:
        clean[NAME] = chosen
    done = subprocess.run(
        [sys.executable, "-c", POOL_PROGRAM, how], capture_output=True, text=True, check=True,
        env={**clean, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.split()


def test_arrow_allocates_by_the_c_library():
    assert pool() == ["system", "None"]


@pytest.mark.parametrize("chosen", ["mimalloc", "system"])
def test_the_choice_of_the_user_counts(chosen):
    assert pool(chosen) == [chosen, chosen]


def test_arrow_that_is_loaded_already_stays_as_it_is():
    assert pool(how="loaded") != ["system", "None"]


def test_arrow_keeps_its_allocator_where_the_user_says_how_the_c_librarys_keeps_blocks():
    assert pool(MALLOC_TOP_PAD_="100000")[0] != "system"
