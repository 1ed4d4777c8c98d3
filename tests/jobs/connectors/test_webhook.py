"""A whole job of a MiniCluster that takes requests: what is answered behind a checkpoint outlives a failure."""

import http.client
import threading

from penstock.common import Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.http import WebhookSource
from penstock.testing import CollectingSink
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.small_servers import free_port
from tests.tools.waiting import wait_until

COUNT = 60
FAILED, PAUSE = threading.Event(), threading.Event()


def fails_once(value):
    if value == str(COUNT // 2) and not FAILED.is_set():
        FAILED.set()
        raise RuntimeError("planted")
    return value


def send(port, text, answers):
    """As a sender of webhooks does: again and again until somebody says 200."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("POST", "/", text)
            if connection.getresponse().status == 200:
                answers.append(text)
                return
        except (OSError, http.client.HTTPException):
            PAUSE.wait(0.02)  # nobody listens before the job, and between two of its attempts
        finally:
            connection.close()


def test_what_was_answered_is_in_the_result_whatever_fails(tmp_path):
    FAILED.clear()
    port = free_port()
    source = (
        WebhookSource
        .builder()
        .set_address(port)
        .set_deserializer(SimpleStringSchema())
        .set_answer_after("checkpoint")
        .build()
    )
    env = restarting_environment(
        Watcher(),
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
    )
    results = CollectingSink()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "hooks").uid("hooks")
    stream.map(fails_once, Types.STRING()).uid("map").sink_to(results).uid("results")
    client = env.execute_async("hooks")
    answers = []
    senders = [
        threading.Thread(target=send, args=(port, str(number), answers)) for number in range(COUNT)
    ]
    try:
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(60)
        assert len(answers) == COUNT
        # The sink hears of the last checkpoint by itself.
        everything = {str(number) for number in range(COUNT)}
        wait_until(lambda: set(results.values) == everything, f"there is only {results.values}")
    finally:
        client.cancel().result()
    assert FAILED.is_set()
