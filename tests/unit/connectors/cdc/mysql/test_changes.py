"""Statements of the binlog with which rows of a table go or come without row events."""

import pytest

from penstock.connectors.api.base import RefusedForGood
from tests.tools.connectors.changelogs import streaming, told


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders TRUNCATE PARTITION p0",
        "alter table `shop` . `orders` drop partition if exists p0",
        "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE other",
        "ALTER TABLE /* it */ shop.orders CONVERT PARTITION p0 TO TABLE gone",
    ],
)
def test_rows_that_go_with_a_partition_end_the_job_as_a_truncated_table_does(database, statement):
    columns = "(id int PRIMARY KEY, name varchar(100))"
    database.execute(
        f"CREATE TABLE orders {columns} PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        f"CREATE TABLE other {columns}",
        "INSERT INTO orders VALUES (1, 'a'), (20, 'b')",
    )
    with streaming(database.builder().build(), 2) as run:
        database.execute("ALTER TABLE orders COMMENT 'DROP PARTITION p0'", statement)
        with pytest.raises(RefusedForGood, match=r"shop\.orders.*(?i:partition).*ignore_truncate"):
            run.read(records=3)


@pytest.mark.parametrize(
    ("statements", "does"),
    [
        (["DROP TABLE orders"], "dropped"),
        (["CREATE TABLE other (id int)", "DROP TABLE IF EXISTS other, `shop`.orders"], "dropped"),
        (["CREATE OR REPLACE TABLE orders (id int PRIMARY KEY, name varchar(100))"], "dropped"),
        (["RENAME TABLE orders TO former"], "renamed"),
        (["ALTER TABLE shop.orders RENAME TO former"], "renamed"),
    ],
)
def test_a_table_that_is_gone_ends_the_job_as_a_truncated_one_does(orders, statements, does):
    with streaming(orders.builder().build(), 3) as run:
        orders.execute(*statements)
        with pytest.raises(RefusedForGood, match=rf"shop\.orders was {does}, by.*ignore_truncate"):
            run.read(records=4)


def test_a_copy_that_takes_the_place_of_a_table_goes_on(orders):
    """So do the tools that change a table's schema in the background. Other tables may go, and columns may be renamed."""
    with streaming(orders.builder().build(), 3) as run:
        orders.execute(
            "CREATE TABLE copied LIKE orders",
            "INSERT INTO copied SELECT * FROM orders",
            "RENAME TABLE orders TO former, copied TO orders",
            "DROP TABLE former",
            "ALTER TABLE orders COMMENT 'orders RENAME TO x'",
            "INSERT INTO orders VALUES (4, 'd')",
        )
        run.read(records=4)
    assert told(run.records[3:]) == [("+I", 4, "d")]


def test_partitions_of_other_tables_are_theirs_and_ours_may_be_gone_over(orders):
    ranges = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))"
    orders.execute(
        f"CREATE TABLE other (id int PRIMARY KEY, name varchar(100)) {ranges}",
    )
    with streaming(orders.builder().build(), 3) as run:
        orders.execute(
            "ALTER TABLE other TRUNCATE PARTITION p0", "INSERT INTO orders VALUES (4, 'd')"
        )
        run.read(records=4)
        orders.execute("ALTER TABLE other EXCHANGE PARTITION p0 WITH TABLE orders")
        with pytest.raises(RefusedForGood, match=r"shop\.orders.*ignore_truncate"):
            run.read(records=5)
    with streaming(orders.builder("other").ignore_truncate().build(), 4) as run:
        orders.execute(
            "ALTER TABLE other TRUNCATE PARTITION p0", "INSERT INTO other VALUES (5, 'e')"
        )
        run.read(records=5)
    assert told(run.records[4:]) == [("+I", 5, "e")]
