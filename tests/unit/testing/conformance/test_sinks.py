"""check_sink: what it says of sinks that keep their word, and of planted ones that do not."""

import os
import tempfile
from pathlib import Path

import pytest

from penstock.common import Row
from penstock.common.serialization import Encoder
from penstock.connectors.file_system import FileSink
from penstock.connectors.sql_sink import SqlSink
from penstock.datastream.connectors import Committer, DeliveryGuarantee, Sink
from penstock.testing import check_sink
from penstock.testing.conformance import sink_run
from tests.tools.connectors.sql_tables import PAIRS, Db
from tests.tools.output_files import files_below

EXACTLY, AT_LEAST, NONE = (
    DeliveryGuarantee.EXACTLY_ONCE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.NONE,
)


class LinesWriter:
    """A hidden file for each checkpoint. `flags`: planted faults."""

    def __init__(self, folder, flags, context):
        self.folder, self.flags, self.lines, self.files = Path(folder), flags, [], 0
        attempt = "" if "names collide" in flags else context.attempt_prefix
        self.prefix = f"{context.job_prefix}{attempt}-{context.subtask}"

    def write(self, batch, watermark_ms):
        self.lines += batch.values
        if "visible at once" in self.flags:
            self.files += 1
            (self.folder / f"{self.prefix}-{self.files}").write_text("\n".join(batch.values))
            self.lines = []

    def prepare_commit(self):
        if not self.lines or "keeps the rest" in self.flags:
            return []
        self.files += 1
        name = f"{self.prefix}-{self.files}.hidden"
        (self.folder / name).write_text("\n".join(self.lines))
        self.lines = []
        return [name]

    def close(self):
        if "publishes when closed" in self.flags and self.lines:
            (self.folder / f"{self.prefix}-closed").write_text("\n".join(self.lines))


class LinesCommitter(Committer):
    def __init__(self, folder, flags):
        self.folder, self.flags = Path(folder), flags

    def commit(self, committables):
        if "puts off" in self.flags:
            return committables
        return self.rename(committables)

    def rename(self, committables):
        for name in committables:
            target = self.folder / name.removesuffix(".hidden")
            hidden = self.folder / name
            if "copies" in self.flags and hidden.exists():
                number = len(list(self.folder.iterdir()))
                (self.folder / f"{target.name}-{number}").write_text(hidden.read_text())
            elif "must be there" in self.flags or hidden.exists():
                hidden.rename(target)
        if "forgets one" in self.flags and len(committables) > 1:
            (self.folder / committables[-1].removesuffix(".hidden")).unlink()

    def abort(self, job_prefix):
        if "ignores abort" in self.flags:
            return
        for path in list(self.folder.iterdir()):
            is_hidden = path.name.endswith(".hidden")
            if "aborts others" in self.flags and is_hidden:
                path.unlink()
                continue
            if "publishes in abort" in self.flags and is_hidden:
                path.rename(path.with_suffix(""))
            elif "aborts all" in self.flags or (is_hidden and path.name.startswith(job_prefix)):
                path.unlink()


class Lines(Sink):
    def __init__(self, folder, *flags):
        self.folder, self.flags = folder, flags

    def create_writer(self, context):
        return LinesWriter(self.folder, self.flags, context)

    def create_committer(self):
        return None if "has none" in self.flags else LinesCommitter(self.folder, self.flags)


def lines_of(folder):
    return [
        line
        for path in files_below(folder)
        if not os.path.basename(path).endswith((".hidden", ".inprogress"))
        and not os.path.basename(path).startswith((".", "_"))
        for line in Path(path).read_text().splitlines()
    ]


@pytest.fixture
def folders(tmp_path):
    """Makes a new folder at each call."""
    return lambda: Path(tempfile.mkdtemp(dir=tmp_path))


def report_of(folders, *flags):
    def make():
        folder = folders()
        return Lines(str(folder), *flags), lambda: lines_of(folder)

    return check_sink(make)


def test_a_sound_sink_is_exactly_once(folders):
    report = report_of(folders)
    assert str(report) == f"Lines: EXACTLY_ONCE in {report.scenarios} scenarios"
    # At parallelism 1: 4 whole runs; 13 steps, so 14 points with 4 scenarios each. At 2: 23 steps.
    assert report.scenarios == (4 + 14 * 4) + (4 + 24 * 4)


@pytest.mark.parametrize(
    ("flags", "guarantee", "shown"),
    [
        (("visible at once", "has none"), AT_LEAST, "doubled"),
        (("visible at once",), AT_LEAST, "visible too early"),
        (("copies",), AT_LEAST, "committed twice"),
        (("must be there",), NONE, "FileNotFoundError"),
        (("keeps the rest",), NONE, "lost"),
        (("publishes when closed",), AT_LEAST, "doubled"),
        (("forgets one",), NONE, "lost"),
        (("aborts all",), NONE, "aborted"),
        (("aborts others",), NONE, "together with another job that continues: 8 lost"),
        (("publishes in abort",), AT_LEAST, "visible too early"),
        (("names collide",), NONE, "lost"),
        (("puts off",), NONE, "puts committables off after 2 tries"),
    ],
)
def test_a_sink_with_a_planted_fault_is_found(folders, monkeypatch, flags, guarantee, shown):
    monkeypatch.setattr(sink_run, "PUT_OFF_TRIES", 2)
    monkeypatch.setattr(sink_run, "PUT_OFF_S", 0)
    report = report_of(folders, *flags)
    assert report.guarantee is guarantee
    assert shown in str(report)
    with pytest.raises(AssertionError, match="expected EXACTLY_ONCE of Lines: "):
        report.require(EXACTLY)


@pytest.mark.parametrize("flags", [(), ("ignores abort",)])
def test_what_abort_leaves_behind_is_found_if_the_kit_can_look_at_it(folders, flags):
    def make():
        folder = folders()

        def hidden():
            return [path.name for path in folder.iterdir() if path.name.endswith(".hidden")]

        return Lines(str(folder), *flags), lambda: lines_of(folder), hidden

    report = check_sink(make, parallelisms=(1,), most_points=2)
    assert report.guarantee is EXACTLY
    if not flags:
        report.require(EXACTLY)
        return
    with pytest.raises(
        AssertionError, match="together with another job that continues: 1 left over"
    ):
        report.require(NONE)


@pytest.mark.parametrize(("by_key", "guarantee"), [(True, EXACTLY), (False, NONE)])
def test_a_target_that_keeps_one_of_equal_records(folders, by_key, guarantee):
    def make():
        folder = folders()
        return Lines(str(folder)), lambda: set(lines_of(folder))

    report = check_sink(make, parallelisms=(1,), most_points=3, by_key=by_key)
    assert report.guarantee is guarantee


class WritesAtBarrier(Lines):
    """It has no committer."""

    def create_writer(self, context):
        return BarrierWriter(self.folder, self.flags, context)

    def create_committer(self):
        return None


class BarrierWriter(LinesWriter):
    def prepare_commit(self):
        for name in super().prepare_commit():
            (self.folder / name).rename(self.folder / name.removesuffix(".hidden"))
        return []


@pytest.mark.parametrize("most_points", [2, 4, 5])
def test_few_points_still_find_what_the_barrier_makes_visible(folders, most_points):
    """What a checkpoint that is not complete has made visible comes again."""

    def make():
        folder = folders()
        return WritesAtBarrier(str(folder)), lambda: lines_of(folder)

    report = check_sink(make, parallelisms=(1,), most_points=most_points)
    assert report.guarantee is AT_LEAST, str(report)


def test_the_file_sink_is_exactly_once(folders):
    def make():
        folder = folders()
        encoder = Encoder.simple_string_encoder()
        return FileSink.for_row_format(str(folder), encoder).build(), lambda: lines_of(folder)

    check_sink(make).require(EXACTLY)


@pytest.mark.parametrize(
    ("guarantee", "seen"), [(EXACTLY, EXACTLY), (AT_LEAST, AT_LEAST)], ids=["exactly", "at least"]
)
def test_the_sql_sink_keeps_what_it_was_set_to(folders, guarantee, seen):
    rows = [Row(name=f"name {n}", n=n) for n in range(9)]

    def make():
        db = Db(f"sqlite:///{folders()}/test.db")
        sink = db.sink(set_delivery_guarantee=guarantee)
        return sink, lambda: [Row(name=name, n=n) for name, n in db.rows()]

    report = check_sink(make, rows, parallelisms=(2,), most_points=7, input_type=PAIRS)
    assert report.guarantee is seen


def test_the_sql_sink_with_keys_keeps_every_row_once(folders):
    """Its own tables are made as it is checked at submit, as here."""
    rows = [Row(name=f"name {n}", n=n) for n in range(9)]

    def make():
        url = f"sqlite:///{folders()}/test.db"
        db = Db(url, "CREATE TABLE counts (name VARCHAR(80) PRIMARY KEY, n INTEGER)")
        sink = SqlSink.builder().set_url(url).set_table("counts").set_key_columns(["name"]).build()
        return sink, lambda: [Row(name=name, n=n) for name, n in db.rows()]

    report = check_sink(make, rows, parallelisms=(2,), most_points=7, input_type=PAIRS, by_key=True)
    assert report.guarantee is EXACTLY
