"""A process of TaskManagers: it reads orders from stdin, a line each, and its life is tied to its parent's.

    first line                       `taskmanager_order.WorkerOrder`
    {"host": `ChildOrder`}           host a TaskManager
    {"end": start id}                see that it ends

Started by `child.py`. Ends when stdin closes, because then the supervisor is gone or needs it no more.
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
    from penstock.engine.hosting.taskmanager.config import TaskManagerConfig
    from penstock.engine.hosting.taskmanager.residents import Outputs, Residents
    from penstock.engine.hosting.taskmanager_order import ChildOrder, WorkerOrder

_PR_SET_PDEATHSIG: Final = 1
_EXIT_GRACE_S: Final = 3.0
_GC_THRESHOLD: Final = 50_000
_SOUGHT_BY_PYARROW: Final = ("pandas", "dateutil", "pytz")


def _configuration(worker: WorkerOrder, host: ChildOrder) -> TaskManagerConfig:
    from penstock.engine.hosting.network.wire import addresses
    from penstock.engine.hosting.network.wire.handshake import Credentials
    from penstock.engine.hosting.network.wire.tls import Identity
    from penstock.engine.hosting.taskmanager.config import TaskManagerConfig, with_executor

    order = host.taskmanager
    return TaskManagerConfig(
        resource_id=host.resource_id,
        master_host=host.master_host,
        master_port=host.master_port,
        credentials=Credentials(Identity(host.identity.encode()), host.token, host.cluster_id),
        data=addresses.data_endpoint(
            (host.master_host, host.master_port), order.addresses, bind_host=order.bind_host
        ),
        slots=order.slots,
        heartbeat_interval_s=host.heartbeat_interval_s,
        silence_timeout_s=host.silence_timeout_s,
        task_settings=order.task_settings,
        supervisor_pid=worker.supervisor_pid,
        size=order.size,
        cores=worker.cores,
        log_path=host.log_path,
        spark_task=with_executor(worker.spark_task, worker.supervisor_pid),
    )


def main() -> None:
    """Entry point of the child. Slow preparation comes first, while the supervisor still connects to the driver."""
    _die_with_parent()
    sys.excepthook = _last_words
    _spare_pyarrow_its_searches()

    from penstock.engine.hosting.shipping.pickling import load_cloudpickle_alone
    from penstock.engine.hosting.taskmanager import stacks
    from penstock.engine.hosting.taskmanager.process_state import ProcessState
    from penstock.engine.hosting.taskmanager.residents import Outputs, Reports, Residents
    from penstock.engine.hosting.taskmanager.user_modules import SharedModules
    from penstock.engine.hosting.taskmanager_order import WorkerOrder
    from penstock.engine.model.plain import from_plain

    stacks.install()
    load_cloudpickle_alone()
    orders = sys.stdin.buffer
    line = orders.readline()
    if not line:
        return  # The driver is gone.
    worker = from_plain(WorkerOrder, json.loads(line))
    if worker.switch_interval_s is not None:
        sys.setswitchinterval(worker.switch_interval_s)
    _place_files(worker)
    # Batches make very many short-lived containers. With the default threshold of 700, the
    # collector would examine each batch several times. What is loaded by now lives for ever; looking
    # for garbage in it would take 50 ms and find nothing of size.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    gc.enable()
    outputs = Outputs()
    _take_output(outputs, worker)
    _log_signals()
    state = ProcessState(worker.files_root)
    # They lie in the worker's folder, which its parent removes: this process may be killed.
    modules = SharedModules(os.path.dirname(sys.argv[1]))
    reports = Reports(worker.progress_fd)
    residents = Residents(state, reports, outputs, worker.logs, modules)
    _start_helpers(residents, worker)
    state.note()
    _obey(residents, worker)
    if not residents.is_empty:
        time.sleep(_EXIT_GRACE_S)  # Running tasks get a moment to end.
    os._exit(
        0 if residents.is_empty else 1
    )  # A user's thread that still runs must not keep the process alive.


def _last_words(_kind: object, error: BaseException, _trace: object) -> None:
    """Write to the real stderr, which the supervisor reports; what is printed belongs to
    TaskManagers that may not be here.
    """
    traceback.print_exception(error, file=sys.__stderr__)


def _start_helpers(residents: Residents, worker: WorkerOrder) -> None:
    interval_s = worker.heartbeat_interval_s
    threading.Thread(
        target=_report, args=(residents, interval_s), name="penstock-progress", daemon=True
    ).start()


def _obey(residents: Residents, worker: WorkerOrder) -> None:
    """Carry out orders until stdin closes."""
    from penstock.engine.hosting.taskmanager_order import ChildOrder
    from penstock.engine.model.plain import from_plain

    for line in sys.stdin.buffer:
        order = json.loads(line)
        if "end" in order:
            residents.end(order["end"])
            continue
        host = from_plain(ChildOrder, order["host"])
        residents.start(host.start_id, _configuration(worker, host))


def _take_output(outputs: Outputs, worker: WorkerOrder) -> None:
    """Take all that is printed and logged."""
    from penstock.engine.hosting.taskmanager import process_log
    from penstock.engine.hosting.taskmanager.services import user_output

    process_log.install(worker.logs, outputs.take, worker.log_fd if worker.has_log else None)
    user_output.install(outputs.operator, outputs.send, outputs)


def _report(residents: Residents, interval_s: float) -> None:
    """Until the supervisor is gone."""
    from penstock.engine.hosting.os.heap import HeapTrims

    heap = HeapTrims()
    with contextlib.suppress(OSError):
        while True:
            residents.tick()
            heap.tick()
            time.sleep(interval_s)


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


def _place_files(worker: WorkerOrder) -> None:
    """Place the program's files. With archives, functions work in a directory of their own."""
    from penstock.engine.hosting.shipping.worker_files import place

    if not worker.files:
        return
    directory = place(worker.files, worker.files_root, os.path.dirname(sys.argv[1]))
    if directory is not None:
        os.chdir(directory)


def _spare_pyarrow_its_searches() -> None:
    """Use one Arrow thread (a TaskManager has one core), and stop searching for missing modules.

    Pyarrow looks for pandas and dateutil at every conversion of a Python scalar. Python does not
    remember that a module is missing, so the path is searched each time (measured: 11 % of a column
    job).
    """
    import pyarrow as pa

    from penstock.engine.hosting.shipping.interpreter import check_here
    from penstock.engine.model.errors import ExternalError

    try:
        check_here()
    except ExternalError as error:
        sys.exit(
            str(error)
        )  # The supervisor reports what a process that could not start has written.
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
