"""Connections to another address, which can all be cut at once."""

import contextlib
import socket
import socketserver
import threading


@contextlib.contextmanager
def running_proxy(host, port):
    with _Server(("127.0.0.1", 0), _Pair) as server:
        server.target = host, port
        server.pairs = set()
        server.lock = threading.Lock()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.cut()
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def cut(self):
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            pair.cut()


class _Pair(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.create_connection(self.server.target) as self.far:
            with self.server.lock:
                self.server.pairs.add(self)
            back = threading.Thread(target=self._copy, args=(self.far, self.request), daemon=True)
            back.start()
            self._copy(self.request, self.far)
            back.join()
            with self.server.lock:
                self.server.pairs.remove(self)

    def cut(self):
        for one in (self.request, self.far):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _copy(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        self.cut()
