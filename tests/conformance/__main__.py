"""`python -m tests.conformance FILE.json [--area AREA] [--json]`: one line per failing case, then
the sum."""

import argparse
import json
import sys
from collections import Counter

from tests.conformance.driver import Verdict, load, run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("file")
    parser.add_argument("--area")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    outcomes = run(load(options.file), options.area)
    counts = Counter(outcome.verdict for outcome in outcomes)
    if options.json:
        print(
            json.dumps({
                "passed": counts[Verdict.PASSED],
                "failed": counts[Verdict.FAILED],
                "not_covered": counts[Verdict.NOT_COVERED],
                "cases": [
                    {"id": o.case_id, "area": o.area, "verdict": str(o.verdict), "text": o.text}
                    for o in outcomes
                ],
            })
        )
    else:
        for outcome in outcomes:
            if outcome.verdict is Verdict.FAILED:
                print(f"{outcome.case_id}: {outcome.text}")
        print(
            f"{counts[Verdict.PASSED]} passed, {counts[Verdict.FAILED]} failed, "
            f"{counts[Verdict.NOT_COVERED]} not covered"
        )
    return 1 if counts[Verdict.FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
