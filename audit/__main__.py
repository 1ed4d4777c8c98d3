"""`python -m audit`: the audited job on Spark under faults. Ends with 1 when the auditor or a process found anything wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from audit.controller import CHECKPOINTS, AuditFailed, Controller, Options
from audit.faults import FAULTS

RATE = 15_500
"""With the tenth of b records: more than 10 million in ten minutes."""
INTERVAL_MS = 2000
PARALLELISMS = (2, 3)


def main() -> int:
    defaults = Options(Path())
    parser = argparse.ArgumentParser(prog="python -m audit", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=defaults.seconds, help="how long records come"
    )
    parser.add_argument(
        "--seed", type=int, default=defaults.seed, help="decides records and faults"
    )
    parser.add_argument("--rate", type=int, default=RATE, help="a records a second")
    parser.add_argument(
        "--parallelisms", type=int, nargs="+", default=PARALLELISMS, help="the first to begin with"
    )
    parser.add_argument("--interval-ms", type=int, default=INTERVAL_MS, help="between checkpoints")
    parser.add_argument("--master", default=defaults.master, help="Spark's")
    parser.add_argument(
        "--url", help="SQLAlchemy's, of an empty database; by default a SQLite file"
    )
    parser.add_argument(
        "--checkpoints", choices=CHECKPOINTS, default=defaults.checkpoints, help="of which kind"
    )
    parser.add_argument(
        "--faults", nargs="*", choices=sorted(FAULTS), help="only these; none: no faults"
    )
    parser.add_argument(
        "--every", type=float, default=defaults.every_s, help="seconds from fault to fault"
    )
    parser.add_argument("--keep", type=Path, help="a new directory for all files, which stays")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="penstock-audit-")) / "run"
    options = Options(
        folder=folder, seconds=args.seconds, seed=args.seed, rate=args.rate,
        parallelisms=tuple(args.parallelisms), interval_ms=args.interval_ms, master=args.master, url=args.url,
        checkpoints=args.checkpoints, every_s=args.every,
        faults=defaults.faults if args.faults is None else tuple(args.faults),
    )  # fmt: skip
    controller = Controller(options)
    try:
        report = controller.run()
    except AuditFailed as error:
        print(f"AUDIT FAILED: {error}", file=sys.stderr)
        return 1
    print(report.text())
    if args.keep is None:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
