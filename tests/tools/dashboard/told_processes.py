"""TaskManagers that answer as a test says: their files, their threads, the samples of their tasks."""

from concurrent.futures import Future

from penstock.engine.hosting.jobmanager.flame_graphs import FlameGraph
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.jobmanager.questions import NoAnswer
from penstock.engine.hosting.reporting.logs.folder import LogFolder
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.messages import ThreadDump, ThreadText
from penstock.engine.model.metrics import Measured, MetricType


class ToldProcesses(JobHandle):
    """In the place of a job's handle. `log`: the path of the log of all of its TaskManagers; `trees`: flame graphs by type; `silent`:
    why TaskManagers do not answer.
    """

    def __init__(self, job_id, log="", threads=(), trees=None) -> None:
        self._job_id = job_id
        self.folder = LogFolder(str(log))
        self.threads = threads
        self.trees = trees or {}
        self.sampled_ms = 0
        self.asked = []
        self.silent = ""
        self.flame_graphs = self
        self.is_enabled = True

    @property
    def job_id(self):
        return self._job_id

    def coordinator_metrics(self):
        return []

    def taskmanager_starts(self):
        return 0, 0

    def _answer(self, work):
        future = Future()
        if self.silent:
            future.set_exception(NoAnswer(self.silent))
            return future
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def log_files(self, resource_id):
        return self._answer(self.folder.list)

    def read_log(self, resource_id, question):
        return self._answer(lambda: self.folder.read(question))

    def thread_dump(self, resource_id):
        texts = tuple(ThreadText(name, text) for name, text in self.threads)
        return self._answer(lambda: ThreadDump(texts))

    def graph(self, vertex_id, kind, subtask):
        """As FlameGraphs has it."""
        self.asked.append((str(kind), subtask))
        tree = self.trees.get(str(kind))
        return None if tree is None or not self.sampled_ms else FlameGraph(self.sampled_ms, tree)


def reports(driver, taskmanager, **values):
    """A TaskManager reports metrics of its process, by the short names of NAMES."""
    measured = []
    for name, value in values.items():
        *groups, last = NAMES[name].split(".")
        measured.append(
            Measured(last, MetricType.GAUGE, value, tuple((one, None) for one in groups))
        )
    process = {"host": "host-a", "tm_id": taskmanager}
    section = Section(Component.TASKMANAGER, process, measured)
    with driver.job_registry.reported() as store:
        store.report(ReportEncoder(process).encode([section]))


NAMES = {
    "load": "Status.JVM.CPU.Load",
    "used": "Status.JVM.Memory.Heap.Used",
    "most": "Status.JVM.Memory.Heap.Max",
    "arrow": "Status.Arrow.Memory.Used",
    "buffers_free": "Status.Shuffle.Netty.AvailableMemorySegments",
    "buffers": "Status.Shuffle.Netty.TotalMemorySegments",
    "garbage": "Status.JVM.GarbageCollector.All.TimeMsPerSecond",
    "threads": "Status.JVM.Threads.Count",
}
