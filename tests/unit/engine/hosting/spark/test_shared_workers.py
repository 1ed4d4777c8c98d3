"""The pool of workers where it meets the rest of the process. What it decides is tested with the machine, how it hosts with Spark."""

import asyncio
from types import SimpleNamespace

from penstock.engine.hosting.spark.shared_workers import SharedWorkers


def pool(fed, loop):
    launcher = SimpleNamespace(waiting=lambda: 2)
    held = SimpleNamespace(loop=loop)
    return SimpleNamespace(_loop=held, _launcher=launcher, _feed=fed.append)


async def look(fed, *, is_ending):
    loop = asyncio.get_running_loop()
    if is_ending:
        await loop.shutdown_default_executor()
    await SharedWorkers.look_who_waits(pool(fed, loop))


def test_idle_workers_are_given_up_where_others_wait():
    fed = []
    asyncio.run(look(fed, is_ending=False))
    assert [event.workers for event in fed] == [2]


def test_nobody_is_asked_when_python_ends():
    """After Ctrl-C the pool may look once more when executors take no calls any more."""
    fed = []
    asyncio.run(look(fed, is_ending=True))
    assert fed == []
