"""`python flink_job.py FOLDER`: a small job of true PyFlink, which Flink archives into the folder."""

from __future__ import annotations

import sys

from pyflink.common import Configuration, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


def main(folder: str) -> None:
    settings = Configuration()
    settings.set_string("jobmanager.archive.fs.dir", f"file://{folder}")
    settings.set_string("execution.checkpointing.interval", "100 ms")
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    numbers = NumberSequenceSource(0, 999)
    env.from_source(numbers, WatermarkStrategy.no_watermarks(), "Numbers").print()
    env.execute("archived by Flink")


if __name__ == "__main__":
    main(sys.argv[1])
