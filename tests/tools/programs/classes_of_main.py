"""A main script whose classes are in every kind of state. What it finds again after a restore it notes in a file.

Usage: PLACE FOLDER [SAVEPOINT]. PLACE: "mini", or "given" by whoever runs the script. Ends with a savepoint, whose place it prints.
"""

import dataclasses
import sys
from enum import Enum, Flag
from pathlib import Path

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    Committer,
    ReaderStatus,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import RowBatch
from tests.tools.waiting import wait_until


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Of the enumerator."""

    color: Color


@dataclasses.dataclass(frozen=True)
class Part:
    """A split."""

    color: Color
    at: int


@dataclasses.dataclass(frozen=True)
class Receipt:
    """A committable."""

    color: Color


@dataclasses.dataclass(frozen=True)
class Desk:
    """Of the writer."""

    rights: Rights


@dataclasses.dataclass(frozen=True)
class Remark:
    """In keyed state."""

    color: Color


def note(file, what, found, made):
    """That `found`, which comes from a savepoint or is new, is of the class of `made` and equals it."""
    member, own = (next(iter(vars(one).values())) for one in (found, made))
    good = isinstance(found, type(made)), found == made, member is own
    with Path(file).open("a") as notes:
        notes.write(f"{what} {good == (True, True, True)}\n")


class Parts(Source):
    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, file):
        self.file = file

    def create_enumerator(self, context):
        return Hands(context, self.file, [Part(Color.RED, 0)])

    def restore_enumerator(self, context, state):
        note(self.file, "enumerator", state, Ledger(Color.BLUE))
        return Hands(context, self.file, [])

    def create_reader(self, context):
        return Reads(context, self.file)


class Hands(SplitEnumerator):
    def __init__(self, context, file, parts):
        self.context, self.file, self.parts = context, file, parts

    def handle_split_request(self, subtask, host):
        self.context.assign_splits(subtask, self.parts)
        self.parts = []

    def add_splits_back(self, splits, subtask):
        self.parts += splits

    def snapshot_state(self):
        return Ledger(Color.BLUE)


class Reads(SourceReader):
    """Gives one record for each time that it gets its split, and stays."""

    def __init__(self, context, file):
        self.context, self.file, self.part, self.has_given = context, file, None, False

    def start(self):
        if self.part is None:
            self.context.send_split_request()

    def add_splits(self, splits):
        (self.part,) = splits
        note(self.file, "split", self.part, Part(Color.RED, self.part.at))

    def notify_no_more_splits(self):
        """There is always more."""

    def poll_next(self):
        if self.part is None or self.has_given:
            return ReaderStatus.NOTHING_AVAILABLE
        self.has_given = True
        self.part = dataclasses.replace(self.part, at=self.part.at + 1)
        return SplitBatch(RowBatch([self.part.at]))

    def snapshot_state(self):
        return [self.part]


class Remembers(KeyedProcessFunction):
    def __init__(self, file):
        self.file = file

    def open(self, context):
        anything = Types.PICKLED_BYTE_ARRAY()
        self.value = context.get_state(ValueStateDescriptor("value", anything))
        self.list = context.get_list_state(ListStateDescriptor("list", anything))
        self.map = context.get_map_state(MapStateDescriptor("map", anything, anything))

    def process_element(self, value, ctx):
        if value > 1:
            own = Remark(Color.RED)
            note(self.file, "value", self.value.value(), own)
            note(self.file, "list", next(iter(self.list.get())), own)
            note(self.file, "map", self.map.get(Color.BLUE), own)
        self.value.update(Remark(Color.RED))
        self.list.add(Remark(Color.RED))
        self.map.put(Color.BLUE, Remark(Color.RED))
        yield value


class Files(Sink):
    def __init__(self, file):
        self.file = file

    def create_writer(self, context):
        return Writes(self.file)

    def create_committer(self):
        return Commits(self.file)


class Writes(SinkWriter):
    def __init__(self, file):
        self.file, self.count = file, 0

    def write(self, batch, watermark_ms):
        self.count += len(batch)
        with Path(self.file).open("a") as notes:
            notes.writelines(f"record {value}\n" for value in batch.values)

    def prepare_commit(self):
        return [Receipt(Color.RED)] if self.count else []

    def snapshot_state(self):
        return [Desk(Rights.READ | Rights.WRITE)]

    def restore_state(self, state):
        note(self.file, "writer", state[0], Desk(Rights.WRITE | Rights.READ))

    def end_input(self):
        """Nothing is open."""

    def close(self):
        """Nothing is open."""


class Commits(Committer):
    def __init__(self, file):
        self.file = file

    def commit(self, committables):
        for one in committables:
            note(self.file, "committable", one, Receipt(Color.RED))

    def abort(self, job_prefix):
        """Nothing is left."""


def environment(place, folder, savepoint):
    config = {
        "execution.checkpointing.dir": f"file://{folder}/chk",
        "execution.checkpointing.interval": "1 h",
        "state.backend.type": "rocksdb" if "rocks" in folder else "hashmap",
    }
    if savepoint:
        config["execution.state-recovery.path"] = savepoint
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))
    if place == "mini":
        env.use_executor(MiniCluster().executor())
    return env.set_parallelism(1)


def main(place, folder, savepoint=""):
    file = f"{folder}/{'again' if savepoint else 'first'}.txt"
    Path(file).touch()
    env = environment(place, folder, savepoint)
    parts = env.from_source(Parts(file), WatermarkStrategy.no_watermarks(), "parts").uid("parts")
    kept = parts.key_by(lambda n: Color.BLUE).process(Remembers(file)).uid("remembers")
    kept.sink_to(Files(file)).uid("files")
    client = env.execute_async("classes of main")

    def is_through():
        ended = client.get_job_status().result().is_terminal_state()
        return ended or "record" in Path(file).read_text()

    wait_until(is_through, "no record came through")
    if client.get_job_status().result().is_terminal_state():
        client.get_job_execution_result().result()
    print("SAVEPOINT", wait_until(lambda: savepoint_of(client, folder), "no savepoint"))


def savepoint_of(client, folder):
    """None: a task has not yet said that it is running."""
    try:
        return client.stop_with_savepoint(False, f"file://{folder}/sp").result()
    except Exception as error:
        if "NOT_ALL_REQUIRED_TASKS_RUNNING" not in str(error):
            raise
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
