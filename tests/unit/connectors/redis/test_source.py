"""RedisStreamSource on a real server."""

import itertools

import pytest
import redis

from penstock.common import Row, Types
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.api.base import Boundedness
from penstock.connectors.redis import RedisStreamSource
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.played_by_hand import run_source
from tests.tools.small_servers import free_port, redis_server
from tests.tools.waiting import wait_until

WORDS = [f"word {number}" for number in range(12)]
ORDER = Types.ROW_NAMED(
    ["id", "name", "price", "paid", "raw"],
    [
        Types.LONG(),
        Types.STRING(),
        Types.DOUBLE(),
        Types.BOOLEAN(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ],
)


def builder(url, *streams):
    made = RedisStreamSource.builder().set_url(url).set_streams(*(streams or ("words",)))
    return made.set_value_deserializer(SimpleStringSchema())


def add(url, *words, stream="words", first=1):
    with redis.Redis.from_url(url) as client:
        for number, word in enumerate(words, first):
            client.xadd(stream, {"value": word}, id=f"{number}-0")


def values(batches):
    return [value for batch in batches for value in batch.values]


@pytest.mark.parametrize("is_bounded", [True, False])
def test_every_restart_and_rescale_reads_each_entry_once(redis_url, is_bounded):
    numbers = itertools.count()

    def make():
        streams = [f"s{next(numbers)}" for _ in range(2)]
        for place, stream in enumerate(streams):
            add(redis_url, *WORDS[place::2], stream=stream)
        made = builder(redis_url, *streams)
        return made.set_bounded().build() if is_bounded else made.build()

    report = check_source(make, WORDS, parallelisms=(1, 2), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_a_bounded_source_ends_where_the_stream_ended_when_it_began(redis_url):
    add(redis_url, "a", "b")
    source = builder(redis_url).set_bounded().build()
    assert source.boundedness is Boundedness.BOUNDED
    (batches,) = run_source(source)
    assert values(batches) == ["a", "b"]
    assert [list(one.timestamps) for one in batches] == [[1, 2]]


def test_a_bounded_source_of_streams_that_are_not_there_or_emptied_ends(redis_url):
    add(redis_url, "a", "b")
    with redis.Redis.from_url(redis_url) as client:
        client.xtrim("words", maxlen=0, approximate=False)
    assert run_source(builder(redis_url, "words", "nobody").set_bounded().build()) == [[]]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (lambda made: made.set_starting_id("2-0"), ["c", "d"]),
        (lambda made: made.set_starting_id("2"), ["c", "d"]),
        (lambda made: made.set_starting_timestamp(2), ["b", "c", "d"]),
        (lambda made: made.set_starting_timestamp(0), ["a", "b", "c", "d"]),
    ],
)
def test_it_begins_where_it_is_told(redis_url, setting, expected):
    add(redis_url, "a", "b", "c", "d")
    (batches,) = run_source(setting(builder(redis_url)).set_bounded().build())
    assert values(batches) == expected


def test_latest_is_what_comes_after_the_start_also_after_a_failure(redis_url):
    add(redis_url, "a", "b")
    run = SourceRun(builder(redis_url).set_starting_latest().build(), 1)
    add(redis_url, "c", first=3)
    run.read(records=1)
    kept = run.checkpoint(1)
    run.complete(1)
    add(redis_url, "d", first=4)
    run.read(records=2)
    run.fail(0, kept)
    run.read(records=2)
    run.look_on()
    run.close()
    assert run.records == ["c", "d"]


def test_a_stream_that_is_added_to_the_program_is_read_and_one_that_is_left_out_is_not(redis_url):
    add(redis_url, "a")
    add(redis_url, "x", stream="more")
    run = SourceRun(builder(redis_url, "words").build(), 1)
    run.read(records=1)
    kept = run.checkpoint(1)
    run.close()
    add(redis_url, "b", first=2)
    run = SourceRun(builder(redis_url, "more").build(), 1, kept)
    run.read(records=1)
    run.look_on()
    run.close()
    assert run.records == ["x"]


def test_more_entries_than_a_batch_has_come_in_order(redis_url):
    with redis.Redis.from_url(redis_url) as client, client.pipeline(transaction=False) as pipeline:
        for number in range(2500):
            pipeline.xadd("words", {"value": str(number)})
        pipeline.execute()
    (batches,) = run_source(builder(redis_url).set_bounded().build())
    assert values(batches) == [str(number) for number in range(2500)]
    assert len(batches) == 3


def test_fields_become_columns_of_a_row_by_their_types(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.xadd(
            "orders",
            {"id": 7, "name": "wörd", "price": "1.5", "paid": "true", "raw": b"\xff", "x": 1},
        )
        client.xadd("orders", {"id": 8})
    made = RedisStreamSource.builder().set_url(redis_url).set_streams("orders").set_row_type(ORDER)
    (batches,) = run_source(made.set_bounded().build())
    assert values(batches) == [
        Row(id=7, name="wörd", price=1.5, paid=True, raw=b"\xff"),
        Row(id=8, name=None, price=None, paid=None, raw=None),
    ]


def test_entries_that_cannot_be_read_are_marked_and_say_where_they_are(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.xadd("orders", {"id": "seven"}, id="1-0")
        client.xadd("orders", {"id": "1"}, id="2-0")
        client.xadd("orders", {"id": str(1 << 63)}, id="3-0")
        client.xadd("orders", {"paid": "maybe"}, id="4-0")
    made = RedisStreamSource.builder().set_url(redis_url).set_streams("orders").set_row_type(ORDER)
    run = SourceRun(made.set_bounded().build(), 1)
    with pytest.raises(ValueError, match=r"the entry 1-0 of 'orders' cannot be read.*'id'.*seven"):
        run.read(records=1)
    run.close()


def test_an_entry_without_the_field_is_marked_and_the_others_are_read(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.xadd("words", {"value": "a"}, id="1-0")
        client.xadd("words", {"other": "b"}, id="2-0")
        client.xadd("words", {"value": "c"}, id="3-0")
    source = builder(redis_url).build()
    run = SourceRun(source, 1)
    with pytest.raises(ValueError, match="the entry 2-0 of 'words'.*no field 'value'"):
        run.read(records=3)
    run.close()
    reader = source.settings.entries
    batch = reader.batch([{b"value": b"a"}, {b"other": b"b"}], [1, 2], str)
    assert batch.values[0] == "a"
    assert isinstance(batch.values[1], Malformed)


class Odd(SimpleStringSchema):
    def deserialize(self, data):
        text = super().deserialize(data)
        return text if int(text) % 2 else None


def test_entries_that_give_no_record_move_the_position(redis_url):
    add(redis_url, "2", "4", "6")
    made = RedisStreamSource.builder().set_url(redis_url).set_streams("words")
    run = SourceRun(made.set_value_deserializer(Odd()).build(), 1)
    run.look_on()
    wait_until(lambda: run.look_on(1) or b"3-0" in run.checkpoint(1).readers[0][0], "it stays")
    run.close()


@pytest.mark.parametrize("is_emptied", [True, False])
def test_losses_in_the_middle_and_of_all_are_seen(redis_url, is_emptied):
    add(redis_url, "a", "b", "c")
    source = builder(redis_url).build()
    run = SourceRun(source, 1)
    run.read(records=3)
    kept = run.checkpoint(1)
    run.close()
    add(redis_url, "d", "e", first=4)
    with redis.Redis.from_url(redis_url) as client:
        if is_emptied:
            client.xtrim("words", maxlen=0, approximate=False)
        else:
            client.xdel("words", "4-0")
    run = SourceRun(source, 1, kept)
    with pytest.raises(RefusedForGood, match="after 3-0"):
        run.read(records=1)
    run.close()


def test_entries_deleted_where_nobody_reads_any_more_are_nobodys_loss(redis_url):
    """The position is counted from the beginning, from the end and from batch to batch."""
    with redis.Redis.from_url(redis_url) as client, client.pipeline(transaction=False) as pipeline:
        for number in range(1, 2501):
            pipeline.xadd("words", {"value": str(number)}, id=f"{number}-0")
        pipeline.xtrim("words", maxlen=2400, approximate=False)
        pipeline.execute()
        run = SourceRun(builder(redis_url).build(), 1)
        run.read(batches=1)
        client.xdel("words", "500-0")
        client.xtrim("words", maxlen=1400, approximate=False)
        run.read(records=2400)
        client.xtrim("words", maxlen=0, approximate=False)
        client.xadd("words", {"value": "x"}, id="2501-0")
        run.read(records=2401)
        run.close()
    assert run.records == [*(str(number) for number in range(101, 2501)), "x"]


@pytest.mark.parametrize("fails", [True, False])
def test_entries_that_are_trimmed_before_they_are_read_end_the_job_unless_it_may_miss_them(
    redis_url, fails, caplog
):
    add(redis_url, "a", "b")
    source = builder(redis_url).set_fail_on_missing_entries(fails).build()
    run = SourceRun(source, 1)
    run.read(records=2)
    kept = run.checkpoint(1)
    run.close()
    add(redis_url, "c", "d", "e", first=3)
    with redis.Redis.from_url(redis_url) as client:
        client.xtrim("words", maxlen=1, approximate=False)
    run = SourceRun(source, 1, kept)
    if fails:
        with pytest.raises(RefusedForGood, match="after 2-0, some of them up to 5-0.*trimmed"):
            run.read(records=1)
    else:
        run.read(records=1)
        assert run.records == ["e"]
        assert "continues without them" in caplog.text
    run.close()


def test_entries_that_are_trimmed_after_they_were_read_do_no_harm(redis_url):
    add(redis_url, "a", "b")
    run = SourceRun(builder(redis_url).build(), 1)
    run.read(records=2)
    with redis.Redis.from_url(redis_url) as client:
        client.xtrim("words", maxlen=0, approximate=False)
    add(redis_url, "c", first=3)
    run.read(records=3)
    run.close()
    assert run.records == ["a", "b", "c"]


@pytest.mark.server
def test_a_server_that_is_killed_and_comes_back_costs_no_entry():
    with redis_server() as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        add(url, *WORDS[:6])
        run = SourceRun(builder(url).build(), 1)
        run.read(records=6)
        server.kill()
        server.start()
        add(url, *WORDS[6:], first=7)
        run.read(records=12)
        run.close()
        assert run.records == WORDS


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: made.set_url("localhost:6379"), "expected redis://"),
        (lambda made: made.set_url("redis://u:geheim/@host"), "password as %2F"),
        (lambda made: made.set_streams("a", "a"), "twice"),
        (lambda made: made.set_streams(""), "not empty"),
        (lambda made: made.set_starting_id("$"), "1526919030474-55"),
        (lambda made: made.set_starting_timestamp(-1), "0 or more"),
        (lambda made: made.set_row_type(Types.STRING()), "ROW_NAMED"),
        (
            lambda made: made.set_row_type(Types.ROW_NAMED(["a"], [Types.LIST(Types.INT())])),
            "'a' has the type",
        ),
        (lambda made: made.build(), "set_url.*is missing"),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigurationError, match=text) as told:
        make(RedisStreamSource.builder())
    assert "geheim" not in str(told.value)


def test_a_key_that_is_no_stream_is_refused_at_submit(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("words", "x")
    with pytest.raises(ConfigurationError, match="'words'.*is a string, expected a stream"):
        builder(redis_url).build().validate()


@pytest.mark.server
def test_a_wrong_password_is_refused_at_submit_and_shown_nowhere():
    with redis_server("--requirepass", "right") as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        made = builder(url).set_credentials(None, "wrong-secret").build()
        with pytest.raises(ConfigurationError, match="refuses the connection") as told:
            made.validate()
        assert "wrong-secret" not in f"{told.value} {made!r}"
        builder(url).set_credentials(None, "right").build().validate()
        made = builder(url.replace("//", "//default:wrong-secret@")).build()
        with pytest.raises(ConfigurationError) as told:
            made.validate()
        assert "wrong-secret" not in f"{told.value} {made!r} {made.settings!r}"


def test_a_server_that_the_driver_does_not_reach_is_no_error_at_submit():
    builder(f"redis://127.0.0.1:{free_port()}/0").build().validate()
