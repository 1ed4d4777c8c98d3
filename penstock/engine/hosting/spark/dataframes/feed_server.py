"""The driver's end of feeds: accepts a reader's order and has Spark compute that partition in a
Spark job of one task.

The Spark job is cancelled when the reader closes its connection, because the partition is then no
longer needed.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext, cloudpickle

from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.addresses import CONTROL_PORT, listen
from penstock.engine.hosting.network.wire.dialling import Proven, Tickets
from penstock.engine.hosting.network.wire.handshake import ROLE_FEED, Credentials
from penstock.engine.hosting.network.wire.tls import new_identity
from penstock.engine.hosting.os.spark_thread import SparkThread
from penstock.engine.hosting.shipping.worker_imports import Archives
from penstock.engine.hosting.spark.dataframes import feed_task
from penstock.engine.hosting.spark.dataframes.feed_reader import (
    COUNTED,
    FAILED,
    OPEN,
    FeedHosts,
    FeedPlace,
    FeedSocket,
)

_CANCEL_AGAIN_S: Final = 0.25
_END_S: Final = 5.0


class FeedServer:
    """The feeds of one DataFrame in one job."""

    def __init__(
        self, messages: RDD[bytes], archives: Archives, hosts: FeedHosts, name: str
    ) -> None:
        """`messages`: its Arrow messages. `name`: for Spark's user interface. Raises:
        ExternalError: no port is free.
        """
        cloudpickle.register_pickle_by_value(feed_task)
        self._messages = messages
        self._context: SparkContext = messages.ctx
        self._archives = archives
        self._name = name
        # Of its own: who takes part in a feed is not yet a member of the job.
        self._credentials = Credentials(new_identity(), "feed", secrets.token_hex(8))
        self._tickets = Tickets(self._credentials)
        listener = listen(hosts.driver, CONTROL_PORT)
        self._address = (hosts.driver.dialled_host, listener.getsockname()[1])
        self._readers = hosts.readers
        self._group = f"penstock-feed-{self._credentials.cluster_id}"
        self._orders = 0
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._acceptor = Acceptor(
            [listener],
            self._credentials,
            ROLE_FEED,
            self._accepted,
            tickets=self._tickets,
            name="penstock-feeds",
        ).start()

    def close(self) -> None:
        """Cancel all Spark jobs that still run."""
        self._is_closed = True
        self._acceptor.close()
        with self._lock:
            running = list(self._running)
        for group in running:
            self._cancel(group)

    def place_for_reader(self) -> FeedPlace:
        """Return the address and the ticket for one reader; each reader has its own ticket."""
        return FeedPlace(*self._address, self._tickets.new(), self._readers)

    def _accepted(self, proven: Proven) -> None:
        threading.Thread(
            target=self._serve, args=(FeedSocket(proven.sock),), name="penstock-feed", daemon=True
        ).start()

    def _serve(self, link: FeedSocket) -> None:
        """Serve one reader until it has its partition or is gone."""
        link.sock.setblocking(True)
        with contextlib.closing(link), contextlib.suppress(OSError):
            kind, payload = link.receive()
            if kind == OPEN:
                self._feed(link, json.loads(payload))

    def _feed(self, link: FeedSocket, request: dict[str, Any]) -> None:
        with self._lock:
            self._orders += 1
            group = f"{self._group}-{self._orders}"
            self._running.add(group)
        ended, waker = socket.socketpair()
        outcome: list[BaseException] = []

        def run() -> None:
            try:
                self._run(group, request)
            except Exception as error:  # Any error of Spark is reported to the reader.
                outcome.append(error)
            finally:
                waker.close()

        def refuse(error: Exception) -> None:
            outcome.append(error)
            waker.close()

        thread = SparkThread(self._context, run, refuse, "penstock-feed-job")
        thread.start()
        try:
            if not _outlasts(link, ended):
                self._cancel_until(thread, group)
                return
            thread.join()
            if not outcome:
                link.send(COUNTED)
            elif not self._is_closed:
                what = f"partition {request['partition']} of {self._name}"
                link.send(FAILED, f"Spark has given up {what}: {outcome[0]}".encode())
        finally:
            ended.close()
            with self._lock:
                self._running.discard(group)

    def _run(self, group: str, request: dict[str, Any]) -> None:
        partition = int(request["partition"])
        what = f"{self._name}: partition {partition}"
        self._context.setJobGroup(group, what, interruptOnCancel=True)
        # It is valid until it is withdrawn: Spark may try the task again.
        ticket = self._tickets.new(admits=None)
        order = (request["host"], request["port"], self._address, ticket.to_plain())
        body = self._messages.mapPartitions(
            feed_body(self._archives, order), preservesPartitioning=True
        )
        try:
            self._context.runJob(body, list, [partition])
        finally:
            self._tickets.withdraw(ticket)

    def _cancel_until(self, thread: threading.Thread, group: str) -> None:
        """Cancel repeatedly: a Spark job that is only about to be submitted is not found by the first cancel."""
        deadline = time.monotonic() + _END_S
        while thread.is_alive() and time.monotonic() < deadline:
            self._cancel(group)
            thread.join(_CANCEL_AGAIN_S)

    def _cancel(self, group: str) -> None:
        with contextlib.suppress(
            Py4JError, OSError, AttributeError
        ):  # A stopped context has no jobs left.
            self._context.cancelJobGroup(group)


def _outlasts(link: FeedSocket, ended: socket.socket) -> bool:
    """Wait until Spark's job ends or the reader is gone. True: the job has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(link.sock, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        speaking = [key.fileobj for key, _ in selector.select()]
    return link.sock not in speaking


def feed_body(archives: Archives, order: tuple[Any, ...]) -> Callable[[Any], Any]:
    feed_partition = feed_task.feed_partition

    def run(messages: Any) -> Any:
        return feed_partition(archives, order, messages)

    run.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    return run
