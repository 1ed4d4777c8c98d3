"""python -m benchmarks [NAME ...] [--events N] [--runs K] [--write]

Prints one JSON line per figure to stdout; --write also writes their sections of
benchmarks/RESULTS.md.
"""

import argparse

from benchmarks.measures import (
    archives,
    batch,
    dashboard,
    dataframes,
    exchange,
    fan_out,
    fast_paths,
    flat_memory,
    fleet,
    kafka,
    latency,
    metrics,
    object_stores,
    observation,
    operators,
    protection,
    q5,
    scaling,
    scheduler,
    slow_consumer,
    sql_sink,
    startup,
    word_count,
)
from benchmarks.measures.functions import json_fields, json_lines, row_functions
from benchmarks.measures.state import checkpoints, large_state, recovery, rescale
from benchmarks.peers.runs import SECTION_OF
from benchmarks.report import ON_SPARK, Section, write_results

BENCHMARKS = {
    "word_count": word_count.measure,
    "q5": q5.measure,
    "exchange": exchange.measure,
    "protection": protection.measure,
    "operators": operators.measure,
    "fast_paths": fast_paths.measure,
    "row_functions": row_functions.measure,
    "json_fields": json_fields.measure,
    "json_lines": json_lines.measure,
    "startup": startup.measure,
    "latency": latency.measure,
    "scheduler": scheduler.measure,
    "flat_memory": flat_memory.measure,
    "slow_consumer": slow_consumer.measure,
    "fan_out": fan_out.measure,
    "metrics": metrics.measure,
    "observation": observation.measure,
    "fleet": fleet.measure,
    "dashboard": dashboard.measure,
    "archives": archives.measure,
    "object_stores": object_stores.measure,
    "kafka": kafka.measure,
    "checkpoints": checkpoints.measure,
    "large_state": large_state.measure,
    "whole_state": large_state.measure_whole,
    "recovery": recovery.measure,
    "rescale": rescale.measure,
    "scaling": scaling.measure,
    "dataframes": dataframes.measure,
    "batch": batch.measure,
    "sql_sink": sql_sink.measure,
}
ABOUT = {  # the others are described by `ON_SPARK`
    "protection": protection.ABOUT,
    "fast_paths": fast_paths.ABOUT,
    "row_functions": row_functions.ABOUT,
    "json_fields": json_fields.ABOUT,
    "json_lines": json_lines.ABOUT,
    "scheduler": scheduler.ABOUT,
    "flat_memory": flat_memory.ABOUT,
    "slow_consumer": slow_consumer.ABOUT,
    "fan_out": fan_out.ABOUT,
    "metrics": metrics.ABOUT,
    "observation": observation.ABOUT,
    "fleet": fleet.ABOUT,
    "dashboard": dashboard.ABOUT,
    "archives": archives.ABOUT,
    "object_stores": object_stores.ABOUT,
    "kafka": kafka.ABOUT,
    "checkpoints": checkpoints.ABOUT,
    "large_state": large_state.ABOUT,
    "whole_state": large_state.ABOUT_WHOLE,
    "recovery": recovery.ABOUT,
    "rescale": rescale.ABOUT,
    "scaling": scaling.ABOUT,
    "dataframes": dataframes.ABOUT,
    "batch": batch.ABOUT,
    "sql_sink": sql_sink.ABOUT,
}
WITHOUT_SPARK = frozenset({
    "fast_paths",
    "row_functions",
    "json_fields",
    "json_lines",
    "scheduler",
    "slow_consumer",
    "fan_out",
    "protection",
    "metrics",
    "observation",
    "fleet",
    "dashboard",
    "archives",
    "sql_sink",
    "object_stores",
    "kafka",
})
OWN_SPARK = frozenset({"rescale", "scaling"})
LEAST_RUNS = 3
LEAST_EVENTS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--events", type=int, help="words of word_count, events of q5, ...")
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

    names = list(dict.fromkeys(arguments.names)) or list(BENCHMARKS)
    if set(names) - WITHOUT_SPARK - OWN_SPARK:
        startup.first_row_and_end()  # starts Spark and its first Python workers
    sections: list[Section] = []
    for name in names:
        figures = BENCHMARKS[name](arguments.events, arguments.runs)
        for figure in figures:
            print(figure.json_line(), flush=True)
        sections.append(Section(name, figures, ABOUT.get(name, ON_SPARK)))
    if arguments.write:
        write_results(sections, arguments.runs, [*SECTION_OF.values(), *BENCHMARKS])


if __name__ == "__main__":
    main()
