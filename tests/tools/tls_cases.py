"""What may be wrong with the TLS of a server, and what is told then: the same for every client."""

from pathlib import Path
from typing import NamedTuple

from tests.tools.certificates import Authority


class Tls(NamedTuple):
    """`server`, `client`: files of certificates for 127.0.0.1, and of their keys. `other_name`: one for another host.
    `ca`: of the authority that has signed them. `other_ca`: of one that has not.
    """

    server: tuple[str, str]
    other_name: tuple[str, str]
    client: tuple[str, str]
    ca: str
    other_ca: str


def made_in(folder: Path) -> Tls:
    folder.chmod(0o755)
    authority = Authority(folder)
    return Tls(
        authority.certificate("127.0.0.1"),
        authority.certificate("redis.example", file="other"),
        authority.certificate("job", file="client"),
        authority.ca,
        Authority(folder, "stranger").ca,
    )


NOT_TRUSTED = (
    r"its certificate is not trusted: .*Name the CA that has signed it with set_tls\(ca_file"
)
OTHER_NAME = "its certificate is for another name: .*127.0.0.1"
NO_TLS = "it does not speak TLS on this port. Correct the port or the scheme"
DOUBT = r"(does not (answer as a server with|speak) TLS|refuses the handshake).* set_tls|URL"
"""Part of what is told."""
