"""Flink SQL, which runs no Python: JSON or text in, object reuse, no checkpoints. Mode `check` runs the same query in batch and sums it.

Without a mode results go to the blackhole sink, as Nexmark has it. Seconds: the job's net run time, which holds its deployment.
"""

import sys
import time

from checks import BASE_MS, Arguments, tell
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

BID = """CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT, extra STRING,
    rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - INTERVAL '4' SECOND)
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"""
LINES = "CREATE TABLE lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'raw')"
COUNTS = """SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""
QUERIES = {
    "word_count": (
        "word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED",
        "SELECT word, COUNT(*) AS n FROM lines, UNNEST(SPLIT(line, ' ')) AS parts(word) GROUP BY word",
        "n * n + n * CHAR_LENGTH(word)",
    ),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, ts BIGINT, extra STRING",
        "SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price AS price, ts, extra FROM bid",
        f"auction + 3 * bidder + 7 * CAST(ROUND(1000 * price, 0) AS BIGINT) + 11 * (ts - {BASE_MS}) + 13 * CHAR_LENGTH(extra)",
    ),
    "q5": (
        "auction BIGINT, num BIGINT, ending BIGINT",
        f"""SELECT A.auction, A.num, UNIX_TIMESTAMP(CAST(A.window_end AS STRING)) AS ending FROM ({COUNTS}) A JOIN
        (SELECT MAX(num) AS most, window_start, window_end FROM ({COUNTS}) C GROUP BY window_start, window_end) M
        ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.num = M.most""",
        f"3 * auction + 7 * num + 11 * (ending - {BASE_MS // 1000})",
    ),
}


def environment(arguments):
    configuration = Configuration()
    settings = {
        "parallelism.default": arguments.parallelism,
        "taskmanager.numberOfTaskSlots": arguments.parallelism,
        "taskmanager.memory.managed.size": "1g",
        "pipeline.object-reuse": "true",
        "rest.port": 0,
        "rest.bind-port": 0,
        "table.local-time-zone": "UTC",
        "python.executable": sys.executable,
    }
    for key, value in settings.items():
        configuration.set_string(key, str(value))
    chosen = EnvironmentSettings.new_instance().with_configuration(configuration)
    chosen = chosen.in_batch_mode() if arguments.mode == "check" else chosen.in_streaming_mode()
    return TableEnvironment.create(chosen.build())


def main():
    arguments = Arguments()
    columns, query, part = QUERIES[arguments.workload]
    tables = environment(arguments)
    source = LINES if arguments.workload == "word_count" else BID
    tables.execute_sql(source.format(path=arguments.input))
    started = time.time()
    if arguments.mode == "check":
        found = tables.execute_sql(f"SELECT COUNT(*), SUM({part}) FROM ({query})").collect()
        rows, total = next(iter(found))
        tell(time.time() - started, (rows, int(total)))
        return
    tables.execute_sql(f"CREATE TABLE dropped ({columns}) WITH ('connector' = 'blackhole')")
    result = tables.execute_sql(f"INSERT INTO dropped {query}")
    result.wait()
    done = result.get_job_client().get_job_execution_result().result()
    tell(done.get_net_runtime() / 1000, None)


if __name__ == "__main__":
    main()
