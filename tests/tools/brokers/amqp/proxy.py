"""Connections to another address, which can all be cut at once."""

import contextlib
import socket
import socketserver
import threading

from tests.tools.brokers.serving import LoopbackServer, serving


@contextlib.contextmanager
def running_proxy(host, port):
    proxy = _Proxy(_Pair, target=(host, port), pairs=set(), lock=threading.Lock())
    with serving(proxy, before_shutdown=proxy.cut):
        yield proxy


class _Proxy(LoopbackServer):
    block_on_close = True

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
