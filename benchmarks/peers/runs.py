"""Who runs what on how much: the table of the comparison."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.environments import OURS
from benchmarks.peers.programs.checks import WORKLOADS

SECTION_OF = {workload: f"peers: {workload}" for workload in WORKLOADS}
"""Of RESULTS.md."""


@dataclass(frozen=True)
class Peer:
    """`program`: a module of `programs`. `environment`: see `environments`. `check_mode`: of a peer whose sink drops all, for
    one run beside those that are timed, which gives final values.
    """

    name: str
    program: str
    environment: str
    mode: str = ""
    check_mode: str | None = None


@dataclass(frozen=True)
class Contest:
    """Ours against peers that do the same. `kind`: updates (one row for each record) or final (values at the end of the input).
    `peers`: and the size of their data, which is what they get through in seconds.
    """

    workload: str
    kind: str
    form: str
    ours: Peer
    size: str
    peers: tuple[tuple[Peer, str], ...]

    @property
    def name(self) -> str:
        kind = "every update" if self.kind == "updates" else "final values"
        given = "text" if self.workload == "word_count" else self.form
        return f"{self.workload}, {self.ours.name}, {given}, {kind}"

    @property
    def check(self) -> str:
        """Which of the expected results."""
        return f"{self.workload} {self.kind}"

    def entrants(self) -> Iterator[tuple[Peer, str]]:
        yield self.ours, self.size
        yield from self.peers


ROWS = Peer("rows", "penstock_rows", OURS)
ROWS_BATCH = Peer("rows in BATCH", "penstock_rows", OURS, "batch")
COLUMNS = Peer("columns", "penstock_columns", OURS)
COLUMNS_BATCH = Peer("columns in BATCH", "penstock_columns", OURS, "batch")
BYTEWAX = Peer("Bytewax", "bytewax_peer", "bytewax")
PATHWAY = Peer("Pathway", "pathway_peer", "pathway")
PYFLINK = Peer("PyFlink process", "pyflink_peer", "flink", "process")
PYFLINK_THREAD = Peer("PyFlink thread", "pyflink_peer", "flink", "thread")
FLINK_SQL = Peer("Flink SQL", "flink_sql_peer", "flink", check_mode="check")
SPARK = Peer("Spark batch", "spark_peer", "spark")

CONTESTS = (
    Contest(
        "word_count", "updates", "json", ROWS, "large",
        ((BYTEWAX, "small"), (PYFLINK, "small"), (PYFLINK_THREAD, "small"), (FLINK_SQL, "large")),
    ),
    Contest(
        "word_count", "final", "json", ROWS_BATCH, "large", ((BYTEWAX, "small"), (PATHWAY, "small"))
    ),
    Contest(
        "word_count", "final", "json", COLUMNS_BATCH, "large", ((SPARK, "large"), (FLINK_SQL, "large"))
    ),
    Contest(
        "keyed_state", "updates", "json", ROWS, "large",
        ((BYTEWAX, "small"), (PYFLINK, "small"), (PYFLINK_THREAD, "small"), (PATHWAY, "small")),
    ),
    Contest(
        "q1", "updates", "json", ROWS, "large",
        ((BYTEWAX, "large"), (PYFLINK, "small"), (PYFLINK_THREAD, "small"), (PATHWAY, "small")),
    ),
    Contest("q1", "updates", "json", COLUMNS, "large", ((FLINK_SQL, "large"),)),
    Contest("q1", "updates", "parquet", COLUMNS, "large", ((SPARK, "large"),)),
    Contest("q1", "updates", "parquet", COLUMNS_BATCH, "large", ((SPARK, "large"),)),
    Contest(
        "q5", "final", "json", ROWS, "large",
        ((BYTEWAX, "tiny"), (PYFLINK, "tiny"), (PYFLINK_THREAD, "tiny"), (PATHWAY, "small")),
    ),
    Contest("q5", "final", "json", COLUMNS, "large", ((FLINK_SQL, "large"),)),
    Contest("q5", "final", "parquet", COLUMNS, "large", ((SPARK, "large"),)),
    Contest("q5", "final", "parquet", COLUMNS_BATCH, "large", ((SPARK, "large"),)),
)  # fmt: skip
