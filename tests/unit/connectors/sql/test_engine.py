"""Transactions that the database gives up for the sake of others, on real servers."""

import pytest

from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ExternalError
from tests.tools.connectors.sql_tables import Db, context, put
from tests.unit.connectors.conftest import empty_database

pytestmark = pytest.mark.server

_ROLLS_BACK = {
    "postgresql": (
        (
            "CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
            "IF nextval('tries') < 3 "
            "THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF; RETURN NEW; END$$"
        ),
        "CREATE TRIGGER t BEFORE INSERT ON counts FOR EACH ROW EXECUTE FUNCTION once()",
    ),
    "mariadb": (
        (
            "CREATE TRIGGER t BEFORE INSERT ON counts FOR EACH ROW IF nextval(tries) < 3 THEN "
            "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'deadlock'; END IF"
        ),
    ),
}


@pytest.mark.parametrize("kind", list(_ROLLS_BACK))
def test_rows_that_a_deadlock_has_rolled_back_are_written_again(request, kind, tmp_path):
    """Two subtasks that replace the same keys in another order each."""
    db = Db(empty_database(request, kind, tmp_path))
    db.run("CREATE SEQUENCE tries")
    for statement in _ROLLS_BACK[kind]:
        with db.engine.begin() as connection:
            connection.exec_driver_sql(statement)
    settings = {"set_delivery_guarantee": DeliveryGuarantee.AT_LEAST_ONCE}
    writer = db.sink(**settings, set_max_retries=1).create_writer(context())
    put(writer, ("a", 1))
    with pytest.raises(ExternalError, match="deadlock"):
        writer.prepare_commit()
    db.run("ALTER SEQUENCE tries RESTART WITH 1")
    writer = db.sink(**settings).create_writer(context())
    put(writer, ("a", 1))
    writer.prepare_commit()
    assert db.rows() == [("a", 1)]
