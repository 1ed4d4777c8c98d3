"""Python imports this when it starts, because the audit has put its folder first on PYTHONPATH. It makes a wall clock that jumps.

A process of a run that has an interpreter of its own has a file with its number in the folder that PENSTOCK_AUDIT_CLOCKS names: eight
bytes, by how many seconds `time.time` and `time.time_ns` are wrong in it. `audit.clocks` writes there. Nothing else of
a process sees the jump: not `datetime.now`, not the monotonic clock, no file's time and no other program.
"""

import mmap
import os
import struct
import time

FOLDER = os.environ.get("PENSTOCK_AUDIT_CLOCKS")


def install(folder: str) -> None:
    path = os.path.join(folder, str(os.getpid()))
    with open(path, "w+b") as file:
        file.write(struct.pack("d", 0.0))
        file.flush()
        wrong_by = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    read = struct.Struct("d").unpack_from
    true_time, true_time_ns = time.time, time.time_ns

    def time_s() -> float:
        return true_time() + float(read(wrong_by)[0])

    def time_ns() -> int:
        return true_time_ns() + int(read(wrong_by)[0] * 1e9)

    vars(time).update(time=time_s, time_ns=time_ns)


if FOLDER and os.path.isdir(FOLDER):
    install(FOLDER)
