"""The audited job in one process: it fails at chosen places between checkpoints, then the auditor looks at what is left.

Nothing is waited for by the clock: the log grows when a checkpoint is complete, and is complete after a number of them.
"""

import contextlib
import json
from pathlib import Path

from penstock.hosting.task_checkpoints import TaskCheckpoints

import audit.job
from audit.auditor import Auditor
from audit.event_log import LogWriter, Plan
from audit.job import build, create_tables
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.hosting.executor import MiniCluster
from penstock.hosting.job_observer import JobObserver
from penstock.model.messages import CheckpointFailureReason
from tests.audit import sabotage

PLAN = Plan(a_sources=2, b_sources=2, keys=40, rate=2000, seed=3)
CHECKPOINTS = 12
BLOCKS_EACH = 2
LIMIT_S = 60


class Script(JobObserver):
    """Lets the log grow with every complete checkpoint, and a task fail after some of them."""

    def __init__(self, writer: LogWriter, fail_after: set[int]) -> None:
        self.writer = writer
        self.fail_after = fail_after
        self.completed = 0
        self.restarts = 0

    def checkpoint_ended(self, ended) -> None:
        if ended.location is None or self.completed >= CHECKPOINTS:
            return
        self.completed += 1
        if self.completed in self.fail_after:
            sabotage.arm()
        self.writer.append(BLOCKS_EACH)
        if self.completed == CHECKPOINTS:
            self.writer.close()

    def restarting(self, reset) -> None:
        self.restarts += 1


class Run:
    """One run in a directory. `fail_after`: numbers of complete checkpoints after which a task fails."""

    def __init__(self, folder: Path, monkeypatch, **settings: str) -> None:
        self.folder = folder / "run"
        self.writer = LogWriter(self.folder, PLAN)
        self.writer.append(BLOCKS_EACH)
        self.url = f"sqlite:///{self.folder}/run.db"
        told = {"sources": PLAN.sources(), "url": self.url}
        (self.folder / "audit.json").write_text(json.dumps(told))
        create_tables(self.url)
        self.settings = settings
        monkeypatch.setattr(audit.job, "itself", sabotage.trip)
        self._lose_acknowledgements(monkeypatch)

    def _lose_acknowledgements(self, monkeypatch) -> None:
        """Of one task each: of every fifth checkpoint one is lost and a task fails, every seventh one is declined, and
        after each other one of those a task fails when it has heard so.
        """
        write, aborted, lost = TaskCheckpoints._write, TaskCheckpoints.aborted, set()

        def lossy(self, writing):
            number = writing.barrier.checkpoint_id
            if number in lost or (number % 5 and number % 7):
                write(self, writing)
                return
            lost.add(number)
            self._ended(writing)
            if number % 7 == 0:
                reason = CheckpointFailureReason.ASYNC_EXCEPTION
                self.decline(number, reason, "on purpose")
            else:
                sabotage.arm()

        def told(self, message):
            aborted(self, message)
            if message.checkpoint_id % 14 == 0:
                sabotage.arm_once(message.checkpoint_id)

        monkeypatch.setattr(TaskCheckpoints, "_write", lossy)
        monkeypatch.setattr(TaskCheckpoints, "aborted", told)

    def execute(self, fail_after=(3, 6), parallelism=2) -> Script:
        """Raises: JobExecutionError; TimeoutError when the job does not end."""
        script = Script(self.writer, set(fail_after))
        configuration = Configuration()
        settings = {
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.timeout": "20 s",
            "execution.checkpointing.dir": str(self.folder / "checkpoints"),
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "100",
            "restart-strategy.fixed-delay.delay": "0 ms",
            **self.settings,
        }
        for key, value in settings.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        env.use_executor(MiniCluster(parallelism, observer=script).executor())
        build(env, str(self.folder), self.url, PLAN)
        sabotage.disarm()
        client = env.execute_async("audited")
        try:
            client.get_job_execution_result().result(LIMIT_S)
        except BaseException:
            with contextlib.suppress(Exception):
                client.cancel().result(LIMIT_S)
            raise
        finally:
            sabotage.disarm()
        return script

    def problems(self) -> list:
        """What the auditor has to say when the job has ended."""
        self.auditor = Auditor(str(self.folder))
        self.auditor.finish()
        return self.auditor.problems
