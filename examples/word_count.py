"""Word count: which words are most frequent in a set of text files.

    python examples/word_count.py [--input PATH ...] [--repeat N] [--parallelism N] [--top N]

Without --input it reads the licence and notice texts that come with PySpark, 200 times over.
It prints the most frequent words as `<count><tab><word>`, and the totals as the last line.
"""

import argparse
import importlib.metadata
import re
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.engine.runtime.elements import Batch, RowBatch


def words_with_one(line: str) -> list[tuple[str, int]]:
    """Every word of a line, to be counted once."""
    return [(word, 1) for word in line.lower().split()]


def word_of(pair: tuple[str, int]) -> str:
    return pair[0]


def add(first: tuple[str, int], second: tuple[str, int]) -> tuple[str, int]:
    """Two counts of one word."""
    return first[0], first[1] + second[1]


class FinalCounts(Sink):
    """Keeps each word's last running count; `totals` has them when the job has ended."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return FinalCountsWriter()

    def create_committer(self) -> Committer:
        return FinalCountsCommitter(self.totals)


class FinalCountsWriter:
    """In one subtask, for the words that it counts."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def write(self, batch: Batch, watermark_ms: int) -> None:
        assert isinstance(batch, RowBatch)
        self.counts.update(batch.values)

    def prepare_commit(self) -> Sequence[object]:
        return [self.counts]

    def close(self) -> None:
        self.counts = {}


class FinalCountsCommitter(Committer):
    """In the driver, when all subtasks are done."""

    def __init__(self, totals: dict[str, int]) -> None:
        self.totals = totals

    def commit(self, committables: Sequence[object]) -> None:
        for counts in committables:
            assert isinstance(counts, dict)
            self.totals.update(counts)

    def abort(self, job_prefix: str) -> None:
        """Nothing to do: failed attempts leave nothing behind."""


def licence_texts() -> list[str]:
    """The licence and notice texts inside the installed pyspark package."""
    found = {
        str(path)
        for file in importlib.metadata.files("pyspark") or ()
        if re.match(r"pyspark/.*(licen[cs]e|notice)", str(file), re.IGNORECASE)
        and (path := Path(str(file.locate()))).is_file()
    }
    if not found:
        raise SystemExit("pyspark's licence texts are not there; give --input PATH")
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", nargs="+", metavar="PATH", help="files, directories or globs")
    parser.add_argument("--repeat", type=int, help="read the input this often (default: 200 or 1)")
    parser.add_argument("--parallelism", type=int, default=2, help="subtasks per operator (2)")
    parser.add_argument("--top", type=int, default=20, help="how many words to print")
    arguments = parser.parse_args()
    paths = arguments.input or licence_texts()
    repeat = arguments.repeat or (1 if arguments.input else 200)

    configuration = Configuration()
    configuration.set_string("penstock.console.progress", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(arguments.parallelism)
    source = (
        FileSource
        .for_record_stream_format(StreamFormat.text_line_format(), *paths)
        .repeat(repeat)
        .build()
    )
    final_counts = FinalCounts()
    (
        env
        .from_source(source, WatermarkStrategy.no_watermarks(), "Text")
        .flat_map(words_with_one)
        .name("Tokenizer")
        .key_by(word_of)
        .reduce(add)
        .name("Running count")
        .sink_to(final_counts)
        .name("Final counts")
    )
    started = time.monotonic()
    env.execute("Word count")
    seconds = time.monotonic() - started

    counts = final_counts.totals
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[
        : arguments.top
    ]:
        print(f"{count}\t{word}")
    print(f"TOTAL words={sum(counts.values())} distinct={len(counts)} seconds={seconds:.1f}")


if __name__ == "__main__":
    main()
