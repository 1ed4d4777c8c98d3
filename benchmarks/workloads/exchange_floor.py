"""Floor of the exchange: the same batches over one socket to another process of this machine.

As a program (`python -m benchmarks.workloads.exchange_floor ADDRESS KIND`, a port or the path of a Unix socket) it is the receiver, and answers with the number of
batches when the sender has ended.
"""

import pickle
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

ACCEPT_S = 30.0
_LENGTH = struct.Struct(">I")
_COUNT = struct.Struct(">Q")
_BUFFER = 1 << 20


def floor_seconds(batch: Any, batches: int, *, is_tcp: bool) -> float:
    """From the first send until the receiver has decoded the last batch. Over loopback TCP or a Unix socket."""
    kind = "columns" if isinstance(batch, pa.RecordBatch) else "rows"
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        _server(None if is_tcp else str(Path(directory, "socket"))) as server,
    ):
        name = server.getsockname()
        address = str(name[1]) if is_tcp else name
        server.settimeout(ACCEPT_S)
        command = [sys.executable, "-m", "benchmarks.workloads.exchange_floor", address, kind]
        receiver = subprocess.Popen(command)
        sock, _ = server.accept()
    with receiver, sock:
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        if kind == "columns":
            _send(sock, memoryview(batch.schema.serialize()))
        started = time.perf_counter()
        for _ in range(batches):
            if kind == "columns":
                _send(sock, memoryview(batch.serialize()))
            else:
                _send(sock, memoryview(pickle.dumps(batch, protocol=5)))
        sock.shutdown(socket.SHUT_WR)
        (count,) = _COUNT.unpack(_exactly(sock, _COUNT.size))
        seconds = time.perf_counter() - started
    if count != batches:
        raise SystemExit(f"exchange floor: {count} batches arrived of {batches}")
    return seconds


def _server(path: str | None) -> socket.socket:
    if path is None:
        return socket.create_server(("127.0.0.1", 0))
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    return server


def _connect(address: str) -> socket.socket:
    if address.isdecimal():
        return socket.create_connection(("127.0.0.1", int(address)))
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(address)
    return sock


def _send(sock: socket.socket, body: memoryview) -> None:
    sock.sendall(_LENGTH.pack(body.nbytes))
    sock.sendall(body)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    body = bytearray(size)
    view, filled = memoryview(body), 0
    while filled < size:
        received = sock.recv_into(view[filled:])
        if not received:
            return body[:filled]
        filled += received
    return body


def _receive(address: str, kind: str) -> None:
    with _connect(address) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        schema = None
        count = rows = 0
        while len(head := _exactly(sock, _LENGTH.size)) == _LENGTH.size:
            body = _exactly(sock, _LENGTH.unpack(head)[0])
            if kind == "rows":
                rows += len(pickle.loads(body))
            elif schema is None:
                schema = pa.ipc.read_schema(pa.py_buffer(body))
                continue
            else:
                rows += pa.ipc.read_record_batch(pa.py_buffer(body), schema).num_rows
            count += 1
        sock.sendall(_COUNT.pack(count))


if __name__ == "__main__":
    _receive(sys.argv[1], sys.argv[2])
