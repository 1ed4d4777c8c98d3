"""What the audited job must put out, record by record in plain Python: a second opinion on the auditor's arithmetic."""

import json
import sqlite3
from collections import defaultdict
from pathlib import Path

from audit.checks import MILESTONES, PAIRS, SLOTS
from audit.event_log import B_FIRST, RECORD, LogWriter, Plan, path_of
from audit.expected import PAIR_MS, SLOT_MS, WINDOW_MS

PLAN = Plan(a_sources=2, b_sources=1, keys=30, rate=1000, seed=7)
TABLES = {"windows": SLOTS, "pairs": PAIRS, "milestones": MILESTONES}


def records_of(folder, plan):
    """(source, sequence, key, value, event_ms) in the order of event time, sources one after the other in a block."""
    import numpy as np

    every = []
    for source in plan.sources():
        data = np.fromfile(path_of(folder, source), RECORD)
        every += [(source, i, *map(int, record)) for i, record in enumerate(data)]
    return sorted(every, key=lambda record: (record[4] // 50, record[0], record[1]))


def outputs_of(records):
    """Rows of each output, in an order that a right job may have."""
    last = defaultdict(lambda: (0, 0))
    chain, a_seen, b_seen = [], [], []
    timers, windows = defaultdict(lambda: (0, 0)), defaultdict(lambda: (0, 0))
    for source, sequence, key, value, event_ms in records:
        version, total = last[key]
        last[key] = (version + 1, total + value)
        chain.append((key, version + 1, source, sequence, total + value))
        if source >= B_FIRST:
            b_seen.append((source, sequence, key, event_ms))
            continue
        a_seen.append((source, sequence, key, event_ms))
        for slots, length in ((timers, SLOT_MS), (windows, WINDOW_MS)):
            end = (event_ms // length + 1) * length
            slots[key, end] = (slots[key, end][0] + 1, slots[key, end][1] + value)
    pairs = [
        (a[0], a[1], b[0], b[1])
        for a in a_seen
        for b in b_seen
        if a[2] == b[2] and abs(a[3] - b[3]) <= PAIR_MS
    ]
    return {
        "chain": chain,
        "timers": [(*place, *sums) for place, sums in timers.items()],
        "windows": [(*place, *sums) for place, sums in windows.items()],
        "pairs": pairs,
        "milestones": [(row[0], row[1], row[4]) for row in chain if row[1] % 20 == 0],
    }


class Run:
    """A directory as a run leaves it, made by hand."""

    def __init__(self, folder, blocks=40):
        self.folder = Path(folder)
        writer = LogWriter(folder, PLAN)
        writer.append(blocks)
        writer.close()
        self.url = f"sqlite:///{folder}/run.db"
        told = {"sources": PLAN.sources(), "url": self.url}
        (self.folder / "audit.json").write_text(json.dumps(told))
        self.outputs = outputs_of(records_of(folder, PLAN))

    def write(self, parts=3):
        for name in ("chain", "timers"):
            out = self.folder / "out" / name
            out.mkdir(parents=True)
            rows = self.outputs[name]
            for part in range(parts):
                # Files hold what different subtasks wrote: rows of different keys.
                lines = [",".join(map(str, row)) for row in rows if row[0] % parts == part]
                (out / f"part-{part}").write_text("".join(f"{line}\n" for line in lines))
        connection = sqlite3.connect(self.folder / "run.db")
        for name, columns in TABLES.items():
            names = ", ".join(columns)
            connection.execute(
                f"CREATE TABLE {name} (id INTEGER PRIMARY KEY AUTOINCREMENT, {names})"
            )
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f"INSERT INTO {name} ({names}) VALUES ({marks})", self.outputs[name]
            )
        connection.commit()
        connection.close()
