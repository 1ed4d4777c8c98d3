"""What a broker refuses for good, and what passes: of a real server, and of errors that come at one moment only."""

import struct
from datetime import UTC, datetime

import pika
import pytest

from penstock.connectors.rabbitmq.channel_thread import without_headers
from penstock.connectors.rabbitmq.client import refusal_of, text_of
from penstock.engine.model.errors import ExternalError, RefusedForGood
from tests.tools.brokers.rabbit_queues import connected, publish, reading, source_of

MS_OF_2023 = 1_700_000_000_000
"""As seconds: a year that Python does not know."""


class WithRawHeaders(pika.BasicProperties):
    """`raw`: the table of headers as bytes."""

    def __init__(self, raw, **more):
        super().__init__(headers={"": None}, **more)
        self.raw = raw

    def encode(self):
        pieces = super().encode()
        (place,) = [number for number, piece in enumerate(pieces) if piece == b"V"]
        # In front of the value: the size of the table, then size and bytes of the empty name.
        begin = max(number for number in range(place) if len(pieces[number]) == 4)
        return [*pieces[:begin], struct.pack(">L", len(self.raw)), self.raw, *pieces[place + 1 :]]


TOO_LATE = b"\x02atT" + struct.pack(">Q", MS_OF_2023)


@pytest.mark.parametrize(
    "others", [{}, {"content_type": "text/plain", "content_encoding": "utf-8"}]
)
def test_headers_that_python_cannot_hold_do_not_stop_a_source(rabbitmq, queue_name, others):
    with connected(rabbitmq) as channel:
        channel.queue_declare(queue_name, durable=True)
        properties = WithRawHeaders(TOO_LATE, correlation_id="1", **others)
        channel.basic_publish("", queue_name, b"odd", properties)
        plain = pika.BasicProperties(headers={"at": datetime.now(UTC)}, correlation_id="2")
        channel.basic_publish("", queue_name, b"plain", plain)
    with reading(source_of(rabbitmq, queue_name)) as task:
        assert task.read(2) == ["odd", "plain"]
        task.checkpoint(1)


def test_a_frame_without_headers_is_not_changed():
    assert without_headers(struct.pack(">HHQH", 60, 0, 1, 0)) is None


def test_an_exclusive_consumer_may_leave_but_a_reserved_name_stays(rabbitmq, queue_name):
    publish(rabbitmq, queue_name, "a")
    with connected(rabbitmq) as channel:
        channel.basic_consume(queue_name, print, exclusive=True)
        with reading(source_of(rabbitmq, queue_name)) as task:
            with pytest.raises(ExternalError, match="in exclusive use") as caught:
                task.read(1)
            assert not isinstance(caught.value, RefusedForGood)
    with (
        reading(source_of(rabbitmq, "amq.mine")) as task,
        pytest.raises(RefusedForGood, match=r"ACCESS_REFUSED - .*reserved prefix.*\(403\)\.$"),
    ):
        task.read(1)


def closed(code, text):
    return pika.exceptions.ConnectionClosedByBroker(code, text)


def test_a_limit_of_connections_and_a_broker_that_goes_while_somebody_logs_in_are_no_refusals():
    """pika takes every end at that point for a wrong password or virtual host."""
    limit = closed(530, "NOT_ALLOWED - access refused: connection limit (9) is reached")
    lost = pika.exceptions.StreamLostError("reset by peer")
    known = pika.exceptions
    for kind in (known.ProbableAccessDeniedError, known.ProbableAuthenticationError):
        assert refusal_of(kind(repr(lost))) is None
        assert refusal_of(kind(repr(limit))) is None
        assert text_of(kind(repr(limit))).endswith("is reached (530)")


def test_what_was_sent_wrong_would_be_wrong_again():
    assert refusal_of(closed(501, "FRAME_ERROR - too large")) == "FRAME_ERROR - too large (501)"
    assert refusal_of(closed(320, "CONNECTION_FORCED - broker shut down")) is None


def test_a_port_where_nobody_listens_is_told_in_short():
    refused = ConnectionRefusedError(111, "Connection refused")
    workflow = pika.adapters.utils.connection_workflow.AMQPConnectionWorkflowFailed([refused])
    assert text_of(pika.exceptions.AMQPConnectionError(workflow)) == repr(refused)
