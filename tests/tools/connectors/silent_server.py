"""A server on loopback that accepts connections and never answers, as one that is stopped by SIGSTOP."""

import contextlib
import socket
import threading
from collections.abc import Generator


@contextlib.contextmanager
def silent_server() -> Generator[int]:
    """Yield its port. What connects is kept open until the end."""
    accepted: list[socket.socket] = []

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted.append(server.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, args=(server,))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for sock in accepted:
                sock.close()
