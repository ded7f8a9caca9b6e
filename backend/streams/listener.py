"""The port of a process: it admits streams, answers questions, and hands gRPC to the gRPC server behind it.

    a connection --first bytes--> MAGIC: [TLS] Opening --admit--> Answered --> the node
                                  asks:  REQUEST --> REPLY; or a stream of its own kind
                                  others, on a controller: gRPC     (`grpc_pipe`)

What strangers may take is bounded. New connections get a share of the loop (`SHARE`). A connection has to introduce
itself within `READING` seconds, and at most `NAMELESS` connections may be about to do so: beyond that, the oldest one
of the host that has the most is closed. Nothing of core is read before a caller has been admitted. Neighbours:
`dialling`, the other end; `auth.call_turns`, by which openings take turns with calls.
"""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from core.link import Unreadable

from ..auth import READING, Access, AccessRefused, Busy, CallTurn, PortTaken, RefusalLogger, TurnGate, host_of
from ..wire import Answered, Opening, framing, versions
from .connection import Connection, read_out
from .dialling import StreamRefused
from .grpc_pipe import GrpcPipe
from .sockets import as_it_should_be, listening, named
from .tls import Tls, check, reason_of

NO_TOKEN = "the token is wrong or missing"
NAMELESS = 512  # connections that have not introduced themselves yet
SHARE = 0.25  # of the loop's time that new connections get ...
BURST = 0.02  # ... and the seconds that can be saved up
EACH = 0.0003  # seconds that a new connection takes beside the measured time
FULL = 1.0  # seconds without new connections when this process can have no more
LAST = 2.0  # seconds for a caller to read why it was refused

Admit = Callable[[Opening, Connection], int]  # the peer that calls; raises StreamRefused
Accept = Callable[[int, Connection], None]
Answer = Callable[[Any], Awaitable[Any]]
log = logging.getLogger("seaway.streams")


class Listener:
    """`answers`: what anybody with the token may ask. `streams`: what takes streams of another kind than the node's.
    `pipe`: where gRPC goes; None: nobody here speaks it. `vouched`: whether a name and its proof stand for the token,
    since the controller has let that caller in."""

    def __init__(
        self, access: Access, refusals: RefusalLogger, gate: TurnGate, *,
        answers: Mapping[type[msgspec.Struct], Answer] | None = None,
        streams: Mapping[str, Callable[[Connection], None]] | None = None, pipe: GrpcPipe | None = None,
        vouched: Callable[[str, str], bool] = lambda name, proof: False,
    ) -> None:  # fmt: skip
        self._streams, self._vouched = streams or {}, vouched
        self.access, self._refusals, self._gate, self._pipe = access, refusals, gate, pipe
        self._answers = {kind.__name__: (msgspec.msgpack.Decoder(kind), act) for kind, act in (answers or {}).items()}
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._nameless: dict[asyncio.Task[None], str] = {}  # connections without a name -> their hosts, in order
        self._tasks: set[asyncio.Task[None]] = set()
        self._credit, self._since = BURST, time.monotonic()

    # --- life -------------------------------------------------------------------------------------------------

    def open(self, address: str) -> str:
        """Takes this address; returns it, with its port. Callers wait until `start`. Raises AccessRefused."""
        self.access.may_bind(address)
        if self.access.tls:
            check(self.access)
        try:
            self._socket = listening(address)
        except OSError as error:
            refused = PortTaken if error.errno == errno.EADDRINUSE else AccessRefused
            raise refused(
                f"cannot listen on {address}: is the port taken? `:0` takes any that is free ({error.strerror})"
            ) from None
        if self._socket.family == socket.AF_UNIX:
            return address
        return f"{address.rpartition(':')[0]}:{self._socket.getsockname()[1]}"

    def start(self, admit: Admit, accept: Accept) -> None:
        """Takes connections, from now on. `admit` names the peer that opens a stream, and `accept` takes it."""
        self._admit, self._accept = admit, accept
        self._listen()

    def _listen(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._came)

    async def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            if self._socket.family == socket.AF_UNIX:
                Path(self._socket.getsockname()).unlink(missing_ok=True)
            self._socket.close()
            self._socket = None
        await asyncio.sleep(0)  # those that were just taken begin; they close their sockets
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pipe is not None:
            self._pipe.close()

    # --- new connections --------------------------------------------------------------------------------------

    def _rest(self, seconds: float) -> None:
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(seconds, self._listen)

    def _came(self) -> None:
        """Takes one connection; others of the loop have a turn before the next."""
        assert self._socket is not None
        begun = time.monotonic()
        try:
            sock, place = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor is left
            log.warning("no new connection can be taken for %g s: %s", FULL, error)
            self._rest(FULL)
            return
        address = named(sock.family, place)
        task = self._loop.create_task(self._introduced(sock, address))
        self._nameless[task] = host_of(address)
        self._tasks.add(task)
        task.add_done_callback(self._left)
        if len(self._nameless) > NAMELESS:
            self._drop_one()
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._since) * SHARE) - (now - begun) - EACH
        self._since = now
        if self._credit < 0:
            self._rest(-self._credit / SHARE)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._nameless.pop(task, None)
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection could not be taken: %s", error, exc_info=error)

    def _drop_one(self) -> None:
        """Closes the oldest connection without a name, of the host that has the most of them."""
        host = Counter(self._nameless.values()).most_common(1)[0][0]
        oldest = next(task for task, its in self._nameless.items() if its == host)
        del self._nameless[oldest]
        oldest.cancel()
        self._refusals.refuse("busy", host, "a connection", f"{NAMELESS} connections wait already")

    async def _introduced(self, sock: socket.socket, address: str) -> None:
        """Takes a connection to where it belongs, or refuses it."""
        taken = False  # by somebody else, who closes it
        try:
            as_it_should_be(sock)
            async with asyncio.timeout(READING):
                begun = await self._first_bytes(sock)
            if begun == framing.MAGIC:
                await self._greeted(sock, address)
                taken = True
            elif self._pipe is not None and begun:
                self._nameless.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
                taken = True
                await self._pipe.carry(sock, begun, address)
            elif begun:
                self._refuse("malformed", address, "it does not begin as a stream of Seaway")
        except TimeoutError:
            self._refuse("malformed", address, f"it did not introduce itself in {READING:g} s")
        except framing.TooLarge as error:
            self._refuse("oversized", address, str(error))
        except Unreadable as error:
            self._refuse("malformed", address, str(error))
        except ssl.SSLError as error:
            self._refuse("malformed", address, f"TLS: {reason_of(error)}")
            if sock.fileno() >= 0:  # it was told why
                sock.shutdown(socket.SHUT_WR)
                await read_out(self._loop, sock, LAST)
        except OSError:
            pass  # it has gone
        finally:
            if not taken:
                sock.close()

    def _refuse(self, kind: str, address: str, why: str) -> None:
        self._refusals.refuse(kind, address, "a connection", why)

    async def _first_bytes(self, sock: socket.socket) -> bytes:
        """As many bytes as tell whether this is a stream."""
        found = b""
        while len(found) < len(framing.MAGIC) and framing.MAGIC.startswith(found):
            more = await self._loop.sock_recv(sock, len(framing.MAGIC) - len(found))
            if not more:
                break
            found += more
        return found

    async def _greeted(self, sock: socket.socket, address: str) -> None:
        """Reads an opening, and answers it."""
        until = self._loop.time() + READING
        tls = Tls(self.access, serves=True) if self.access.tls else None
        if tls is not None:
            async with asyncio.timeout_at(until):
                await tls.shake_hands(self._loop, sock)
        connection = Connection(self._loop, sock, tls, address, "a stream")
        try:
            async with asyncio.timeout_at(until):
                frame = await connection.greeting()
            opening = framing.read(frame.kind, frame.message) if frame.kind == framing.OPENING else None
            if not isinstance(opening, Opening):
                raise Unreadable("a stream does not begin with an opening")
            await self._answer(opening, connection)
        except BaseException:
            connection.close()
            raise

    async def _answer(self, opening: Opening, connection: Connection) -> None:
        """Welcomes a caller, or tells it why not."""
        connection.called = opening.asks or f"a stream as {opening.name!r}"
        taken: Callable[[Connection], None] | None = None
        try:
            taken = await self._admitted(opening, connection)
        except (Busy, StreamRefused) as refused:
            kind, why = "busy" if isinstance(refused, Busy) else refused.kind, str(refused)
            self._refusals.refuse(kind, connection.address, connection.called, why)
            connection.say(Answered(versions.mine(), kind, why))
        if taken is None:
            await connection.leave(LAST)
        else:
            connection.say(Answered(versions.mine()))
            taken(connection)

    async def _admitted(self, opening: Opening, connection: Connection) -> Callable[[Connection], None] | None:
        """What takes the stream, in its turn; None: it has asked, and was answered. Raises Busy, StreamRefused."""
        account = self.access.identify(opening.token, connection.common_name())
        connection.opening, connection.account = opening, account
        known = account is not None or self._vouched(opening.name, opening.proof)
        async with self._gate.turn(connection.address, strange=not known) as turn:
            if not known:
                raise StreamRefused("token", NO_TOKEN)
            if opening.asks in self._streams:
                if other := versions.refusal({versions.HEADER: opening.version}):
                    raise StreamRefused("version", other)
                return self._streams[opening.asks]
            if opening.asks:
                await self._ask(turn, opening, connection)
                return None
            return partial(self._accept, self._admit(opening, connection))

    async def _ask(self, turn: CallTurn, opening: Opening, connection: Connection) -> None:
        """Answers one request."""
        if opening.asks not in self._answers:
            raise StreamRefused("call", "there is no such call")
        if other := versions.refusal({versions.HEADER: opening.version}):
            raise StreamRefused("version", other)
        connection.say(Answered(versions.mine()))
        decoder, act = self._answers[opening.asks]
        try:
            async with turn.reading(), asyncio.timeout(READING):
                frame = await connection.greeting(framing.MESSAGE)
            if frame.kind != framing.REQUEST:
                raise Unreadable(f"a frame of kind {frame.kind}")
            said = await turn.of(act(turn.step(decoder.decode, frame.message)))
        except TimeoutError:
            raise StreamRefused("malformed", f"no message came in {READING:g} s") from None
        except framing.TooLarge as large:
            raise StreamRefused("oversized", str(large)) from None
        except (msgspec.MsgspecError, ValueError, RecursionError, Unreadable) as error:
            raise StreamRefused("malformed", f"this is no {opening.asks}: {error}") from None
        connection.put(framing.REPLY, msgspec.msgpack.encode(said))
