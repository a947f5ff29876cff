"""Where a tracker is and how it is spoken to: plainly on this machine, by TLS everywhere else.

In: a host, a port, where certificates are.  Out: `Place`s to try, in order.  A host may have a
scheme before it, tls:// or tcp://, where only that will do.
Read next: `certificates.py`, `network.py`.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass

from tilewright.base import environment
from tilewright.base.errors import DeviceError
from tilewright.farm import certificates

PORT = 9190


@dataclass(frozen=True)
class Place:
    """scheme: "tcp" or "tls"."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True)
class Devices:
    """Those of a key at a tracker, to use instead of this machine's.

    builders: the key of those that build, where this machine does not
    """

    key: str
    host: str
    port: int
    builders: str | None = None


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parsed(text: str) -> tuple[str, int]:
    """HOST:PORT or tls://HOST:PORT, as host, with its scheme, and port.  Raises DeviceError."""
    scheme, slashes, rest = text.rpartition("://")
    host, _, port = rest.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or not _known(scheme, slashes):
        raise DeviceError(
            f"tracker {text!r}", "it is no address",
            f"Write HOST:PORT, such as 127.0.0.1:{PORT}, or tls://HOST:PORT.",
        )  # fmt: skip
    return f"{scheme}{slashes}{host.strip('[]')}", int(port)


def _known(scheme: str, slashes: str) -> bool:
    return scheme in ("tcp", "tls") if slashes else True


def tracker_address(host: str | None, port: int | None) -> tuple[str, int]:
    """The tracker's, from the environment where it is not given.  Raises DeviceError."""
    host = host or environment.tracker_host()
    if not host:
        raise DeviceError(
            "tracker", "its host is not known",
            "Pass host= and port=, or set TVM_TRACKER_HOST and TVM_TRACKER_PORT.",
            command="Give --host and --port, or set TVM_TRACKER_HOST and TVM_TRACKER_PORT.",
        )  # fmt: skip
    given = port if port is not None else environment.tracker_port() or PORT
    if not str(given).isdigit() or not 0 < int(given) < 65536:
        raise DeviceError(
            f"tracker {host}:{given}", "this is no port", f"Write 1 to 65535; {PORT} is the usual."
        )
    return host, int(given)


def listening(host: str, given: str | None) -> certificates.Credentials | None:
    """What a tracker or a device at `host` shows; None: it is spoken to plainly.

    Raises DeviceError where others can reach it and there are no certificates.
    """
    if given is None and is_loopback(host) and not environment.certificates():
        return None
    found = certificates.credentials(certificates.SERVER, given)
    if found is None and certificates.folder(given) is not None:
        raise DeviceError(
            f"host {host}", "other machines can reach it, and there are no certificates",
            "Make them with `tilewright farm certificates`, listen on 127.0.0.1, or say "
            "--certificates none where everybody in the network may run code here.",
        )  # fmt: skip
    return found


def ways(
    host: str, port: int, given: str | None = None, role: str = certificates.CLIENT
) -> list[tuple[Place, ssl.SSLContext | None]]:
    """How to reach it, what is likelier first.  Raises DeviceError where no way is allowed."""
    scheme, slashes, name = host.rpartition("://")
    if not _known(scheme, slashes):
        raise DeviceError(
            f"tracker {host}:{port}", f"{scheme}:// is not spoken here", "Write tls:// or tcp://."
        )
    found = None if scheme == "tcp" else certificates.credentials(role, given)
    folder = certificates.folder(given)
    may_be_plain = scheme != "tls" and (is_loopback(name) or folder is None)
    allowed: list[tuple[Place, ssl.SSLContext | None]] = []
    if may_be_plain:
        allowed.append((Place("tcp", name, port), None))
    if found is not None:
        allowed.append((Place("tls", name, port), found.context(listening=False)))
    if allowed:
        return allowed
    if scheme == "tcp":
        raise DeviceError(
            f"tracker {host}:{port}", "it would be spoken to plainly, where others may listen",
            "Write tls://, or say --certificates none where everybody in the network may run code.",
        )  # fmt: skip
    raise DeviceError(
        f"tracker {host}:{port}", "there are no certificates to speak to it",
        f"Copy ca.pem, {role}.pem and {role}.key from the machine where `tilewright farm "
        f"certificates` ran into {folder or 'a folder, and name it'}.",
    )  # fmt: skip
