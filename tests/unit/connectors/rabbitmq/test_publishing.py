"""A RMQSink that writes to exchanges of a real RabbitMQ server: where messages arrive, with which properties, and what comes back."""

import uuid

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.rabbitmq import RMQMessageProperties, RMQSink, RMQSinkPublishOptions
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from tests.tools.brokers.rabbit_queues import (
    config_builder,
    connected,
    drained,
    rows_of,
    texts_in,
    writing,
)


@pytest.fixture
def exchange(rabbitmq):
    """Makes an exchange of a kind, with queues bound to it: keys or tables of headers by queue."""
    made = []

    def make(kind, **bound):
        name = f"tests-{kind}-{uuid.uuid4()}"
        with connected(rabbitmq) as channel:
            channel.exchange_declare(name, kind, durable=True)
            for queue, by in bound.items():
                channel.queue_declare(f"{name}-{queue}", durable=True)
                key, table = (by, None) if isinstance(by, str) else ("", by)
                channel.queue_bind(f"{name}-{queue}", name, key, table)
        made.append((name, bound))
        return name

    yield make
    with connected(rabbitmq) as channel:
        for name, bound in made:
            channel.exchange_delete(name)
            for queue in bound:
                channel.queue_delete(f"{name}-{queue}")


class Computed(RMQSinkPublishOptions):
    """From functions of a record."""

    def __init__(self, exchange="", **computed):
        super().__init__(exchange)
        self.computed = computed

    def _of(self, name, value, default):
        return self.computed[name](value) if name in self.computed else default

    def compute_exchange(self, value):
        return self._of("where", value, self.exchange)

    def compute_routing_key(self, value):
        return self._of("key", value, "")

    def compute_properties(self, value):
        return self._of("properties", value, None)

    def compute_mandatory(self, value):
        return self._of("mandatory", value, False)

    def compute_immediate(self, value):
        return self._of("immediate", value, False)


def sink(rabbitmq, options, **more):
    config = config_builder(rabbitmq).build()
    return RMQSink(config, None, SimpleStringSchema(), publish_options=options, **more)


def write(rabbitmq, options, *words, **more):
    made = sink(rabbitmq, options, **more)
    made.validate()
    with writing(made) as writer:
        writer.write(rows_of(*words), 0)
        assert writer.prepare_commit() == ()


def arrived(rabbitmq, exchange, *queues):
    return [texts_in(rabbitmq, f"{exchange}-{queue}") for queue in queues]


def test_a_direct_exchange_gets_the_key_of_each_record(rabbitmq, exchange):
    name = exchange("direct", paid="paid", open="open")
    options = Computed(name, key=lambda word: "paid" if word.startswith("p") else "open")
    write(rabbitmq, options, "p1", "o1", "p2")
    assert arrived(rabbitmq, name, "paid", "open") == [["p1", "p2"], ["o1"]]


def test_a_fixed_exchange_and_key_need_no_class(rabbitmq, exchange):
    name = exchange("direct", paid="paid", open="open")
    write(rabbitmq, RMQSinkPublishOptions(name, "open"), "a", "b")
    assert arrived(rabbitmq, name, "paid", "open") == [[], ["a", "b"]]


def test_a_topic_exchange_matches_the_key(rabbitmq, exchange):
    name = exchange("topic", eu="eu.#", orders="*.orders")
    write(rabbitmq, Computed(name, key=lambda word: word), "eu.orders", "us.orders", "eu.a.b", "x")
    assert arrived(rabbitmq, name, "eu", "orders") == [
        ["eu.orders", "eu.a.b"],
        ["eu.orders", "us.orders"],
    ]


def test_a_fanout_exchange_sends_to_all(rabbitmq, exchange):
    name = exchange("fanout", one="", two="no matter")
    write(rabbitmq, RMQSinkPublishOptions(name, "any"), "a", "b")
    assert arrived(rabbitmq, name, "one", "two") == [["a", "b"], ["a", "b"]]


def test_a_headers_exchange_gets_the_headers_of_each_record(rabbitmq, exchange):
    name = exchange(
        "headers",
        all={"x-match": "all", "kind": "a", "size": 1},
        any={"x-match": "any", "kind": "b", "size": 1},
    )
    options = Computed(
        name,
        properties=lambda word: RMQMessageProperties(
            headers={"kind": word[0], "size": int(word[1])}
        ),
    )
    write(rabbitmq, options, "a1", "b2", "a2")
    assert arrived(rabbitmq, name, "all", "any") == [["a1"], ["a1", "b2"]]


def test_properties_of_a_record_arrive(rabbitmq, exchange):
    name = exchange("fanout", q="")
    given = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"trace": b"\x01", "retries": 3, "is_last": True, "tags": ["a", None]},
        "delivery_mode": 1,
        "priority": 4,
        "correlation_id": "c",
        "reply_to": "answers",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "order",
        "user_id": "guest",
        "app_id": "tests",
    }
    by_word = {"full": RMQMessageProperties(**given), "bare": None}
    write(rabbitmq, Computed(name, properties=by_word.__getitem__), "full", "bare")
    (_, full), (_, bare) = drained(rabbitmq, f"{name}-q")
    assert {one: getattr(full, one) for one in given} == given
    assert (bare.delivery_mode, bare.headers, bare.content_type) == (2, None, None)


def test_the_exchange_may_depend_on_the_record(rabbitmq, exchange):
    names = {"a": exchange("fanout", q=""), "b": exchange("fanout", q="")}
    write(rabbitmq, Computed(where=names.__getitem__), *"abba")
    assert [arrived(rabbitmq, names[one], "q") for one in "ab"] == [[["a", "a"]], [["b", "b"]]]


def test_what_no_queue_takes_comes_back_before_the_barrier_if_it_is_mandatory(rabbitmq, exchange):
    name = exchange("direct", known="known")
    options = Computed(name, key=lambda word: word, mandatory=lambda word: word != "dropped")
    returned = []
    write(rabbitmq, options, "known", "lost", "dropped", return_listener=returned.append)
    assert arrived(rabbitmq, name, "known") == [["known"]]
    ((code, text, where, key, body),) = [
        (one.reply_code, one.reply_text, one.exchange, one.routing_key, one.body)
        for one in returned
    ]
    assert (code, text, where, key, body) == (312, "NO_ROUTE", name, "lost", b"lost")


def test_a_mandatory_message_that_comes_back_to_nobody_is_an_error(rabbitmq, exchange):
    name = exchange("direct")
    with pytest.raises(ExternalError, match="no queue for a mandatory.*routing key 'lost'.*Bind"):
        write(rabbitmq, RMQSinkPublishOptions(name, "lost", mandatory=True), "a")


def test_headers_that_just_fit_into_a_frame_arrive(rabbitmq, exchange):
    """A frame of 131,072 bytes: 8 and 12 around the properties, 2 flags, 4 + 2 + 5 of table and header, the delivery mode."""
    name = exchange("fanout", q="")
    text = "x" * (131_072 - 20 - 2 - 11 - 1)
    options = Computed(name, properties=lambda _: RMQMessageProperties(headers={"h": text}))
    write(rabbitmq, options, "a")
    ((_, properties),) = drained(rabbitmq, f"{name}-q")
    assert properties.headers == {"h": text}


def test_a_message_that_the_broker_would_refuse_again_ends_the_job(rabbitmq, exchange):
    name = exchange("fanout", q="")
    options = Computed(name, properties=lambda _: RMQMessageProperties(user_id="another"))
    with pytest.raises(RefusedForGood, match="closed the channel: PRECONDITION_FAILED - user_id"):
        write(rabbitmq, options, "a")


def test_an_exchange_that_nobody_may_write_to_ends_the_job(rabbitmq):
    with pytest.raises(RefusedForGood, match=r"ACCESS_REFUSED - .*internal exchange.*\(403\)\.$"):
        write(rabbitmq, RMQSinkPublishOptions("amq.rabbitmq.trace", "a"), "a")


def test_an_exchange_that_is_not_there_is_told_at_submit_or_when_it_is_needed(rabbitmq):
    with pytest.raises(ConfigurationError, match="no exchange 'nowhere'.*Declare it before"):
        sink(rabbitmq, RMQSinkPublishOptions("nowhere")).validate()
    with pytest.raises(ExternalError, match="has closed the channel: .*no exchange 'nowhere'"):
        write(rabbitmq, Computed(where=lambda _: "nowhere"), "a")


@pytest.mark.parametrize(
    ("computed", "kind", "text"),
    [
        ({"immediate": lambda _: True}, ConfigurationError, "refuses immediate messages"),
        ({"key": lambda _: "k" * 256}, ConfigurationError, "up to 255 bytes as routing key"),
        ({"where": lambda _: None}, ConfigurationError, "as exchange, got None"),
        ({"properties": lambda _: {"priority": 1}}, TypeError, "gave dict for 'a'"),
        (
            {"properties": lambda _: RMQMessageProperties(headers={"b": 1, "a": 1.5})},
            TypeError,
            "no such properties of 'a': header 'a' is 1.5, a float.*as Decimal or text",
        ),
        (
            {"properties": lambda _: RMQMessageProperties(priority=300)},
            TypeError,
            "no such properties of 'a': error.*255.*priority=300",
        ),
        (
            {"properties": lambda _: RMQMessageProperties(headers={"a": "x" * 131_072})},
            ValueError,
            "properties of 'a' have 1310.. bytes.*one frame of AMQP takes 131052",
        ),
        (
            {"properties": lambda _: RMQMessageProperties(expiration="soon")},
            ConfigurationError,
            "whole number of ms as a text.*got 'soon'",
        ),
        (
            {"properties": lambda _: RMQMessageProperties(delivery_mode=0)},
            ConfigurationError,
            "as delivery_mode, got 0",
        ),
    ],
)
def test_what_amqp_cannot_carry_is_told_with_the_record(own_amqp, computed, kind, text):
    with writing(sink(own_amqp, Computed(**computed))) as writer, pytest.raises(kind, match=text):
        writer.write(rows_of("a"), 0)


def test_a_queue_and_options_exclude_each_other(own_amqp):
    config, schema = config_builder(own_amqp).build(), SimpleStringSchema()
    options = RMQSinkPublishOptions("e")
    with pytest.raises(ConfigurationError, match="and so does queue_name 'q'"):
        RMQSink(config, "q", schema, publish_options=options)
    with pytest.raises(ConfigurationError, match="expected the name of a queue"):
        RMQSink(config, None, schema)
    with pytest.raises(ConfigurationError, match="there are no publish_options"):
        RMQSink(config, "q", schema, return_listener=print)
    with pytest.raises(TypeError, match="expected RMQSinkPublishOptions"):
        RMQSink(config, None, schema, publish_options="e")
