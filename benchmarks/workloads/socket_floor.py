"""Floor of the latency: pickled lists of records over one loopback socket to another process.

No threads, no engine: a sender that sleeps between its sends, and a receiver that blocks in recv.
As a program (`python -m benchmarks.workloads.socket_floor PORT SECONDS`) it is the receiver, and writes the
nanoseconds of each record to stdout as int64.
"""

import pickle
import socket
import struct
import subprocess
import sys
import time

import numpy as np

TICK_S = 0.005  # as the engine's rate limiter
ACCEPT_S = 30.0
_LENGTH = struct.Struct(">I")


def socket_latencies(rate: int, keys: int, warm_up_s: int, measured_s: int) -> np.ndarray:
    """Send at `rate` and return the nanoseconds of each record after the warm-up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        server.settimeout(ACCEPT_S)
        command = [sys.executable, "-m", "benchmarks.workloads.socket_floor", port, str(warm_up_s)]
        receiver = subprocess.Popen(command, stdout=subprocess.PIPE)
        sock, _ = server.accept()
    with receiver, sock:  # the socket is closed first, which ends the receiver
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send_at_rate(sock, rate, keys, warm_up_s + measured_s)
        sock.shutdown(socket.SHUT_WR)
        samples, _ = receiver.communicate()
    return np.frombuffer(samples, np.int64)


def _send_at_rate(sock: socket.socket, rate: int, keys: int, seconds: int) -> None:
    """What is due, every tick or every record, whichever is longer."""
    pause = max(TICK_S, 1 / rate)
    started = time.perf_counter()
    sent, due_at = 0, started
    while sent < rate * seconds:
        due = min(int((time.perf_counter() - started) * rate) + 1, rate * seconds)
        records = [(index % keys, time.perf_counter_ns(), 0) for index in range(sent, due)]
        if records:
            body = pickle.dumps(records, protocol=5)
            sock.sendall(_LENGTH.pack(len(body)) + body)
        sent, due_at = due, due_at + pause
        time.sleep(max(0.0, due_at - time.perf_counter()))


def _receive(port: int, warm_up_s: int) -> np.ndarray:
    pieces: list[np.ndarray] = []
    measured_from_ns = None
    with socket.create_connection(("127.0.0.1", port)) as sock, sock.makefile("rb") as stream:
        while head := stream.read(_LENGTH.size):
            records = pickle.loads(stream.read(_LENGTH.unpack(head)[0]))
            now_ns = time.perf_counter_ns()
            if measured_from_ns is None:
                measured_from_ns = records[0][1] + warm_up_s * 1_000_000_000
            made = np.array([record[1] for record in records], np.int64)
            pieces.append(now_ns - made[made >= measured_from_ns])
    return np.concatenate(pieces)


if __name__ == "__main__":
    sys.stdout.buffer.write(_receive(int(sys.argv[1]), int(sys.argv[2])).tobytes())
