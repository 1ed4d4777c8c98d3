"""The auditor on output made by hand: right output passes, each kind of wrong output is told."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import audit
from audit.auditor import Auditor, follow
from audit.auditor import audit as run_audit
from audit.event_log import LogWriter, Plan, end_of, read_records
from audit.outputs import Table
from tests.audit.second_opinion import PLAN, Run

ROOT = os.path.dirname(os.path.dirname(audit.__file__))


def problems_of(run):
    run.write()
    return {(problem.check, problem.kind) for problem in run_audit(str(run.folder))}


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_right_output_has_no_problems(run):
    assert min(map(len, run.outputs.values())) > 50
    assert problems_of(run) == set()


def test_files_that_nobody_committed_are_not_read(run):
    run.write()
    hidden = run.folder / "out" / "chain" / ".part.inprogress"
    hidden.write_text("1,1,1,1,1\n")
    assert run_audit(str(run.folder)) == []
    assert Auditor(str(run.folder)).files["chain"].hidden() == [hidden.name]


def drop(rows, place):
    del rows[place]


def double(rows, place):
    rows.append(rows[place])


def changed(column, by):
    def change(rows, place):
        row = list(rows[place])
        row[column] += by
        rows[place] = tuple(row)

    return change


def fork(rows, place):
    """Two records have the same version of their key."""
    key, version = rows[place][:2]
    later = next(i for i, row in enumerate(rows) if row[0] == key and row[1] == version + 1)
    rows[later] = (key, version, *rows[later][2:])


def swap_sequences(rows, place):
    """Two records of one source and key come in the other order."""
    key, _, source = rows[place][:3]
    later = next(
        i for i in range(place + 1, len(rows)) if rows[i][0] == key and rows[i][2] == source
    )
    first, second = rows[place], rows[later]
    rows[place] = (*first[:3], second[3], first[4])
    rows[later] = (*second[:3], first[3], second[4])


PLANTED = {
    ("chain", drop): {("chain", "gap"), ("chain", "lost")},
    ("chain", double): {("chain", "doubled")},
    ("chain", changed(4, 1)): {("chain", "wrong")},
    ("chain", changed(0, 1)): {("chain", "wrong")},
    ("chain", changed(2, 50)): {("chain", "strange")},
    ("chain", changed(3, 10**6)): {("chain", "strange")},
    ("chain", changed(1, 10**6)): {("chain", "gap")},
    ("chain", fork): {("chain", "fork")},
    ("chain", swap_sequences): {("chain", "order")},
    ("timers", drop): {("timers", "lost")},
    ("timers", double): {("timers", "doubled")},
    ("timers", changed(2, -1)): {("timers", "wrong")},
    ("timers", changed(3, 1)): {("timers", "wrong")},
    ("timers", changed(1, 1)): {("timers", "strange")},
    ("windows", drop): {("windows", "lost")},
    ("windows", double): {("windows", "doubled")},
    ("windows", changed(2, 1)): {("windows", "wrong")},
    ("windows", changed(0, 10**6)): {("windows", "wrong")},
    ("windows", changed(1, 10**9)): {("windows", "wrong")},
    ("pairs", drop): {("pairs", "lost")},
    ("pairs", double): {("pairs", "doubled")},
    ("pairs", changed(1, 1)): {("pairs", "wrong")},
    ("pairs", changed(3, 10**6)): {("pairs", "strange")},
    ("milestones", drop): {("milestones", "lost")},
    ("milestones", double): {("milestones", "doubled")},
    ("milestones", changed(2, 1)): {("milestones", "fork")},
    ("milestones", changed(1, 1)): {("milestones", "strange")},
}


@pytest.mark.parametrize("place", [0, 25, 45])
@pytest.mark.parametrize(("output", "change"), PLANTED)
def test_one_wrong_row_is_told(run, output, change, place):
    change(run.outputs[output], place)
    assert problems_of(run) >= PLANTED[output, change]


def test_a_problem_shows_the_row(run):
    row = run.outputs["windows"][3]
    run.outputs["windows"][3] = (*row[:3], row[3] + 5)
    run.write()
    (problem,) = run_audit(str(run.folder))
    assert str(problem).startswith("windows: wrong: 1 rows are not what the log has")
    assert f"'total': {row[3] + 5}" in str(problem)


def test_rows_that_come_in_many_looks_and_out_of_order_are_right(run):
    run.write()
    auditor = Auditor(str(run.folder))
    out = run.folder / "out" / "chain"
    rows = [line for part in sorted(out.iterdir()) for line in part.read_text().splitlines()]
    for part in list(out.iterdir()):
        part.unlink()
    auditor.look()
    order = np.random.default_rng(1).permutation(len(rows))
    for number, places in enumerate(np.array_split(order, 9)):
        (out / f"p{number}").write_text("".join(f"{rows[i]}\n" for i in places))
        auditor.look()
    auditor.finish()
    assert auditor.problems == []
    assert auditor.status()["rows"]["chain"] == len(rows)


def test_a_job_that_finished_before_its_log_is_told(run):
    run.write()
    end = run.folder / "log" / "end.json"
    counts = json.loads(end.read_text())
    counts["0"] += 1
    end.write_text(json.dumps(counts))
    assert [problem.check for problem in run_audit(str(run.folder))] == ["log"]


# ------------------------------------------------------------------ the process


def run_process(run, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "audit.auditor", str(run.folder), *arguments],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_the_process_tells_by_its_exit_status_and_shares_no_code_with_the_engine(run):
    run.write()
    (run.folder / "finished").touch()
    done = run_process(run, "--follow", "--every", "0.01")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["rows"]["chain"] == len(run.outputs["chain"])
    (run.folder / "out" / "timers" / "part-x").write_text("1,250,1,1\n")
    done = run_process(run, "--follow", "--every", "0.01")
    assert done.returncode == 1
    assert "timers: " in done.stdout
    assert run_process(run).returncode == 1


def test_following_ends_at_the_first_problem_while_the_job_still_runs(run, capsys):
    run.outputs["pairs"].append((0, 0, 100, 0))
    run.write()
    assert follow(str(run.folder), 0.01) == 1
    assert "pairs: " in capsys.readouterr().out


def test_following_sees_what_comes_later(run, capsys):
    run.write()
    late = run.folder / "out" / "chain" / "part-1"
    hidden = late.with_name(".part-1")
    late.rename(hidden)
    statuses = []
    follower = threading.Thread(target=lambda: statuses.append(follow(str(run.folder), 0.01)))
    follower.start()
    hidden.rename(late)
    (run.folder / "finished").touch()
    follower.join(60)
    assert statuses == [0]


# ------------------------------------------------------------------ the log and tables


def test_a_log_is_the_same_again_and_its_event_times_go_up_by_blocks(tmp_path):
    for name in ("x", "y"):
        writer = LogWriter(tmp_path / name, PLAN)
        writer.append(3)
        writer.append(7)
        assert end_of(tmp_path / name) is None
        writer.close()
    counts = end_of(tmp_path / "x")
    assert counts == end_of(tmp_path / "y") == writer.counts
    assert counts == {0: 250, 1: 250, 100: 50}
    for source, count in counts.items():
        records = read_records(tmp_path / "x", source, 0, 10**6)
        assert len(records) == count
        assert (records == read_records(tmp_path / "y", source, 0, 10**6)).all()
        assert (np.diff(records["event_ms"] // 50) >= 0).all()
        assert records["event_ms"].max() < 500
    other = Plan(a_sources=2, b_sources=1, keys=30, rate=1000, seed=8)
    assert (other.block(0)[0] != PLAN.block(0)[0]).any()


def test_a_torn_record_is_not_there_yet(tmp_path):
    writer = LogWriter(tmp_path, PLAN)
    writer.append()
    whole = read_records(tmp_path, 0, 0, 1000)
    with (tmp_path / "log" / "0.log").open("ab") as file:
        file.write(b"torn")
    assert len(read_records(tmp_path, 0, 0, 1000)) == len(whole) == 25
    assert len(read_records(tmp_path, 0, 20, 3)) == 3
    assert len(read_records(tmp_path, 0, 25, 3)) == 0
    assert len(read_records(tmp_path, 9, 0, 3)) == 0
    writer.close()


def test_a_tables_rows_are_seen_once_also_where_numbers_come_late(tmp_path):
    import sqlite3

    url = f"sqlite:///{tmp_path}/t.db"
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    table = Table(url, "t", ["v"])
    rng = np.random.default_rng(5)
    order = np.argsort(np.arange(200) + rng.integers(0, 30, 200)) + 1
    seen = []
    for ids in np.array_split(order, 20):
        for one in ids.tolist():
            if one % 17:
                connection.execute("INSERT INTO t VALUES (?, ?)", (one, one * 10))
        seen += table.read_on()["v"].tolist()
    assert table.read_on()["v"].tolist() == []
    assert sorted(seen) == [one * 10 for one in range(1, 201) if one % 17]
    connection.close()
