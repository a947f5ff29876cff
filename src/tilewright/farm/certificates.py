"""Who may take part: a private authority, certificates signed by it, and where they are looked for.

In: a folder.  Out: files `ca.pem`, `server.pem`, `client.pem` and their keys; contexts of `ssl`.
Both sides of every connection show a certificate of that authority.  One for clients alone cannot
serve as a device or as a tracker: its extended key usage says so, and OpenSSL refuses it.
Read next: `address.py`, `plain_comm.py`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base import environment
from tilewright.base.errors import DeviceError
from tilewright.base.extras import install

AUTHORITY, SERVER, CLIENT = "ca", "server", "client"
_DAYS = 3650
_EXTENDED_USE = bytes.fromhex("0603551d25")  # in DER: the extension's name, and
_SERVES = bytes.fromhex("06082b06010505070301")  # the use that a server has
_DATES = 9, 10  # of OpenSSL: a certificate is not yet valid, has expired


@dataclass(frozen=True)
class Credentials:
    """Files of one side, all three of them: the authority's certificate, its own, its own key."""

    authority: Path
    certificate: Path
    key: Path

    def context(self, *, listening: bool) -> ssl.SSLContext:
        """Raises DeviceError where a file is missing or damaged, or nobody would trust them."""
        purpose = ssl.Purpose.CLIENT_AUTH if listening else ssl.Purpose.SERVER_AUTH
        try:
            made = ssl.create_default_context(purpose, cafile=str(self.authority))
            made.load_cert_chain(self.certificate, self.key)
            _meet_itself(self)
        except ssl.SSLCertVerificationError as error:
            reason, way_out = distrust(error)
            raise DeviceError(f"certificate {self.certificate}", reason, way_out) from None
        except (OSError, ssl.SSLError) as error:
            raise DeviceError(
                f"certificates in {self.authority.parent}", f"they cannot be used ({error})",
                "Make new ones with `tilewright farm certificates`, and copy them to all machines.",
            ) from None  # fmt: skip
        made.check_hostname = False  # devices have addresses of their own: the authority vouches
        made.verify_mode = ssl.CERT_REQUIRED
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        return made


def _meet_itself(found: Credentials) -> None:
    """What others would say of it, said here: whoever they refuse hardly learns the reason.

    Raises ssl.SSLCertVerificationError where it is not of its authority, or not valid now.
    """
    asking, shown = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    for context in (asking, shown):
        context.load_cert_chain(found.certificate, found.key)
    asking.load_verify_locations(found.authority)
    asking.verify_mode = ssl.CERT_REQUIRED
    shown.check_hostname, shown.verify_mode = False, ssl.CERT_NONE
    to, fro = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = shown.wrap_bio(fro, to), asking.wrap_bio(to, fro, server_side=True)
    for side in sides * 2:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()


def may_serve(certificate: bytes) -> bool:
    """Whether it, in DER and verified, is a device's: of what uses it has the authority tells."""
    return _EXTENDED_USE not in certificate or _SERVES in certificate


def distrust(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    """Why a certificate is not trusted here, and the way out."""
    if error.verify_code in _DATES:
        now = datetime.datetime.now(datetime.UTC)
        return (
            f"{error.verify_message}, by this machine's clock, which says {now:%Y-%m-%d %H:%M} UTC",
            "Set the clock, or make new certificates with `tilewright farm certificates` and copy "
            "them to all machines.",
        )
    return (
        f"it is not of the farm's authority ({error.verify_message})",
        "Use certificates of one authority: copy them from where `tilewright farm certificates` "
        "ran.",
    )


def folder(given: str | None = None) -> Path | None:
    """Where certificates are: `given`, or what the environment names, or this user's own folder.

    None: "none" was said, connections are not encrypted.
    """
    said = given or environment.certificates()
    if said == "none":
        return None
    if said:
        return Path(said).expanduser()
    return (
        Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tilewright" / "farm"
    )


def credentials(role: str, given: str | None = None) -> Credentials | None:
    """Those of "server" or "client"; None where there are none, or none are wanted.

    A server's serve for a client where no others are there.
    Raises DeviceError for a folder that was named and has none.
    """
    place = folder(given)
    if place is None:
        return None
    for name in (role, SERVER) if role == CLIENT else (role,):
        found = Credentials(place / "ca.pem", place / f"{name}.pem", place / f"{name}.key")
        if found.certificate.exists() and found.authority.exists():
            return found
    if given or environment.certificates():
        raise DeviceError(
            f"certificates in {place}", f"there is no {role}.pem with a ca.pem",
            "Make them with `tilewright farm certificates`, and copy them from there.",
        )  # fmt: skip
    return None


def make(place: Path, hosts: Sequence[str] = ()) -> list[Path]:
    """Write an authority, unless there is one, and new certificates signed by it: what was written.

    ca.key stays where it is; a device needs ca.pem, server.pem and server.key, a tuner ca.pem,
    client.pem and client.key.  hosts: names put into the server's certificate.
    Raises DeviceError where the folder cannot be written, where it has certificates of another
    authority, and where cryptography is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise DeviceError(
            "farm certificates", "the package cryptography is not installed",
            f"Try {install('farm')}.",
        ) from None  # fmt: skip
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        written = []
        authority = _authority(place, ec)
        if authority.is_new:
            written += [place / "ca.pem", place / "ca.key"]
        for name, serves in ((SERVER, True), (CLIENT, False)):
            key = ec.generate_private_key(ec.SECP256R1())
            names = ["tilewright", *hosts] if serves else ["tilewright"]
            certificate = _signed(name, key.public_key(), authority, serves, names)
            _write(place / f"{name}.pem", _pem(certificate))
            _write(place / f"{name}.key", _key_pem(key))
            written += [place / f"{name}.pem", place / f"{name}.key"]
        return written
    except (OSError, ValueError) as error:
        raise DeviceError(
            f"farm certificates {place}", f"they cannot be made ({error})", "Name another folder."
        ) from None


@dataclass(frozen=True)
class _Authority:
    certificate: Any
    key: Any
    is_new: bool


def _authority(place: Path, ec: Any) -> _Authority:
    """The authority of the folder, made where there is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    with contextlib.suppress(FileNotFoundError):
        key = load_pem_private_key((place / "ca.key").read_bytes(), None)
        return _Authority(
            x509.load_pem_x509_certificate((place / "ca.pem").read_bytes()), key, False
        )
    there = [p.name for p in sorted(place.glob("*")) if p.suffix in (".pem", ".key")]
    if there:  # of another authority: what they let in would be locked out
        raise DeviceError(
            f"farm certificates {place}", f"it has {', '.join(there)}, and not both ca.pem and "
            "ca.key, so new ones are not written over them",
            "Run it in the folder that has ca.key, or name a new one.",
        )  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("tilewright farm")
    certificate = _sign(
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_others=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False),
        key,
    )
    _write(place / "ca.pem", _pem(certificate))
    _write(place / "ca.key", _key_pem(key))
    return _Authority(certificate, key, True)


def _signed(
    name: str, public: Any, authority: _Authority, serves: bool, names: Sequence[str]
) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    uses += [ExtendedKeyUsageOID.SERVER_AUTH] if serves else []
    issuer = authority.certificate
    return _sign(
        _builder(_name(f"tilewright {name}"), issuer.subject, public)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_others=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
        ),
        authority.key,
    )


def _builder(subject: Any, issuer: Any, public: Any) -> Any:
    from cryptography import x509

    first, last = _validity()
    return (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
    )  # fmt: skip


def _validity() -> tuple[datetime.datetime, datetime.datetime]:
    """From when to when; boards without a clock believe that it is 1970."""
    now = datetime.datetime.now(datetime.UTC)
    return datetime.datetime.fromtimestamp(0, datetime.UTC), now + datetime.timedelta(days=_DAYS)


def _usage(sign_others: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not sign_others, key_cert_sign=sign_others, crl_sign=sign_others,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _sign(builder: Any, key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    pem: bytes = certificate.public_bytes(Encoding.PEM)
    return pem


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _write(path: Path, data: bytes) -> None:
    """Nobody else may read it, and the old one stays until the new one is whole."""
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(made, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(made)
