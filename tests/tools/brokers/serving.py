"""A server on a loopback port, in a thread of this process, for as long as a test wants it."""

import contextlib
import socketserver
import threading


class LoopbackServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, handler, **shared):
        """`shared`: what the connections find as attributes of `self.server`."""
        super().__init__(("127.0.0.1", 0), handler)
        vars(self).update(shared)

    @property
    def port(self):
        return self.server_address[1]


@contextlib.contextmanager
def serving(server, before_shutdown=lambda: None):
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            before_shutdown()
            server.shutdown()
            thread.join()
