"""The illnesses that Dask can have, on its own cluster: `python dask_tasks.py slow-map --port 8787`. Runs until it is stopped.

Dask has tasks that end and neither a state nor checkpoints, so each illness is told in its words: a slow function among quick ones, a
partition with most of the rows, a partition whose task never ends, a task that fails whenever it is tried.
"""

import argparse
import threading
import time

from distributed import Client, LocalCluster, wait

ILLNESSES = ("slow-map", "skewed-key", "stuck-partition", "flapping-restart")
PARTITIONS = 16


def numbers(_part, turn):  # noqa: ARG001 - a task of another turn is another task
    return range(100)


def quick(rows):
    return sum(rows)


def slow(rows):
    time.sleep(0.5)
    return rows


def total(rows, part):
    time.sleep(8 if part == 3 else 0.2)
    return sum(rows)


def read(part, turn):  # noqa: ARG001 - as above
    if part == 3:
        threading.Event().wait()
    return range(100)


def divide(rows, part):
    time.sleep(0.2)
    if part == 3:
        raise ZeroDivisionError("the price of this order is divided by zero")
    return rows


def one_turn(client, illness, turn):
    parts = range(PARTITIONS)
    if illness == "slow-map":
        return client.map(quick, client.map(slow, client.map(numbers, parts, turn=turn)))
    if illness == "skewed-key":
        return client.map(total, client.map(numbers, parts, turn=turn), parts)
    if illness == "stuck-partition":
        return client.map(quick, client.map(read, parts, turn=turn))
    divided = client.map(divide, client.map(numbers, parts, turn=turn), parts, retries=10_000)
    return client.map(quick, divided)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("illness", choices=ILLNESSES)
    parser.add_argument("--port", type=int, required=True, help="of Dask's dashboard")
    arguments = parser.parse_args()
    address = f"127.0.0.1:{arguments.port}"
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=address) as cluster,
        Client(cluster) as client,
    ):
        turn = 0
        while True:
            wait(one_turn(client, arguments.illness, turn))
            turn += 1


if __name__ == "__main__":
    main()
