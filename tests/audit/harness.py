"""The audited job in one process: it fails at chosen places between checkpoints, then the auditor looks at what is left.

Nothing is waited for by the clock: the log grows when a checkpoint is complete, and is complete after a number of them.
"""

import contextlib
import json
from pathlib import Path

import audit.job
import audit.log_source
from audit.auditor import Auditor
from audit.event_log import Plan
from audit.job import build, create_tables
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from tests.audit import sabotage
from tests.audit.disturbance import Disturbance, GrowingLog
from tests.tools.hosting.running_job import control_of

PLAN = Plan(a_sources=2, b_sources=2, keys=40, rate=2000, seed=3)
CHECKPOINTS = 10
LIMIT_S = 240


class Script(JobObserver):
    """Lets the log grow with every complete checkpoint, and a task fail after some of them: those that are asked for, and
    those that might have taken a stale acknowledgement in.
    """

    def __init__(self, log: GrowingLog, fail_after: set[int], disturbance: Disturbance) -> None:
        self.log = log
        self.fail_after = fail_after
        self.disturbance = disturbance
        self.completed = 0
        self.restarts = 0

    def on_checkpoint_ended(self, ended) -> None:
        if ended.location is None:
            return
        self.completed += 1
        is_suspect = self.disturbance.was_stale_sent()
        self.log.grow(fails=is_suspect or self.completed in self.fail_after)
        if self.completed == CHECKPOINTS:
            self.log.close()

    def on_reset_subtasks(self, reset) -> None:
        self.restarts += 1


class Run:
    """One run in a directory. `fail_after`: numbers of complete checkpoints after which a task fails."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder / "run"
        self.log = GrowingLog(self.folder, PLAN)
        self.url = f"sqlite:///{self.folder}/run.db"
        told = {"sources": PLAN.sources(), "url": self.url}
        (self.folder / "audit.json").write_text(json.dumps(told))
        create_tables(self.url)
        monkeypatch.setattr(audit.job, "itself", sabotage.trip)
        # Many small batches: barriers come between them.
        monkeypatch.setattr(audit.log_source, "ROWS_PER_BATCH", 10)
        self.disturbance = Disturbance(self.log)
        self.disturbance.install(monkeypatch)

    def execute(self, fail_after=(3, 6), parallelism=2, **more: str) -> Script:
        """Raises: JobExecutionError; TimeoutError when the job does not end."""
        script = Script(self.log, set(fail_after), self.disturbance)
        configuration = Configuration()
        settings = {
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.timeout": "5 s",
            "execution.checkpointing.dir": str(self.folder / "checkpoints"),
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            "execution.checkpointing.num-retained": "3",
            # Batches are cut into many slices, with room for a checkpoint in between.
            "penstock.task.max-step-time": "50 micros",
            # A busy machine is no reason to interrupt a commit.
            "task.cancellation.interval": "60 s",
            "task.cancellation.timeout": "180 s",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "30",
            "restart-strategy.fixed-delay.delay": "0 ms",
            **more,
        }
        for key, value in settings.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        # One slot each: what goes to another subtask goes through a connection.
        env.use_executor(MiniCluster(1, observer=script).executor())
        build(env, str(self.folder), self.url, PLAN)
        sabotage.disarm()
        client = env.execute_async("audited")
        try:
            control_of(client).wait(LIMIT_S)
        except TimeoutError:
            control_of(client).cancel()
            with contextlib.suppress(TimeoutError):
                control_of(client).wait(LIMIT_S)
            raise
        else:
            client.get_job_execution_result().result()
        finally:
            sabotage.disarm()
        return script

    def close(self) -> None:
        self.log.close()

    def problems(self) -> list:
        """What the auditor has to say when the job has ended."""
        self.auditor = Auditor(str(self.folder))
        self.auditor.finish()
        return self.auditor.problems
