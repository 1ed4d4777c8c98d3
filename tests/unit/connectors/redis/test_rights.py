"""Users of a real server that may do only what a job does, and less."""

import pytest
import redis

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.redis import RedisStreamSink, RedisStreamSource
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.played_by_hand import all_values, run_source, writer_context

READS = ("+xread", "+xinfo", "+multi", "+exec", "+client")
APPENDS = ("+xadd", "+client")
COMMITS = ("+xadd", "+client", "+evalsha", "+script", "+exists", "+set")


@pytest.fixture
def user(redis_url):
    """Makes a user of these rights; gives the name."""
    made = []
    with redis.Redis.from_url(redis_url) as client:

        def make(*rights, keys="~*"):
            made.append(f"user{len(made)}")
            client.execute_command("ACL", "SETUSER", made[-1], "on", ">pw", keys, *rights)
            return made[-1]

        yield make
        for name in made:
            client.acl_deluser(name)


def source(url, name):
    made = RedisStreamSource.builder().set_url(url).set_credentials(name, "pw").set_bounded()
    return made.set_streams("in").set_value_deserializer(SimpleStringSchema()).build()


def sink(url, name, guarantee=DeliveryGuarantee.AT_LEAST_ONCE):
    made = RedisStreamSink.builder().set_url(url).set_credentials(name, "pw").set_stream("out")
    made.set_delivery_guarantee(guarantee)
    return made.set_value_serializer(SimpleStringSchema()).build()


def test_who_may_read_reads(redis_url, user):
    with redis.Redis.from_url(redis_url) as client:
        client.xadd("in", {"value": "a"})
    made = source(redis_url, user(*READS))
    made.validate()
    assert all_values(run_source(made, max_polls=10**6)) == ["a"]


@pytest.mark.parametrize(
    "guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE]
)
def test_who_may_append_appends(redis_url, user, guarantee):
    is_once = guarantee is DeliveryGuarantee.EXACTLY_ONCE
    made = sink(redis_url, user(*(COMMITS if is_once else APPENDS)), guarantee)
    made.validate()
    writer = made.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    if is_once:
        committer = made.create_committer()
        committer.commit(writer.prepare_checkpoint(1))
        committer.close()
    writer.close()
    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("out") == 1


def test_a_key_that_is_not_the_users_is_told_at_submit(redis_url, user):
    name = user("+@all", keys="~others:*")
    with pytest.raises(
        ConfigurationError, match="(?i)no permissions to access (one of the keys|a key)"
    ):
        sink(redis_url, name).validate()
    with pytest.raises(
        ConfigurationError, match="(?i)no permissions to access (one of the keys|a key)"
    ):
        source(redis_url, name).validate()


def test_a_command_that_the_user_may_not_run_ends_the_job(redis_url, user):
    writer = sink(redis_url, user("+client")).create_writer(writer_context())
    with pytest.raises(RefusedForGood, match="no permissions to run the 'xadd' command"):
        writer.write(RowBatch(["a"]), 0)
    writer.close()
