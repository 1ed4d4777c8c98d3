"""`python -m audit`: the audited job on Spark under faults.

Ends with 1 when the auditor or a process found anything wrong. Ends with 2 when nothing was wrong, but there were
too few faults to show anything.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from audit.controller import CHECKPOINTS, LINKS, AuditFailed, Controller, Options
from audit.faults import FAULTS
from audit.verdict import FAULTS_MIN, PER_MINUTE_MIN, Minimum

RATE = 15_500
"""With the tenth of b records: more than 10 million in ten minutes."""
INTERVAL_MS = 2000
PARALLELISMS = (2, 3)
FAILED, INCONCLUSIVE = 1, 2


def main() -> int:
    args = parsed()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="penstock-audit-")) / "run"
    defaults = Options(folder)
    faults = defaults.faults if args.faults is None else tuple(args.faults)
    options = Options(
        folder=folder, seconds=args.seconds, seed=args.seed, rate=args.rate, master=args.master,
        parallelisms=tuple(args.parallelisms), interval_ms=args.interval_ms, url=args.url,
        checkpoints=args.checkpoints, links=args.links, every_s=args.every, faults=faults,
        minimum=minimum_of(args, faults),
    )  # fmt: skip
    try:
        report = Controller(options).run()
    except AuditFailed as error:
        print(f"AUDIT FAILED: {error}", file=sys.stderr)
        return FAILED
    print(report.text())
    if args.keep is None:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return INCONCLUSIVE if report.missing else 0


def minimum_of(args: argparse.Namespace, faults: tuple[str, ...]) -> Minimum:
    """The usual one of such a run, but for what was asked for."""
    usual = Minimum.usual(args.seconds, faults)
    return Minimum(
        usual.faults if args.least_faults is None else args.least_faults,
        usual.per_minute if args.least_per_minute is None else args.least_per_minute,
        usual.kinds if args.least_kinds is None else args.least_kinds,
    )


def parsed() -> argparse.Namespace:
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
        "--links", choices=LINKS, default=defaults.links, help="between TaskManagers"
    )
    parser.add_argument(
        "--faults", nargs="*", choices=sorted(FAULTS), help="only these; none: no faults"
    )
    parser.add_argument(
        "--every", type=float, default=defaults.every_s, help="seconds from fault to fault"
    )
    parser.add_argument("--keep", type=Path, help="a new directory for all files, which stays")
    parser.add_argument(
        "--least-faults", type=int, help=f"fewer show nothing; usually {FAULTS_MIN}"
    )
    parser.add_argument(
        "--least-per-minute", type=float, help=f"fewer show nothing; usually {PER_MINUTE_MIN}"
    )
    parser.add_argument(
        "--least-kinds",
        type=int,
        help="fewer show nothing; usually half of the faults needed, at most those dealt",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
