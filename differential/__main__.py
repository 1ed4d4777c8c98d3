"""`python -m differential [--programs N] [--first SEED] [--root DIR]`: random programs on PyFlink and on Penstock.

Makes PyFlink's environment on first use. Prints each difference that no rule of `explained` has, with its program, and
ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.environments import OURS, python_of, variables
from differential.explained import rule_for
from differential.generator import Program, program
from differential.outcomes import Difference, difference

SIDE = Path(__file__).with_name("program_side.py")
PACKAGES = {"flink": "pyflink", OURS: "penstock"}
GROUP = 6
"""So many programs are one job: a job of PyFlink takes seconds to start."""
LIMIT_S = 1200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument(
        "--root", type=Path, default=Path("build") / "peers", help="of PyFlink's environment"
    )
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for group in groups(args.first, args.programs):
        for found in differences(group, args.root.resolve()):
            rule = rule_for(found) if found.is_any else None
            counts["equal" if not found.is_any else rule.name if rule else "UNEXPLAINED"] += 1
            if found.is_any and rule is None:
                print(found.text(), flush=True)
        print(dict(counts), file=sys.stderr, flush=True)
    print(", ".join(f"{name}: {count}" for name, count in counts.most_common()))
    return 1 if counts["UNEXPLAINED"] else 0


def groups(first: int, count: int) -> Iterator[list[Program]]:
    """Programs of one mode and one way of chaining stand together."""
    waiting: dict[tuple[bool, bool], list[Program]] = {}
    for seed in range(first, first + count):
        made = program(seed)
        group = waiting.setdefault((made.is_batch, made.has_chains), [])
        group.append(made)
        if len(group) == GROUP:
            yield waiting.pop((made.is_batch, made.has_chains))
    yield from waiting.values()


def differences(group: Sequence[Program], root: Path) -> Iterator[Difference]:
    """Run a group on both. If its job fails on either, its programs run one by one."""
    found = {peer: outcomes(peer, group, root) for peer in PACKAGES}
    if len(group) > 1 and any("error" in one for one in found.values()):
        for single in group:
            yield from differences([single], root)
        return
    for made in group:
        yield difference(made, *(lines_of(found[peer], made) for peer in PACKAGES))


def lines_of(outcome: dict[str, object], made: Program) -> list[str]:
    lines = outcome.get("lines")
    if isinstance(lines, dict):
        return list(lines[str(made.seed)])
    return [f"FAILED {str(outcome['error']).strip().splitlines()[-1]}"]


def outcomes(peer: str, group: Sequence[Program], root: Path) -> dict[str, object]:
    """The answer of `program_side` for one group."""
    folder = root / "differential"
    folder.mkdir(parents=True, exist_ok=True)
    asked, answers = folder / "programs", folder / f"results-{peer}"
    answers.unlink(missing_ok=True)
    first = group[0]
    told = {
        "number": first.seed,
        "is_batch": first.is_batch,
        "has_chains": first.has_chains,
        "programs": [(one.seed, one.text) for one in group],
    }
    asked.write_text(json.dumps(told) + "\n", "utf-8")
    python = python_of(peer, root)
    environment = variables(python)
    environment["PATH"] = f"{Path(python).parent}:{environment['PATH']}"
    done = subprocess.run(
        [python, SIDE, PACKAGES[peer], asked, answers],
        env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    if not answers.exists():
        return {"error": f"no answer, exit code {done.returncode}: {done.stderr[-2000:]}"}
    answer: dict[str, object] = json.loads(answers.read_text("utf-8"))
    return answer


if __name__ == "__main__":
    sys.exit(main())
