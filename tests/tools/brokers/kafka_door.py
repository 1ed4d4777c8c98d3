"""TLS and SASL in front of a Kafka broker that has neither: a door that passes on what clients say once they may come in.

It speaks TLS with a real certificate, and PLAIN and SCRAM as Kafka's protocol frames them (SaslHandshake, SaslAuthenticate).
Real clients prove the other side of both. What is behind it may be any broker that advertises the door's address.
Source: RFC 4616, RFC 5802; KIP-43, KIP-152.
"""

import base64
import contextlib
import hashlib
import hmac
import select
import socket
import socketserver
import ssl
import struct

from tests.tools.brokers.kafka.codec import Reader, array, blob, pack, text
from tests.tools.brokers.serving import serving
from tests.tools.small_servers import free_pair

VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 33, 58
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ROUNDS = 4096


class Refused(Exception):
    """The user or the password is wrong."""


def plain(users):
    """A generator that gets what the client says and yields the answers."""
    message = yield b""
    _, name, password = message.decode().split("\0")
    if users.get(name) != password:
        raise Refused


def scram(users, name_of_hash):
    first = (yield b"").decode().removeprefix("n,,")
    fields = dict(one.split("=", 1) for one in first.split(","))
    if fields["n"] not in users:
        raise Refused
    salt, nonce = b"a salt of tests", fields["r"] + "theservers"
    salted = hashlib.pbkdf2_hmac(name_of_hash, users[fields["n"]].encode(), salt, ROUNDS)
    answer = f"r={nonce},s={base64.b64encode(salt).decode()},i={ROUNDS}"
    final = (yield answer.encode()).decode()
    without_proof, proof = final.rsplit(",p=", 1)
    assert f"r={nonce}" in without_proof, "the client gives another nonce"
    said = f"{first},{answer},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name_of_hash)
    stored = hashlib.new(name_of_hash, client_key).digest()
    signature = hmac.digest(stored, said, name_of_hash)
    given = base64.b64decode(proof)
    key = bytes(one ^ other for one, other in zip(given, signature, strict=True))
    if hashlib.new(name_of_hash, key).digest() != stored:
        raise Refused
    server_key = hmac.digest(salted, b"Server Key", name_of_hash)
    verified = hmac.digest(server_key, said, name_of_hash)
    yield b"v=" + base64.b64encode(verified)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True


class _Connection(socketserver.BaseRequestHandler):
    def handle(self):
        door = self.server.door
        sock = self.request
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.ExitStack() as open_ones, contextlib.suppress(OSError, EOFError):
            if door.context is not None:
                sock = open_ones.enter_context(door.context.wrap_socket(sock, server_side=True))
            behind = open_ones.enter_context(socket.create_connection(door.target))
            behind.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if door.users is not None:
                self._let_in(sock, behind)
            self._pass_on(sock, behind)

    def _let_in(self, sock, behind):
        """Until the client has said who it is. Requests about versions are answered by the broker."""
        talk = None
        while True:
            frame = _frame(sock)
            reader = Reader(frame)
            api, _version, correlation = reader.take("hhi")
            reader.text()
            if api == HANDSHAKE:
                talk, answer = self._begin(reader.text())
            elif api == AUTHENTICATE and talk is not None:
                answer, is_in = self._go_on(talk, reader.blob())
                _send(sock, pack("i", correlation) + answer)
                if is_in:
                    return
                continue
            elif api == VERSIONS:
                _send(behind, frame)
                _send(sock, _frame(behind))
                continue
            else:
                raise EOFError  # as Kafka does, the door closes
            _send(sock, pack("i", correlation) + answer)

    def _begin(self, mechanism):
        door = self.server.door
        known = array(map(text, door.mechanisms))
        if mechanism not in door.mechanisms:
            return None, pack("h", UNSUPPORTED_MECHANISM) + known
        hashed = HASHES.get(mechanism)
        talk = plain(door.users) if hashed is None else scram(door.users, hashed)
        next(talk)
        door.mechanisms_used.append(mechanism)
        return [talk, mechanism], pack("h", 0) + known

    @staticmethod
    def _go_on(talk, said):
        """The answer, and whether the client is in now."""
        steps, mechanism = talk
        try:
            answer = steps.send(said)
        except StopIteration:
            return pack("h", 0) + text(None) + blob(b"") + pack("q", 0), True
        except Refused:
            refusal = text(f"Authentication failed during {mechanism}: invalid credentials")
            return pack("h", AUTHENTICATION_FAILED) + refusal + blob(b"") + pack("q", 0), False
        is_in = answer.startswith(b"v=")
        return pack("h", 0) + text(None) + blob(answer) + pack("q", 0), is_in

    @staticmethod
    def _pass_on(sock, behind):
        """One thread for both directions, for a TLS connection must not be used by two."""
        while True:
            waiting = sock.pending() if isinstance(sock, ssl.SSLSocket) else 0
            ready = [sock] if waiting else select.select([sock, behind], [], [])[0]
            for one in ready:
                data = one.recv(1 << 16)
                if not data:
                    return
                (behind if one is sock else sock).sendall(data)


class Door:
    """`address`: host and port where clients come in. `mechanisms_used`: of the clients, in order."""

    def __init__(self, target, certificate, users, mechanisms, client_ca):
        host, port = target.rsplit(":", 1)
        self.target = host, int(port)
        self.users = users
        self.mechanisms = mechanisms
        self.mechanisms_used = []
        self.address = ""
        self.context = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
            if client_ca is not None:
                self.context.load_verify_locations(client_ca)
                self.context.verify_mode = ssl.CERT_REQUIRED


@contextlib.contextmanager
def door(
    target,
    certificate=None,
    users=None,
    mechanisms=("PLAIN", *HASHES),
    client_ca=None,
    port=None,
):
    """`target`: host:port. `users`: passwords by name; None: nobody is asked. `client_ca`: who has signed clients' certificates."""
    made = Door(target, certificate, users, mechanisms, client_ca)
    server = _Server(("127.0.0.1", free_pair() if port is None else port), _Connection)
    server.handle_error = lambda *_: None  # clients that refuse our certificate leave in the middle
    server.door = made
    made.address = f"127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield made


def _frame(sock):
    size = struct.unpack(">i", _exactly(sock, 4))[0]
    return _exactly(sock, size)


def _exactly(sock, size):
    found = b""
    while len(found) < size:
        more = sock.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _send(sock, frame):
    sock.sendall(pack("i", len(frame)) + frame)
