"""python -m benchmarks [word_count] [q5] [startup] [latency] [--events N] [--runs K] [--write]

Prints one JSON line per figure to stdout; --write also writes benchmarks/RESULTS.md.
"""

import argparse

from benchmarks import latency, q5, startup, word_count
from benchmarks.figures import Figure
from benchmarks.report import write_results

BENCHMARKS = {
    "word_count": word_count.measure,
    "q5": q5.measure,
    "startup": startup.measure,
    "latency": latency.measure,
}
LEAST_RUNS = 3
LEAST_EVENTS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--events", type=int, help="words of word_count, events of q5")
    parser.add_argument("--runs", type=int, default=LEAST_RUNS, help="per figure, at least 3")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown}; there are {', '.join(BENCHMARKS)}")
    if arguments.runs < LEAST_RUNS:
        parser.error(f"--runs must be at least {LEAST_RUNS}, got {arguments.runs}")

    if arguments.events is not None and arguments.events < LEAST_EVENTS:
        parser.error(f"--events must be at least {LEAST_EVENTS}, got {arguments.events}")

    startup.first_row_and_end()  # starts Spark and its first Python workers
    figures: list[Figure] = []
    for name in arguments.names or BENCHMARKS:
        for figure in BENCHMARKS[name](arguments.events, arguments.runs):
            print(figure.json_line(), flush=True)
            figures.append(figure)
    if arguments.write:
        write_results(figures, arguments.runs)


if __name__ == "__main__":
    main()
