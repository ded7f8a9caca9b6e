"""Which callers are admitted: what a process sends with its calls, and what it accepts.

    loopback            needs nothing: every account on this machine has access
    a token             one secret for the whole cluster, sent with every call; in plaintext, unless TLS is on
    mTLS                certificates, checked by gRPC on both ends
    accounts            a token or certificate for each person, beside the cluster's own token (`accounts_file`)

Besides, hosts know each other and clients by *passes*: a keyed hash of the caller's name, made with a secret that
only the controller and enrolled hosts have. So no client acts as another, or as a host. Neighbours: `node`, `server`.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from core.model import Account, SeawayError

from ..wire import MESSAGE, versions

OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error
    ("grpc.max_send_message_length", MESSAGE),
    ("grpc.max_receive_message_length", MESSAGE),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # without this, a server ends connections that are idle
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # how long an attempt may take; the other end may be short of CPU
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
HEADER = "authorization"
SCHEME = "grpc://"
PORT = 29000
HOST = re.compile(r"\[[^\s/\[\]]+\]|[^\s/:\[\]]+")
PORTS = re.compile(r"[0-9]{1,5}")
ANY = ("0.0.0.0", "[::]")  # all addresses of a machine: one can listen at them, but not connect to them


class AccessRefused(SeawayError):
    """An address may not be opened or called; the text says what to do about it."""


class PortTaken(AccessRefused):
    """Another socket has this address."""


class Person(msgspec.Struct, frozen=True):
    """An account, and what its callers show. `certificate`: a common name."""

    account: Account
    token_sha256: str = ""
    certificate: str = ""


ANYBODY = Account()  # where there are no accounts
CLUSTER = Account("cluster")  # has the cluster's own token: agents, and who starts them


class Access(msgspec.Struct, frozen=True):
    """token: required of every caller. ca, cert, key: PEM bytes; with them, every connection is mutual TLS. people: who
    may call besides, each with a token or certificate of their own."""

    token: str = ""
    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""
    people: tuple[Person, ...] = ()

    def __post_init__(self) -> None:
        given = [name for name in ("ca", "cert", "key") if getattr(self, name)]
        if given and len(given) < 3:
            missing = [name for name in ("ca", "cert", "key") if name not in given]
            raise AccessRefused(f"mutual TLS needs a CA, a certificate and a key; {' and '.join(missing)} is missing")
        if self.people and not self.token:
            raise AccessRefused("accounts need a token of the cluster's own, too, for agents: --token-file FILE")

    @property
    def tls(self) -> bool:
        return bool(self.ca)

    def shown(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        return (*versions.shown(), *(((HEADER, f"Bearer {self.token}"),) if self.token else ()))

    @staticmethod
    def token_in(metadata: Mapping[str, Any]) -> str:
        """The token that comes with a call; "" if none."""
        return str(metadata.get(HEADER, "")).removeprefix("Bearer ")

    def identify(self, token: str, certificate: str = "") -> Account | None:
        """Whose a caller is: by its token, or by its certificate if it shows no token. None: it is refused."""
        if not self.people:
            return ANYBODY if self.has(token) else None
        if not token:
            return next((each.account for each in self.people if certificate and each.certificate == certificate), None)
        shown, found = hashlib.sha256(token.encode()).hexdigest(), CLUSTER if self.has(token) else None
        for each in self.people:
            if hmac.compare_digest(each.token_sha256, shown):
                found = found or each.account
        return found

    def has(self, token: str) -> bool:
        """Whether this is the cluster's token; any is, if there is none. It takes the same time for all tokens."""
        return not self.token or hmac.compare_digest(token.encode(), self.token.encode())

    def channel(self, address: str) -> grpc.aio.Channel:
        if self.tls:
            credentials = grpc.ssl_channel_credentials(self.ca, self.key, self.cert)
            return grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        return grpc.aio.insecure_channel(address, options=OPTIONS)

    def bind(self, server: grpc.aio.Server, address: str) -> int:
        """Opens a port and returns it. Raises Refused if the address is unprotected, or the port is taken."""
        self.may_bind(address)
        try:
            if self.tls:
                credentials = grpc.ssl_server_credentials(
                    [(self.key, self.cert)], root_certificates=self.ca, require_client_auth=True
                )
                return int(server.add_secure_port(address, credentials))
            return int(server.add_insecure_port(address))
        except RuntimeError:
            raise AccessRefused(f"cannot listen on {address}: is the port taken? `:0` takes any that is free") from None

    def may_bind(self, address: str) -> None:
        checked(address)
        if self.token or self.tls or is_loopback(address):
            return
        raise AccessRefused(
            f"will not listen on {address} unprotected: any process that can reach it could run code here. Give it a "
            "token (--token-file FILE, on every process of the cluster) or certificates (--ca, --cert, --key), or "
            "listen on 127.0.0.1"
        )


def read(token_file: str = "", ca: str = "", cert: str = "", key: str = "") -> Access:
    """The access that the option's files describe. An empty file is refused: it was meant to protect."""
    try:
        token = _contents("token", token_file).decode().strip()
        return Access(token, _contents("ca", ca), _contents("cert", cert), _contents("key", key))
    except OSError as error:
        raise AccessRefused(f"cannot read {error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccessRefused(f"{token_file} is not text") from None


def _contents(what: str, file: str) -> bytes:
    found = Path(file).read_bytes() if file else b""
    if file and not found.strip():
        remedy = (
            "put a secret in it (python -c 'import secrets; print(secrets.token_hex(32))'), the same on every process"
            if what == "token"
            else f"--{what} names a PEM file, as docs/deployment.md makes one"
        )
        raise AccessRefused(f"{file} is empty, and was given to protect the cluster: {remedy}")
    return found


def checked(address: str) -> str:
    """The address at which to listen, unchanged. Raises Refused if it is no address or has no port."""
    if not is_address(address):
        raise AccessRefused(
            f"cannot listen on {address!r}: an address is like 127.0.0.1:29000; port 0 takes any that is free"
        )
    return address


def advertised(bind: str, said: str) -> tuple[str, int]:
    """Host and port at which other processes reach a server that listens at `bind`; port 0 stands for the port
    that was opened. Raises Refused for an address to which no other process could connect."""
    host, _, port = checked(bind).rpartition(":")
    if said:
        whole = said if is_address(said) else f"{said}:0"
        if not is_address(whole) or said.startswith("unix:"):
            raise AccessRefused(f"--advertise {said}: it is like 10.0.0.10 or 10.0.0.10:29001")
        host, _, port = whole.rpartition(":")
    if host in ANY:
        raise AccessRefused(
            f"nobody can dial {said or bind}: say at which address other hosts and clients reach this one, "
            "with --bind, or with --advertise ADDRESS"
        )
    return host, int(port)


def reached(address: str, controller: str) -> str:
    """An address on the controller's machine, where "all addresses" becomes the one that we know."""
    host, _, port = address.rpartition(":")
    return f"{controller.rpartition(':')[0]}:{port}" if host in ANY else address


def place_of(address: object) -> str:
    """A controller's address as host:port. Raises Refused if it is none."""
    place = address.removeprefix(SCHEME).rstrip("/") if isinstance(address, str) else ""
    whole = place if ":" in place else f"{place}:{PORT}"
    if "://" in place or not is_address(whole) or whole.endswith(":0"):
        raise AccessRefused("an address is like 'grpc://head:29000'")
    return whole


def is_address(text: str) -> bool:
    """Whether this is a host and a port. An IPv6 address is in brackets; a Unix socket is a file."""
    if text.startswith("unix:"):
        return len(text) > len("unix:")
    host, _, port = text.rpartition(":")
    return HOST.fullmatch(host) is not None and PORTS.fullmatch(port) is not None and int(port) < 1 << 16


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost" or address.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- passes ------------------------------------------------------------------------------------------------------


def proof(secret: bytes, name: str) -> str:
    return hmac.new(secret, name.encode(), hashlib.sha256).hexdigest()


def proves(secret: bytes, name: str, shown: str) -> bool:
    return hmac.compare_digest(proof(secret, name), shown)
