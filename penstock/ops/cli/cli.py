"""`penstock`: show the plan of a program, run it, look at its jobs and steer them, take over its job, or examine Spark.

    penstock plan examples/word_count.py --taskmanagers 2 --slots 3
    penstock plan examples/word_count.py --cluster left=2,2 --cluster right=2 --fail tm-1
    penstock run my_job.py -D parallelism.default=4 -- --input /data
    penstock run my_job.py --master local[5] --taskmanagers 2 --slots 2
    penstock run -d my_job.py
    penstock run my_job.py --from-savepoint /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock doctor --master spark://host:7077 -D parallelism.default=8
    penstock recover --cluster-id nightly --storage-dir /mnt/penstock
    penstock savepoint check my_job.py /mnt/savepoints/savepoint-5f2c8a-0123456789ab -- --input /data
    penstock savepoint inspect /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock savepoint dispose /mnt/savepoints/savepoint-5f2c8a-0123456789ab
    penstock transactions list --kafka broker-1:9092 --prefix invoices
    penstock list
    penstock savepoint 7e7cae1b /mnt/savepoints
    penstock cancel 7e7cae1b -m localhost:8081
    penstock logs 7e7cae1b -f
    penstock top
    penstock history /mnt/archive
    penstock session -d
    penstock run -m localhost:8081 my_job.py
    penstock session stop

Runs the program's own script as `python` would; only where its jobs go is decided here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from penstock.engine.hosting.os.waiting import was_interrupted
from penstock.engine.model.errors import PenstockError
from penstock.ops.cli.arguments import parsed
from penstock.ops.cli.remote.texts import answered, complain

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit code."""
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(options)
    except KeyboardInterrupt:
        if not was_interrupted():  # A job that was waited for has said so.
            complain("interrupted")
        return INTERRUPTED
    except Exception as error:  # A program may raise any; ours go on as they are.
        if not _begin_in_program(error):
            raise
        sys.excepthook(type(error), error, error.__traceback__)
        return 1


def _begin_in_program(error: Exception) -> bool:
    """Cut from the error's traceback what is above the program, as if Python itself had run it. Returns: whether it comes from the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") != "runpy":
        trace = trace.tb_next
    has_run = trace is not None
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == "runpy":
        trace = trace.tb_next
    if has_run:
        error.__traceback__ = trace
    return has_run


def _run(options: argparse.Namespace) -> int:
    if not hasattr(options, "asks"):
        # The engine takes most of a second to import, and commands that only ask a driver do without it.
        from penstock.ops.cli.programs import run_command

        return run_command(options)
    try:
        return answered(options.asks, options)
    except PenstockError as error:
        complain(str(error))
        return 1
