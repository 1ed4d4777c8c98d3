"""Rows that dead jobs have left staged in a database: which there are, and how to remove them. Does not know the user's table.

Source: what `SqlSink` keeps in `penstock_staged` and `penstock_commits`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.sql.engine import import_sqlalchemy, make_engine, shown_url, transaction
from penstock.connectors.sql.errors import error_of, told
from penstock.connectors.sql.staged import begun_ms, commits_table, staged_table
from penstock.engine.model.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlalchemy as sa

_WHERE: Final = "transactions of SQL"
_NAMES_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class StagedTransaction:
    """Staged rows of one subtask. `checkpoint_id` None: they were prepared for none, or at the end of a job without.

    `began_ms`: epoch ms; None: its name does not tell. `is_committed`: its rows are in the table, only the staging is left.
    """

    transaction_id: str
    job: str
    subtask: int
    checkpoint_id: int | None
    pieces: int
    began_ms: int | None
    is_committed: bool


class StagedRows:
    """What is staged in one database. A connection is opened for each call."""

    def __init__(
        self,
        url: str,
        schema: str | None = None,
        names: tuple[str, str] = ("penstock_staged", "penstock_commits"),
    ) -> None:
        """`names`: of the sink's own tables. Raises: ConfigurationError: SQLAlchemy or the driver is missing."""
        self._sa = import_sqlalchemy(_WHERE)
        self._engine: sa.Engine = make_engine(url, {}, _WHERE)
        metadata = self._sa.MetaData(schema=schema)
        self._staged = staged_table(self._sa, names[0], metadata)
        self._commits = commits_table(self._sa, names[1], metadata)

    @property
    def shown_url(self) -> str:
        """The URL without passwords."""
        return shown_url(self._engine)

    def transactions(self, prefix: str) -> list[StagedTransaction]:
        """Those of jobs whose name among staged rows begins with the prefix, in the order in which they began.

        Raises: ConfigurationError: no sink has ever written there. ExternalError: the database does not answer.
        """
        sql, staged, commits = self._sa, self._staged, self._commits
        columns = (staged.c.transaction_id, staged.c.job, staged.c.subtask, staged.c.checkpoint_id)
        query = (
            sql
            .select(*columns, sql.func.count(), commits.c.transaction_id.is_not(None))
            .select_from(
                staged.outerjoin(commits, staged.c.transaction_id == commits.c.transaction_id)
            )
            .where(staged.c.job.startswith(prefix, autoescape=True))
            .group_by(*columns, commits.c.transaction_id)
        )
        with self._errors("list"), transaction(self._engine) as connection:
            if not sql.inspect(connection).has_table(staged.name, staged.schema):
                raise ConfigurationError(
                    f"{_WHERE}: there is no table {staged.fullname!r} in {self.shown_url}: no "
                    "SqlSink has written there. Check the URL, --schema and --own-tables."
                )
            rows: Sequence[Any] = connection.execute(query).all()
        found = [
            StagedTransaction(
                str(name),
                str(job),
                int(subtask),
                checkpoint,
                int(pieces),
                begun_ms(name),
                bool(is_there),
            )
            for name, job, subtask, checkpoint, pieces, is_there in rows
        ]
        return sorted(found, key=lambda one: (one.began_ms or 0, one.transaction_id))

    def remove(self, transaction_ids: Sequence[str]) -> None:
        """Delete their staged rows, all or none. Raises: ExternalError."""
        staged = self._staged
        with self._errors("remove"), transaction(self._engine) as connection:
            for begin in range(0, len(transaction_ids), _NAMES_AT_ONCE):
                some = transaction_ids[begin : begin + _NAMES_AT_ONCE]
                connection.execute(staged.delete().where(staged.c.transaction_id.in_(some)))

    @contextmanager
    def _errors(self, what: str) -> Generator[None]:
        try:
            yield
        except self._sa.exc.SQLAlchemyError as error:
            text = f"{_WHERE}: cannot {what} staged rows in {self.shown_url}: {told(error)}."
            raise error_of(text, error) from error
