"""Jobs that copy from a message broker to another topic, and what fails in them, once."""

from penstock.common import WatermarkStrategy
from penstock.datastream import ProcessAllWindowFunction
from penstock.engine.runtime.sink import Committer
from tests.tools.programs.checkpoint_programs import STAGES, restarting_environment


class FailsAt:
    """At this value, the first time."""

    def __init__(self, stage, value):
        self.stage, self.value = stage, value

    def __call__(self, value):
        stage = STAGES[self.stage]
        if value == self.value and not stage.failed.is_set():
            stage.failed.set()
            raise RuntimeError("planted")
        return value


class DyingCommitter(Committer):
    def __init__(self, committer, stage, is_before):
        self.committer, self.stage, self.is_before = committer, stage, is_before

    def commit(self, committables):
        stage = STAGES[self.stage]
        is_first = bool(committables) and not stage.failed.is_set()
        if is_first and self.is_before:
            stage.failed.set()
            raise RuntimeError("planted before the commit")
        put_off = self.committer.commit(committables)
        if is_first:
            stage.failed.set()
            raise RuntimeError("planted behind the commit")
        return put_off

    def abort(self, job_prefix):
        self.committer.abort(job_prefix)


class CountOf(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield len(list(elements))


def checkpointed(watcher, tmp_path, parallelism=2, **more):
    settings = {
        "execution__checkpointing__interval": "50 ms",
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
    }
    return restarting_environment(watcher, parallelism, **settings | more)


def copy(env, source, function, sink):
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.map(function).uid("map").sink_to(sink).uid("out")
