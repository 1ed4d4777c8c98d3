"""python -m benchmarks.peers [WORKLOAD ...] [--runs K] [--size NAME] [--root DIR] [--write]

Runs word count, keyed state, Nexmark q1 and q5 in Penstock and in PyFlink, Flink SQL, Spark, Bytewax and Pathway, in turns, on the same
data, and compares the results with what numpy counts. Makes the peers' environments and the data on first use, under --root.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.peers.data import SIZES, prepared
from benchmarks.peers.environments import OURS, python_of, variables
from benchmarks.peers.programs.checks import WORKLOADS
from benchmarks.peers.runs import CONTESTS, SECTION_OF, Contest, Peer
from benchmarks.report import Section, write_results

ABOUT = """\
Ours and peers in turns, each in processes of its own, parallelism 2, on the same files. Every row is one of ours beside one peer that
emits the same: every update, or final values only; ratio above 1: ours is quicker. Seconds are from the first record read to the last
one written; of Spark and of ours in BATCH the whole query, in a session that has run it on little data; of Pathway the whole query; of
Flink SQL the job's net run time.
Sizes differ, for some peers would take minutes; all results are compared with those that numpy counts (Flink SQL's in a run of its
own, for its timed runs end in the blackhole sink). Settings of each peer stand in its program, in benchmarks/peers/programs."""
LIMIT_S = 300.0
_ROOT = Path("build") / "peers"


@dataclass(frozen=True)
class Comparison:
    """One call of this program. `root`: of environments and data. `size` None: what the table says."""

    root: Path
    size: str | None
    runs: int

    def figures(self, contest: Contest) -> list[Figure]:
        rates: dict[str, list[float]] = defaultdict(list)
        for number in range(self.runs):
            for peer, size in contest.entrants():
                rates[peer.name].append(self._rate(contest, peer, self.size or size, number))
        return [
            Figure(
                contest.name,
                rates[contest.ours.name],
                "records/s",
                rates[peer.name],
                {
                    "peer": peer.name,
                    "records": self._records(contest, self.size or contest.size),
                    "of the peer": self._records(contest, self.size or size),
                },
                "peer",
            )
            for peer, size in contest.peers
        ]

    def _rate(self, contest: Contest, peer: Peer, size: str, number: int) -> float:
        """Records per second. Ends the program when the result is not the expected one."""
        data, expected = prepared(self.root / "data", size)
        told = self._told(contest, peer, data, peer.mode)
        if told["rows"] is not None:
            _compare(contest, peer, told, expected.checks[contest.check])
        elif number == 0:
            assert peer.check_mode is not None, f"{peer.name} drops its results"
            final = expected.checks.get(f"{contest.workload} final", expected.checks[contest.check])
            _compare(contest, peer, self._told(contest, peer, data, peer.check_mode), final)
        rate = self._records(contest, size) / told["seconds"]
        line = {"contest": contest.name, "peer": peer.name, "size": size, "records/s": round(rate)}
        print(json.dumps(line | told), flush=True)
        return rate

    def _told(self, contest: Contest, peer: Peer, data: Path, mode: str) -> dict[str, Any]:
        python = python_of(peer.environment, self.root / "environments")
        warm, _ = prepared(self.root / "data", "tiny")
        options = ["--data", str(data), "--warm", str(warm)]
        options += ["--form", contest.form, "--kind", contest.kind]
        options += ["--mode", mode] if mode else []
        if peer.environment == OURS:
            program = ["-m", f"benchmarks.peers.programs.{peer.program}"]
        else:
            program = [str(Path(__file__).parent / "programs" / f"{peer.program}.py")]
        done = subprocess.run(
            [python, *program, contest.workload, *options],
            env=variables(python),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if done.returncode or not results:
            raise SystemExit(f"{peer.name} failed in {contest.name}:\n{done.stderr[-4000:]}")
        told: dict[str, Any] = json.loads(results[-1].removeprefix("RESULT "))
        return told

    def _records(self, contest: Contest, size: str) -> int:
        _, expected = prepared(self.root / "data", size)
        return expected.words if contest.workload == "word_count" else expected.bids


def _compare(contest: Contest, peer: Peer, told: dict[str, Any], expected: tuple[int, int]) -> None:
    rows, total = expected
    is_one_row_a_key = peer.name == "Pathway" and contest.workload == "keyed_state"
    if (told["rows"] != rows and not is_one_row_a_key) or told["sum"] != total:
        raise SystemExit(
            f"{peer.name} in {contest.name}: expected {rows} rows with the sum {total}, got {told['rows']} with {told['sum']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument(
        "workloads", nargs="*", metavar="workload", help=f"of {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--size", choices=list(SIZES), help="the same for all, for a first try")
    parser.add_argument("--root", type=Path, default=_ROOT, help="of environments and data")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no workload {sorted(unknown)}; there are {', '.join(WORKLOADS)}")
    comparison = Comparison(arguments.root.absolute(), arguments.size, arguments.runs)
    for workload in arguments.workloads or WORKLOADS:
        figures = [
            figure
            for contest in CONTESTS
            if contest.workload == workload
            for figure in comparison.figures(contest)
        ]
        for figure in figures:
            print(figure.json_line(), flush=True)
        if arguments.write:
            section = Section(SECTION_OF[workload], figures, ABOUT, "benchmarks.peers")
            write_results([section], arguments.runs, list(SECTION_OF.values()))


if __name__ == "__main__":
    sys.exit(main())
