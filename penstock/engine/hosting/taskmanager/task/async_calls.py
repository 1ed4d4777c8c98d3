"""AsyncCallThreads: runs the calls of one async operator. Coroutines share one event loop on one
thread; plain functions have a pool of threads.

Source: PyFlink's AsyncFunctionRunner, Flink's AsyncWaitOperator (callbacks become mails); differs:
several outcomes share one mail. Threads are daemons: a call that never ends must not keep a
TaskManager alive.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from penstock.engine.hosting.os.interrupts import UninterruptibleLock
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.operator import Outcome
from penstock.engine.runtime.records.output_copies import own_copy

MAX_POOL_THREADS: Final = 32
CLOSE_TIMEOUT_S: Final = 1.0


class _Runner(Protocol):
    def submit(self, calls: Sequence[tuple[int, Any]]) -> None: ...
    def cancel(self, number: int) -> None: ...
    def close(self) -> None: ...


class AsyncCallThreads:
    """`engine.runtime.operator.AsyncCalls`. Threads start with `open`."""

    def __init__(self, mail: Callable[[Callable[[], None]], None], name: str) -> None:
        """`mail`: runs an action on the task's mailbox thread; called from any thread."""
        self._mail = mail
        self._name = name
        self._lock = UninterruptibleLock()
        self._outcomes: list[Outcome] = []
        self._on_outcomes: Callable[[Sequence[Outcome]], None]
        self._runner: _Runner | None = None

    def open(
        self,
        function: Callable[[Any], Any],
        on_outcomes: Callable[[Sequence[Outcome]], None],
        capacity: int,
    ) -> None:
        self._on_outcomes = on_outcomes
        with uninterruptible():
            if _is_async(function):
                self._runner = _EventLoop(function, self._done_together, self._name)
            else:
                threads = min(capacity, MAX_POOL_THREADS)
                self._runner = _Pool(function, self._done, threads, self._name)

    def submit(self, calls: Sequence[tuple[int, Any]]) -> None:
        assert self._runner is not None, "calls before open"
        # Putting a call into the event loop's queue and waking the loop are two steps.
        with uninterruptible():
            self._runner.submit(calls)

    def cancel(self, number: int) -> None:
        assert self._runner is not None, "calls before open"
        with uninterruptible():
            self._runner.cancel(number)

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _done(self, outcome: Outcome) -> None:
        self._done_together((outcome,))

    def _done_together(self, outcomes: Sequence[Outcome]) -> None:
        """Take outcomes. Any thread. The first ones send a mail; outcomes that come before the
        mail is read are in it too.
        """
        with self._lock:
            is_first = not self._outcomes
            self._outcomes.extend(outcomes)
        if is_first:
            self._mail(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        if self._runner is not None:
            self._on_outcomes(outcomes)


class _EventLoop:
    """One thread with one event loop; each call is a task of the loop.

    A function whose owner has a method `results_now` is asked there first: what it knows without
    waiting (a list) needs no task. None: it has to wait.
    """

    def __init__(
        self,
        function: Callable[[Any], Awaitable[Any]],
        done: Callable[[Sequence[Outcome]], None],
        name: str,
    ) -> None:
        self._function = function
        self._now = getattr(getattr(function, "__self__", None), "results_now", None)
        self._done = done
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, calls: Sequence[tuple[int, Any]]) -> None:
        self._loop.call_soon_threadsafe(self._start, calls)

    def cancel(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._cancel, number)

    def close(self) -> None:
        """Cancel all calls. A call that does not end is abandoned."""
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        await self._is_over.wait()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, calls: Sequence[tuple[int, Any]]) -> None:
        if self._now is not None:
            calls = self._without_the_known(calls, self._now)
        for number, value in calls:
            task = self._loop.create_task(self._call(number, value))
            self._tasks[number] = task

    def _without_the_known(
        self, calls: Sequence[tuple[int, Any]], known_of: Callable[[Any], Any]
    ) -> list[tuple[int, Any]]:
        """The calls that have to wait. The others are done."""
        known, others = [], []
        for number, value in calls:
            try:
                results = known_of(value)
            except BaseException as error:
                known.append(_failed(number, error))
                continue
            if results is None:
                others.append((number, value))
            else:
                known.append(Outcome(number, _as_given(results)))
        if known:
            self._done(known)
        return others

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()

    async def _call(self, number: int, value: Any) -> None:
        try:
            outcome = Outcome(number, _as_given(await self._function(value)))
        except asyncio.CancelledError as error:
            if self._is_ours(number):
                return
            outcome = _failed(number, error)  # The user's own code cancelled it.
        except BaseException as error:
            outcome = _failed(number, error)
        finally:
            if self._tasks.get(number) is asyncio.current_task():
                del self._tasks[number]
        self._done((outcome,))

    def _is_ours(self, number: int) -> bool:
        task = self._tasks.get(number)
        return task is None or task.cancelling() > 0


class _Pool:
    """A pool that calls a plain function. A call that is cancelled before it starts is never made."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        done: Callable[[Outcome], None],
        threads: int,
        name: str,
    ) -> None:
        self._function = function
        self._done = done
        self._cancelled: set[int] = set()
        self._workers = WorkerThreads(name, threads)

    def submit(self, calls: Sequence[tuple[int, Any]]) -> None:
        for number, value in calls:
            self._workers.put(functools.partial(self._call, number, value))

    def cancel(self, number: int) -> None:
        self._cancelled.add(number)

    def close(self) -> None:
        self._workers.close(CLOSE_TIMEOUT_S, drops=True)

    def _call(self, number: int, value: Any) -> None:
        if number not in self._cancelled:
            try:
                outcome = Outcome(number, _as_given(_no_coroutine(self._function(value))))
            except BaseException as error:
                outcome = _failed(number, error)
            self._done(outcome)
        self._cancelled.discard(number)


def _as_given(results: Any) -> Any:
    """The results as they are when the call returns: other calls may change what they share before the task takes them."""
    return list(map(own_copy, results)) if isinstance(results, list) else results


def _failed(number: int, error: BaseException) -> Outcome:
    """Return the failure without our own frame, so that its traceback begins in the user's function."""
    frames = error.__traceback__
    return Outcome(number, error=error.with_traceback(frames.tb_next if frames else None))


def _is_async(function: Callable[[Any], Any]) -> bool:
    # ruff: ignore[unreliable-callable-check] - the attribute itself is examined
    call = getattr(function, "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _no_coroutine(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            "the async function is not declared `async def`, but returned a coroutine. "
            "Declare it with `async def`, and await the coroutine inside it"
        )
    return result
