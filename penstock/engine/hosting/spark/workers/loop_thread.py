"""A thread with an asyncio loop, and two ways to it for other threads: tell, and ask."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_ASK_S: Final = 10.0
"""How long a caller waits for an answer of the loop, which is never busy for long."""

T = TypeVar("T")


class LoopThread:
    """Runs one coroutine to its end."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._name = name
        self._thread: threading.Thread | None = None

    def start(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        """Return when `main` has called `is_ready`. `on_end`: told on the thread, in any case. Raises: the error of a `main` that
        did not become ready.
        """
        self._thread = threading.Thread(
            target=self._run, args=(main, on_end), name=self._name, daemon=True
        )
        self._thread.start()
        self._ready.result()

    def is_ready(self) -> None:
        self._ready.set_result(None)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def tell(self, call: Callable[[], object]) -> None:
        """Have the loop do this. Lost if the loop is over."""
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self.loop.call_soon_threadsafe(call)

    def ask(self, question: Callable[[], T], otherwise: T) -> T:
        """Return the answer of the loop; `otherwise` if the loop is over."""
        answer: Future[T] = Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:  # Whatever it is, the caller must not wait for ever.
                answer.set_exception(error)
                raise

        self.tell(reply)
        if not self.is_alive:
            return otherwise
        try:
            return answer.result(_ASK_S)
        except TimeoutError:
            return otherwise

    def _run(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        asyncio.set_event_loop(self.loop)
        failure: Exception | None = None
        try:
            self.loop.run_until_complete(main())
        except Exception as error:  # Of any kind: it belongs to who starts, or to the log.
            failure = error
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            on_end(failure)
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # What is left must not keep the loop open.
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
