"""`python -m differential [--programs N] [--first SEED] [--root DIR]`: random programs on PyFlink and on Penstock.

Makes PyFlink's environment on first use. Prints each difference that no rule of `explained` has, with its program, and
ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import queue
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from benchmarks.peers.environments import OURS, python_of
from differential.explained import RULES
from differential.generator import Program, program
from differential.outcomes import Difference, difference
from differential.sides import HANGS, Side

PACKAGES = {"flink": "pyflink", OURS: "penstock"}
GROUP = 12
"""So many programs are one job: a job of PyFlink takes seconds."""
LIMIT_S, LIMIT_OF_PROGRAM_S = 60.0, 10.0
"""A job that takes longer than the first and so much for each program hangs."""
PATIENCE = 4
"""A single program that hangs gets so much more time, once: the machine may have had other work."""
EQUAL, EMPTY, UNEXPLAINED = "equal", "equal without a result", "UNEXPLAINED"
Pair = dict[str, Side]


def main() -> int:
    args = _arguments()
    root = args.root.resolve()
    python_of("flink", root)
    counts: Counter[str] = Counter()
    pairs = _pairs(root, args.workers)
    pool = ThreadPoolExecutor(args.workers)
    try:
        jobs = [pool.submit(_run, group, pairs) for group in groups(args.first, args.programs)]
        for job in as_completed(jobs):
            _count(job.result(), counts)
    finally:
        pool.shutdown(cancel_futures=True)
        while not pairs.empty():
            for side in pairs.get().values():
                side.close()
    told = ", ".join(f"{name}: {count}" for name, count in counts.most_common())
    print(f"seeds {args.first} to {args.first + args.programs - 1}: {told}")
    return 1 if counts[UNEXPLAINED] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--workers", type=int, default=2, help="so many jobs run at a time")
    parser.add_argument(
        "--root", type=Path, default=Path("build") / "peers", help="of PyFlink's environment"
    )
    return parser.parse_args()


def _pairs(root: Path, count: int) -> queue.SimpleQueue[Pair]:
    folder = root / "differential"
    folder.mkdir(parents=True, exist_ok=True)
    pairs: queue.SimpleQueue[Pair] = queue.SimpleQueue()
    for number in range(count):
        pairs.put({
            peer: Side(peer, package, root, folder / f"{peer}-{number}.log")
            for peer, package in PACKAGES.items()
        })
    return pairs


def _run(group: Sequence[Program], pairs: queue.SimpleQueue[Pair]) -> list[tuple[Difference, str]]:
    """The differences of a group, each with its kind."""
    pair = pairs.get()
    try:
        return [(found, kind(found, ours, pair)) for found, ours in differences(group, pair)]
    finally:
        pairs.put(pair)


def _count(found_in_group: Sequence[tuple[Difference, str]], counts: Counter[str]) -> None:
    for found, name in found_in_group:
        counts[name] += 1
        if name == UNEXPLAINED:
            print(found.text(), flush=True)
    print(dict(counts), file=sys.stderr, flush=True)


def groups(first: int, count: int) -> Iterator[list[Program]]:
    """Programs of one mode and one way of chaining stand together."""
    waiting: dict[tuple[bool, bool, bool], list[Program]] = {}
    for seed in range(first, first + count):
        made = program(seed)
        sort = made.is_batch, made.is_batch_on_flink, made.has_chains
        group = waiting.setdefault(sort, [])
        group.append(made)
        if len(group) == GROUP:
            yield waiting.pop(sort)
    yield from waiting.values()


def differences(group: Sequence[Program], pair: Pair) -> Iterator[tuple[Difference, Sequence[str]]]:
    """Run a group on both. If its job fails on either, its programs run one by one. With Penstock's lines."""
    limit = LIMIT_S + LIMIT_OF_PROGRAM_S * len(group)
    found = {peer: side.outcome(group, limit) for peer, side in pair.items()}
    if len(group) == 1:
        for peer, outcome in found.items():
            if outcome.get("error") == HANGS:
                found[peer] = pair[peer].outcome(group, PATIENCE * limit)
    elif any("error" in one for one in found.values()):
        for single in group:
            yield from differences([single], pair)
        return
    for made in group:
        theirs, ours = (lines_of(found[peer], made, peer) for peer in PACKAGES)
        yield difference(made, theirs, ours), ours


def kind(found: Difference, ours: Sequence[str], pair: Pair) -> str:
    """EQUAL, EMPTY, the name of the first rule that holds, or UNEXPLAINED.

    A rule holds if its program gives on PyFlink what the found one gives on Penstock.
    """
    if not found.is_any:
        return EQUAL if ours else EMPTY
    for rule in RULES:
        other = rule.rewritten(found.program)
        if other is None:
            continue
        outcome = pair["flink"].outcome([other], LIMIT_S)
        if not difference(other, lines_of(outcome, other, "flink"), ours).is_any:
            return rule.name
    return UNEXPLAINED


def lines_of(outcome: dict[str, object], made: Program, peer: str) -> list[str]:
    """An error is a line that no other peer can have: programs that fail on both differ."""
    lines = outcome.get("lines")
    if isinstance(lines, dict):
        return list(lines[str(made.seed)])
    error = str(outcome["error"]).strip()
    return [f"{HANGS} on {peer}" if error == HANGS else f"FAILED on {peer}: {error[-1000:]}"]


if __name__ == "__main__":
    sys.exit(main())
