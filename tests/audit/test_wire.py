"""Bytes that are changed between two real processes: the receiver reads what the fault says."""

import contextlib
import random
import socket
import subprocess
import sys

import psutil
import pytest

from audit import wire
from audit.wire import Damage, End, Link, changed, harm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reaches into other processes")

DATA = bytes(range(200))
SENDER = """
import os, socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
for line in sys.stdin:
    sock.sendall(bytes.fromhex(line))
"""
RECEIVER = """
import socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
for line in sys.stdin:
    with sock.makefile("rb") as file:
        print(file.read(int(line)).hex(), flush=True)
"""


@contextlib.contextmanager
def child(program, sock):
    """A process that has this end of the connection, and whose stdin tells it to go on."""
    command = [sys.executable, "-c", program, str(sock.fileno())]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, pass_fds=[sock.fileno()], stdin=pipe, stdout=pipe, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def connected():
    """A connection over TCP: the process that sends, the one that receives, and the link."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sends = socket.create_connection(listening.getsockname())
        receives, _ = listening.accept()
    with sends, receives, child(SENDER, sends) as sender, child(RECEIVER, receives) as receiver:
        link = Link(
            End(psutil.Process(sender.pid), sends.fileno()),
            End(psutil.Process(receiver.pid), receives.fileno()),
            "data",
        )
        yield sender, receiver, link


def tell(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (Damage.FLIP, b"abCde"),
        (Damage.DROP, b"abde"),
        (Damage.REPEAT, b"abccde"),
        (Damage.TRUNCATE, b"abc"),
    ],
)
def test_what_becomes_of_a_byte(damage, expected):
    assert changed(b"abcde", damage, 2, 5) == expected


@pytest.mark.parametrize("damage", list(Damage))
@pytest.mark.parametrize("place", [0, 57, len(DATA) - 1])
def test_the_receiver_reads_the_damage_and_then_what_the_sender_sends_next(damage, place):
    class Chance(random.Random):
        def randrange(self, stop):
            return place if stop == len(DATA) else 3

    with connected() as (sender, receiver, link):
        tell(sender, DATA.hex())
        told = harm(link, damage, Chance())
        expected = changed(DATA, damage, place, 3)
        if damage is not Damage.TRUNCATE:  # Then the sender's end is closed.
            tell(sender, b"next".hex())
            expected += b"next"
        tell(receiver, len(expected))
        assert bytes.fromhex(receiver.stdout.readline()) == expected
        assert told == f"byte {place} of {len(DATA)} of {link}: {damage}"
        assert str(link) == f"data from process {sender.pid} to {receiver.pid}"


def test_of_a_connection_on_which_nothing_comes_nothing_is_told(monkeypatch):
    monkeypatch.setattr(wire, "_BYTES_S", 0.05)
    with connected() as (_, receiver, link):
        assert harm(link, Damage.FLIP, random.Random(1)) is None
        receiver.kill()
        receiver.wait()
        assert harm(link, Damage.FLIP, random.Random(1)) is None


def test_a_process_that_was_stopped_goes_on_after_an_error():
    with connected() as (_, receiver, link):
        with pytest.raises(ValueError, match="broken"), wire.stopped(link.receiver.process):
            assert link.receiver.process.status() == psutil.STATUS_STOPPED
            raise ValueError("broken")
        assert link.receiver.process.status() != psutil.STATUS_STOPPED
        assert receiver.poll() is None


def test_links_between_processes_of_a_run_are_found_in_both_directions(monkeypatch):
    with connected() as (_, _, link):
        one, other = link.sender.process, link.receiver.process
        monkeypatch.setattr(wire, "taskmanagers", lambda mark: [one])
        monkeypatch.setattr(wire, "supervisors", lambda mark: [])
        monkeypatch.setattr(wire, "drivers", lambda mark: [other])
        found = wire.links("mark")
        assert {(at.sender.process, at.receiver.process, at.carries) for at in found} == {
            (one, other, "control"),
            (other, one, "control"),
        }
        monkeypatch.setattr(wire, "taskmanagers", lambda mark: [one, other])
        monkeypatch.setattr(wire, "drivers", lambda mark: [])
        assert {at.carries for at in wire.links("mark")} == {"data"}
