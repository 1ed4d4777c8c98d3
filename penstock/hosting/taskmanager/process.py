"""A TaskManager in a process of its own: it reads its configuration from stdin, and its life is
tied to its parent's.

Started by `taskmanager_child`. Ends when the JobManager says so or is gone, and when stdin closes,
because then the supervisor is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.hosting.taskmanager.config import TaskManagerConfig
    from penstock.hosting.taskmanager.process_log import ProcessLog
    from penstock.hosting.taskmanager.taskmanager import TaskManager
    from penstock.hosting.taskmanager_order import ChildOrder, TaskManagerOrder

_PR_SET_PDEATHSIG: Final = 1
_EXIT_GRACE_S: Final = 3.0
_GC_THRESHOLD: Final = 50_000
_SOUGHT_BY_PYARROW: Final = ("pandas", "dateutil", "pytz")


def _configuration(told: ChildOrder) -> TaskManagerConfig:
    from penstock.hosting.taskmanager.config import TaskManagerConfig
    from penstock.hosting.taskmanager.spark_executor import with_executor
    from penstock.hosting.wire import addresses
    from penstock.hosting.wire.handshake import Credentials
    from penstock.hosting.wire.tls import Identity

    order = told.taskmanager
    identity = None if told.identity is None else Identity(told.identity.encode())
    return TaskManagerConfig(
        resource_id=told.resource_id,
        master_host=told.master_host,
        master_port=told.master_port,
        credentials=Credentials(told.secret, told.token, told.cluster_id, identity=identity),
        data=addresses.data_endpoint(
            (told.master_host, told.master_port), order.addresses, bind_host=order.bind_host
        ),
        slots=order.slots,
        heartbeat_interval_s=told.heartbeat_interval_s,
        silence_timeout_s=told.silence_timeout_s,
        task_settings=order.task_settings,
        supervisor_pid=told.supervisor_pid,
        size=order.size,
        cores=order.cores,
        log_path=told.log_path,
        spark_task=with_executor(order.spark_task, told.supervisor_pid),
    )


def main() -> None:
    """Entry point of the child. Slow preparation comes first, while the supervisor still connects to the JobManager."""
    _die_with_parent()
    _spare_pyarrow_its_searches()

    from penstock.hosting.shipping.pickling import load_cloudpickle_alone
    from penstock.hosting.taskmanager import stacks
    from penstock.hosting.taskmanager.cpu_core import CoreKeeper
    from penstock.hosting.taskmanager.taskmanager import TaskManager
    from penstock.hosting.taskmanager_order import ChildOrder
    from penstock.model.plain import from_plain

    stacks.install()
    load_cloudpickle_alone()
    line = sys.stdin.buffer.readline()
    if not line:
        return  # The JobManager is gone.
    told = from_plain(ChildOrder, json.loads(line))
    threading.Thread(target=_watch_stdin, name="penstock-parent", daemon=True).start()
    sys.setswitchinterval(told.taskmanager.process.switch_interval_s)
    _place_files(told.taskmanager)
    config = _configuration(told)
    # Batches make very many short-lived containers. With the default threshold of 700, the
    # collector would examine each batch several times. What is loaded by now lives for ever.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    manager = TaskManager(config)
    log = _take_output(manager, told)
    _log_signals()
    reporter = threading.Thread(
        target=_report_progress,
        args=(manager, told.progress_fd, config.heartbeat_interval_s, log),
        name="penstock-progress",
        daemon=True,
    )
    reporter.start()
    if told.taskmanager.process.keeps_core and sys.platform == "linux":
        threading.Thread(target=CoreKeeper().run, name="penstock-core", daemon=True).start()
    os._exit(_run(manager))  # A user's thread that still runs must not keep the process alive.


def _log_signals() -> None:
    """Log the signals that end this process, before they do (Flink: SignalHandler). On the main thread."""

    def ends(number: int, _frame: object) -> None:
        name = signal.Signals(number).name
        text = "RECEIVED SIGNAL %d: %s. Shutting down as requested."
        logging.getLogger(__name__).info(text, number, name)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, ends)


def _take_output(manager: TaskManager, told: ChildOrder) -> ProcessLog:
    """Take all that is printed and logged. Raises: OSError: the files of the log cannot be made."""
    from penstock.hosting.task_services import user_output
    from penstock.hosting.taskmanager import process_log

    def here() -> process_log.Logging:
        return process_log.of_task(told.cluster_id, manager.running_task())

    logs = told.taskmanager.logs
    log = process_log.ProcessLog(logs, told.log_path, told.resource_id, here, manager.send)
    process_log.install(logs, log, told.log_fd if told.taskmanager.has_log else None)
    user_output.install(manager.running_operator, manager.send, log)
    return log


def _place_files(order: TaskManagerOrder) -> None:
    """Place the program's files. With archives, functions work in a directory of their own."""
    from penstock.hosting.shipping.worker_files import place

    if not order.files:
        return
    directory = place(order.files, order.files_root, os.path.dirname(sys.argv[1]))
    if directory is not None:
        os.chdir(directory)


def _run(manager: TaskManager) -> int:
    """Run the TaskManager. Returns: the exit code. The supervisor reports what is written to the
    real stderr as the last words.
    """
    try:
        manager.run()
    except BaseException:
        # Also SystemExit of user code: the cause of this process's end must be reported.
        traceback.print_exc(file=sys.__stderr__)
        if sys.__stderr__ is not None:
            sys.__stderr__.flush()
        return 1
    return 0


def _spare_pyarrow_its_searches() -> None:
    """Use one Arrow thread (a TaskManager has one core), and stop searching for missing modules.

    Pyarrow looks for pandas and dateutil at every conversion of a Python scalar. Python does not
    remember that a module is missing, so the path is searched each time (measured: 11 % of a column
    job).
    """
    import pyarrow as pa

    from penstock.hosting.shipping.least_versions import check_here
    from penstock.model.errors import ExternalError

    try:
        check_here()
    except ExternalError as error:
        sys.exit(
            str(error)
        )  # The supervisor tells what a process that could not start has written.
    pa.set_cpu_count(1)
    missing = [name for name in _SOUGHT_BY_PYARROW if importlib.util.find_spec(name) is None]
    sys.meta_path.insert(0, _NotThere(frozenset(missing)))


class _NotThere:
    """Comes first among the finders, and reports at once that these modules do not exist."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _die_with_parent() -> None:
    """Have Linux kill this process when the supervisor dies. On other systems the closed stdin is enough."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)  # The parent died before this call.


def _watch_stdin() -> None:
    """End with the supervisor. Running tasks get a moment to end."""
    with contextlib.suppress(OSError, ValueError):
        while os.read(0, 4096):
            pass
    time.sleep(_EXIT_GRACE_S)
    os._exit(1)


def _report_progress(manager: TaskManager, pipe: int, interval_s: float, log: ProcessLog) -> None:
    os.set_blocking(pipe, False)
    while True:
        log.tick()
        with contextlib.suppress(BlockingIOError):
            try:
                os.write(pipe, b"%d\n" % manager.progress())
            except OSError:
                return
        time.sleep(interval_s)
