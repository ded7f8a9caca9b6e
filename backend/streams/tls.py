"""Mutual TLS 1.3 over a socket that we read and write ourselves: bytes in, bytes out.

Both ends show a certificate of the cluster's CA, and the caller checks that the certificate is for the address that it
dialled. Neighbours: `connection`; `auth.access`, which has the certificates.
"""

import asyncio
import socket
import ssl
import tempfile
from functools import lru_cache
from typing import Any

from ..auth import Access, AccessRefused

PIECE = 64 << 10


@lru_cache(maxsize=8)
def _context(access: Access, serves: bool) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=access.ca.decode())
    if serves:
        made.num_tickets = 0  # nothing is sent that the other end does not wait for
    # ssl reads certificates from files only: one that nobody else can read, and that is gone at once
    with tempfile.NamedTemporaryFile() as file:
        file.write(access.key.rstrip() + b"\n" + access.cert)
        file.flush()
        made.load_cert_chain(file.name)
    return made


def check(access: Access) -> None:
    """Raises AccessRefused if these certificates cannot be used."""
    try:
        _context(access, True)
    except (ssl.SSLError, ValueError) as error:
        why = reason_of(error) if isinstance(error, ssl.SSLError) else str(error)
        raise AccessRefused(
            f"the files of --ca, --cert and --key are not a CA, a certificate and its key in PEM form: {why}"
        ) from None


class Tls:
    """One end of a TLS connection. Its methods are not for two threads at once."""

    def __init__(self, access: Access, *, serves: bool, host: str = "") -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = _context(access, serves).wrap_bio(
            self._in, self._out, server_side=serves, server_hostname=None if serves else host
        )

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """Raises ssl.SSLError, or ConnectionError if the other end leaves."""
        while True:
            try:
                self._end.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                if alert := self._out.read():  # tells the other end why
                    await loop.sock_sendall(sock, alert)
                raise
            if data := self._out.read():
                await loop.sock_sendall(sock, data)
            if done:
                return
            data = await loop.sock_recv(sock, PIECE)
            if not data:
                raise ConnectionError("the other end left during the TLS handshake")
            self._in.write(data)

    def common_name(self) -> str:
        """Of the other end's certificate; "" if it has none, or several."""
        shown = self._end.getpeercert() or {}
        parts: Any = [part for several in shown.get("subject", ()) for part in several]
        names = [value for key, value in parts if key == "commonName"]
        return str(names[0]) if len(names) == 1 else ""

    def seal(self, data: bytes | memoryview) -> bytes:
        """The bytes to send for these."""
        if len(data):
            self._end.write(data)
        return self._out.read()

    def came(self, data: bytes | memoryview) -> None:
        self._in.write(data)

    def open_into(self, space: memoryview) -> int:
        """Bytes that were deciphered into `space`; 0: more has to come. Raises ssl.SSLError."""
        try:
            # with a buffer it returns a number, against its stub
            count: Any = self._end.read(len(space), space)
            return int(count)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            return 0


def reason_of(error: ssl.SSLError) -> str:
    reason = error.reason.replace("_", " ").lower() if error.reason else str(error)
    verified = getattr(error, "verify_message", "")  # which name or signer is wrong
    return f"{reason}: {verified}" if verified else reason
