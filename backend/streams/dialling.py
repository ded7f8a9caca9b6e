"""Opens a stream to another process, or asks it one thing.

    MAGIC, in plain text    then TLS, if we have certificates; the other end has them, too, or this fails
    Opening                 our version, the cluster's token, our name and its proof
    Answered                welcome, or why not

Nothing of core is sent before the other end has welcomed us. Neighbours: `listener`, the other end; `node`.
"""

import asyncio
import ssl

import msgspec

from core.link import Unreadable

from ..auth import Access
from ..wire import Answered, Opening, StreamFrame, framing, versions
from .connection import Connection
from .sockets import connected, machine_of
from .tls import Tls, reason_of

DIALLING = 10.0  # seconds until the other end has answered, if the caller says no other number
STRANGE = "does not answer as a process of Seaway with the same protection (--ca, or none)"


class StreamRefused(Exception):
    """The other end refuses the stream, or what was asked. kind: as in `auth.refusal_log`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


async def dial(
    address: str, access: Access, name: str, proof: str, *, asks: str = "", called: str = "", within: float = DIALLING
) -> Connection:
    """Opens a stream. Raises StreamRefused, or OSError if nobody answers in so many seconds."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within):
        sock = await connected(loop, address)
        close = sock.close
        try:
            await loop.sock_sendall(sock, framing.MAGIC)
            tls = Tls(access, serves=False, host=machine_of(address)) if access.tls else None
            if tls is not None:
                await tls.shake_hands(loop, sock)
            connection = Connection(loop, sock, tls, address, called)
            close = connection.close
            connection.say(Opening(versions.mine(), access.token, name, proof, asks))
            await _welcome(connection)
            return connection
        except ssl.SSLError as error:
            close()
            raise ConnectionError(f"TLS with {address} failed: {reason_of(error)}") from None
        except BaseException:
            close()
            raise


async def _welcome(connection: Connection) -> None:
    try:
        frame = await connection.greeting()
    except (Unreadable, ConnectionError) as error:
        raise ConnectionError(f"{connection.address} {STRANGE}: {error}") from None
    answer = _answered(connection, frame)
    if answer.refused:
        raise StreamRefused(answer.refused, answer.text)
    if other := versions.answers_otherwise({versions.HEADER: answer.version}):
        raise StreamRefused("version", other)


async def ask(
    address: str, access: Access, request: msgspec.Struct, timeout: float, name: str = "", proof: str = ""
) -> bytes:
    """Asks a process one thing, on a connection of its own; returns the answer. `name`, `proof`: a pass of the
    controller's, for hosts that do not know our token. Raises StreamRefused, OSError."""
    async with asyncio.timeout(timeout):
        connection = await dial(address, access, name, proof, asks=type(request).__name__)
        try:
            connection.put(framing.REQUEST, msgspec.msgpack.encode(request))
            connection.flush()
            try:
                frame = await connection.greeting(framing.MESSAGE)
            except Unreadable as error:
                raise ConnectionError(f"{address} {STRANGE}: {error}") from None
            if frame.kind == framing.REPLY:
                return frame.message
            answer = _answered(connection, frame)
            raise StreamRefused(answer.refused, answer.text)
        finally:
            connection.close()


def _answered(connection: Connection, frame: StreamFrame) -> Answered:
    try:
        answer = framing.read(frame.kind, frame.message) if frame.kind == framing.ANSWER else None
    except Unreadable:
        answer = None
    if not isinstance(answer, Answered):
        raise ConnectionError(f"{connection.address} {STRANGE}")
    return answer
