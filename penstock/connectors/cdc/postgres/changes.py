"""From messages of pgoutput to changes: which tables they are of, which of them the snapshot has seen, which row was before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.options import ChangelogMode
from penstock.connectors.cdc.postgres.columns import ValueReader
from penstock.connectors.cdc.postgres.pgoutput import (
    Begin,
    Delete,
    Insert,
    Relation,
    Texts,
    Toast,
    Truncate,
    Update,
)
from penstock.connectors.cdc.postgres.snapshot import key_of
from penstock.connectors.cdc.records import Change, SeenChanges, TableReading
from penstock.connectors.cdc.tables import Piece, TableId, TableShape


@dataclass(frozen=True, slots=True)
class Mapped:
    """A relation of the WAL as one of our tables. `places`: of our columns in it; -1: it does not have the column."""

    shape: TableShape
    places: tuple[int, ...]
    values: ValueReader

    def texts(self, sent: Texts) -> Texts:
        """The row's values in the order of our columns."""
        return [None if place < 0 else sent[place] for place in self.places]


class ChangeReader(SeenChanges):
    """Reads the changes of transactions, in order."""

    def __init__(self, reading: TableReading, pieces: Sequence[Piece]) -> None:
        """As of `SeenChanges`."""
        super().__init__(reading, pieces)
        self._keeps_before = self.settings.mode is ChangelogMode.ALL
        self._relations: dict[int, Mapped | None] = {}
        self._transaction = Begin(0, 0, 0)

    @property
    def _mark(self) -> tuple[int, int]:
        return self._transaction.xid, self._transaction.final_lsn

    def reconnect(self) -> None:
        """Another connection describes its relations anew."""
        self._relations.clear()

    def begin(self, begin: Begin) -> None:
        self._transaction = begin
        self._pass(self._mark)

    def relation(self, relation: Relation) -> None:
        """Note how a table looks from here on. Raises: RefusedForGood: a column was dropped, renamed or changed."""
        table = TableId(relation.schema, relation.name)
        shape = self._shapes.get(table)
        if shape is None:
            self._relations[relation.oid] = None
            return
        places = {column.name: place for place, column in enumerate(relation.columns)}
        for column in shape.columns:
            self._check_column(shape, column.name, column.oid, relation, places)
        self._warn_of_new(shape, places)
        found = tuple(places.get(name, -1) for name in shape.names)
        self._relations[relation.oid] = Mapped(shape, found, ValueReader(shape, self._where))

    def changes(self, message: Insert | Update | Delete | Truncate) -> list[Change]:
        """The changes that the snapshot has not seen; of a key that changes, a deletion and an insertion."""
        if isinstance(message, Truncate):
            for oid in message.oids:
                self._truncate(self._relations.get(oid))
            return []
        mapped = self._relations.get(message.oid)
        if mapped is None:
            return []
        if isinstance(message, Insert):
            new = mapped.texts(message.new)
            return [] if self._has_seen(mapped, new) else [self._change("c", mapped, None, new)]
        if isinstance(message, Delete):
            old = mapped.texts(message.old)
            return self._deleted(mapped, old, is_full=message.is_full)
        return self._update(mapped, message)

    def _deleted(self, mapped: Mapped, old: Texts, *, is_full: bool) -> list[Change]:
        if self._has_seen(mapped, old):
            return []
        self._check_before(mapped, is_full=is_full)
        return [self._change("d", mapped, old, None)]

    def _update(self, mapped: Mapped, message: Update) -> list[Change]:
        new = mapped.texts(message.new)
        old = None if message.old is None else mapped.texts(message.old)
        if Toast.UNCHANGED in new:
            if self._has_seen_all(mapped, [new] if old is None else [old, new]):
                return []
            new = self._with_kept(mapped, new, old if message.is_full else None)
        if old is not None and key_of(old, mapped.shape) != key_of(new, mapped.shape):
            made = self._deleted(mapped, old, is_full=message.is_full)
            if not self._has_seen(mapped, new):
                made.append(self._change("c", mapped, None, new))
            return made
        if self._has_seen(mapped, new):
            return []
        self._check_before(mapped, is_full=message.is_full)
        return [self._change("u", mapped, old if message.is_full else None, new)]

    def _check_before(self, mapped: Mapped, *, is_full: bool) -> None:
        if self._keeps_before and not is_full:
            raise RefusedForGood(
                f"{self._where}: the WAL has a change of {mapped.shape.table} without the row "
                "before it. ALTER TABLE ... REPLICA IDENTITY FULL, also of its partitions, and "
                "begin anew with a snapshot."
            )

    def _with_kept(self, mapped: Mapped, new: Texts, old: Texts | None) -> Texts:
        """The row with the values that were not sent, which a full row before it has."""
        if old is not None:
            return [
                kept if value is Toast.UNCHANGED else value
                for value, kept in zip(new, old, strict=True)
            ]
        name = mapped.shape.names[new.index(Toast.UNCHANGED)]
        raise RefusedForGood(
            f"{self._where}: an update of {mapped.shape.table} leaves the column {name!r} as it "
            "is, and PostgreSQL does not write long values that did not change (TOAST) into the "
            "WAL. ALTER TABLE ... REPLICA IDENTITY FULL, and begin anew with a snapshot."
        )

    def _has_seen_all(self, mapped: Mapped, rows: Sequence[Texts]) -> bool:
        """Whether the snapshot has the change already. Rows whose key was not sent are not known."""
        key = mapped.shape.key
        return all(
            all(row[place] is not Toast.UNCHANGED for place in key) and self._has_seen(mapped, row)
            for row in rows
        )

    def _has_seen(self, mapped: Mapped, texts: Texts) -> bool:
        return self._covers(mapped.shape.table, key_of(texts, mapped.shape), self._mark)

    def _change(self, op: str, mapped: Mapped, old: Texts | None, new: Texts | None) -> Change:
        return mapped.values.change(op, old, new, self._transaction.time_us // 1000)

    def _truncate(self, mapped: Mapped | None) -> None:
        if mapped is not None:
            self._check_truncated(mapped.shape.table, self._mark, "was truncated")

    def _check_column(
        self, shape: TableShape, name: str, oid: int, relation: Relation, places: dict[str, int]
    ) -> None:
        place = places.get(name)
        is_old = self._transaction.final_lsn < self._reflected
        if place is None:
            if is_old:
                return  # the column was added later, and is NULL until then
            raise RefusedForGood(
                f"{self._where}: the column {name!r} of {shape.table} was dropped or renamed. Stop "
                "the job with a savepoint, and submit it again from there."
            )
        if relation.columns[place].type_oid != oid and not is_old:
            raise RefusedForGood(
                f"{self._where}: the type of the column {name!r} of {shape.table} has changed. "
                "Stop the job with a savepoint, and submit it again from there."
            )
