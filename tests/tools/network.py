"""Hosts of the tests' own: network namespaces on one bridge, each with an address, a name and temporary files of its own.

The machine that the tests run on is the first host; it cannot dial the others at ports below 32768, from where on those are that
clients have. Needs root, and iproute2.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

LISTENING_PORTS = "1-32767"
ROOT = str(Path(__file__).parents[2])
PRIVATE_TMP = """
set -e
hostname "$0"
root="$1"
shift
case "$root" in  # this directory is there on all hosts, also if it lies below /tmp
    /tmp/*) mount -t tmpfs tmpfs /mnt; mkdir /mnt/kept; mount --bind "$root" /mnt/kept ;;
esac
mount -t tmpfs tmpfs /tmp
case "$root" in
    /tmp/*) mkdir -p "$root"; mount --bind /mnt/kept "$root" ;;
esac
exec "$@"
"""


class NetworkMissing(AssertionError):
    """There are no hosts to test with. A failure, for a test that quietly does not run proves nothing."""


@dataclass(frozen=True)
class Host:
    """`inside`: the command that starts a process there. `link`: its network card, seen from outside."""

    name: str
    address: str
    link: str

    @property
    def inside(self) -> Sequence[str]:
        enter = ("ip", "netns", "exec", self.name)
        return (*enter, "unshare", "--uts", "--mount", "sh", "-c", PRIVATE_TMP, self.name, ROOT)

    @property
    def network(self) -> str:
        """As /proc/<pid>/ns/net of its processes names it."""
        inode = os.stat(f"/run/netns/{self.name}").st_ino
        return f"net:[{inode}]"

    def cut_off(self) -> None:
        """Nobody reaches it from now on, and it reaches nobody; nothing is told to either side."""
        _ip("link", "set", self.link, "down")

    def join_again(self) -> None:
        _ip("link", "set", self.link, "up")


@dataclass(frozen=True)
class Network:
    """`address`: of the tests' own machine. `subnet`: of all."""

    address: str
    subnet: str
    hosts: tuple[Host, ...]


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), check=False, capture_output=True, text=True)
    if done.returncode:
        raise NetworkMissing(
            f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}. These tests make network namespaces: run them as root "
            "(in a container: with --cap-add NET_ADMIN --cap-add SYS_ADMIN), or leave them out by -k 'not hosts'."
        )


@contextlib.contextmanager
def network(count: int) -> Generator[Network, None, None]:
    """The tests' machine and `count` hosts beside it."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        raise NetworkMissing(
            "`ip` or `unshare` is not on PATH. Install them: `apt-get install iproute2 util-linux` on Debian."
        )
    number = os.getpid()
    bridge, prefix = f"ps{number}", f"10.{200 + number // 250 % 50}.{number % 250}"
    with contextlib.ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{prefix}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        hosts = [_host(stack, bridge, prefix, place) for place in range(2, 2 + count)]
        yield Network(f"{prefix}.1", f"{prefix}.0/24", tuple(hosts))


def _host(stack: contextlib.ExitStack, bridge: str, prefix: str, place: int) -> Host:
    name = f"{bridge}-{place}"
    host = Host(name, f"{prefix}.{place}", f"{bridge}.{place}")
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", host.link, "master", bridge)
    _ip("link", "set", host.link, "up")
    closed = ("to", f"{host.address}/32", "ipproto", "tcp", "dport", LISTENING_PORTS, "prohibit")
    _ip("rule", "add", *closed)
    stack.callback(_ip, "rule", "del", *closed)
    for arguments in (("addr", "add", f"{host.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):  # fmt: skip
        _ip("-n", name, *arguments)
    return host
