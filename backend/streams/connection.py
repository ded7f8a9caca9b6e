"""One stream to another process: frames are put from any thread, and read in the loop.

    any thread --put--> queue --flush, in the same thread--> socket; what it does not take, the loop writes
    socket --readable--> FrameReader --next--> the owner's `arrived`, in the loop

A thread that puts frames writes them itself, in one call of the system: no other thread wakes up for it. Contents that
are not at hand yet are loaded in a copying thread, which then goes on writing. Neighbours: `wire.framing`; `node`.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from core.link import BATCH, MANY, Unreadable
from core.model import Account

from ..wire import Address, Answered, Contents, FrameReader, Opening, Pass, StreamFrame, framing
from .sockets import end_unacknowledged
from .tls import Tls, reason_of

SLICE_READS = 8  # calls of the system for large contents, before others have a turn
CIPHERED = 64 << 10
LETTING_GO = 0.001  # seconds between attempts to close what another thread reads
COPIERS = 16  # threads; a load may have to wait for a device

log = logging.getLogger("seaway.streams")
Load = Callable[[], Contents]
Item = tuple[bytes, Contents, Load | None]  # what goes first, contents, or how to get them


class Connection:
    """`address`: the peer's, as in `auth.refusal_log`; `called`: the name under which it called, or was called; and, of
    one that called, `opening` and `account`: what it said first, and whose it is."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, tls: Tls | None, address: str, called: str
    ) -> None:
        self.address, self.called = address, called
        self.opening: Opening | None = None
        self.account: Account | None = None
        self.hung = False  # nothing more may be put
        self.over = asyncio.Event()
        self.silent = True  # nothing has come yet
        self.why = ""  # it is over
        self.reader = FrameReader()
        self.ended: Callable[[], None] = lambda: None  # called when it is over, in the loop
        self.wrote: Callable[[int, int], None] = lambda number, nbytes: None  # counts; from any thread
        self.let_go: Callable[[], bool] = lambda: True  # False: another thread is reading just now
        self.resting = False  # frames have come that were not taken yet
        self._loop, self._sock, self._tls = loop, sock, tls
        self._thread = threading.get_ident()
        self._arrived: Callable[[], None] = lambda: None
        self._items: deque[Item] = deque()
        self._rest: list[Contents] = []  # what the socket has not taken yet
        self._ending = False  # the connection ends when all is written
        self._blocked = False  # until the socket takes more, or contents are loaded; or the end is written
        self._writing = threading.Lock()  # who writes, or changes the state of `tls`
        self._reading = self._closed = False
        self._ciphered = memoryview(bytearray(CIPHERED)) if tls is not None else None

    # --- writing, in any thread ---------------------------------------------------------------------------------

    def put(self, kind: int, message: bytes, contents: Contents | Load = b"") -> None:
        """Puts a frame, which `flush` writes. A function that returns the contents is called in a copying thread:
        until then their size is not known. Behind the end, nothing is put."""
        if self.hung:
            return
        if callable(contents):
            self._items.append((message, b"", contents))
        else:
            self._items.append((framing.head(kind, message, contents) + message, contents, None))

    def mention(self, said: Address | Pass | Opening | Answered) -> None:
        """Puts a message that is not of core's."""
        if not self.hung:
            self._items.append((framing.framed(said), b"", None))

    def say(self, said: Address | Pass | Opening | Answered) -> None:
        self.mention(said)
        self.flush()

    def common_name(self) -> str:
        """Of the peer's certificate; "" if it has none."""
        return self._tls.common_name() if self._tls is not None else ""

    def end(self) -> None:
        """Ends the stream when all that was put has been written."""
        self.hung = self._ending = True
        self.flush()

    def flush(self) -> None:
        """Writes what was put. If another thread is writing, that one goes on with this."""
        while (self._items or self._rest or self._ending) and not self._blocked and not self._closed:
            if not self._writing.acquire(blocking=False):
                return
            try:
                self._write()
            except OSError as error:  # ssl.SSLError is one
                self._closed = True
                self._loop.call_soon_threadsafe(self.close, str(error))
            finally:
                self._writing.release()

    def _write(self) -> None:
        """Writes until nothing is left, or nothing more can be written now."""
        while not self._blocked and not self._closed and (self._rest or self._gather()):
            rest = self._rest
            try:
                sent = self._sock.send(rest[0]) if len(rest) == 1 else self._sock.sendmsg(rest)
            except (BlockingIOError, InterruptedError):
                sent = 0
            self._rest = _after(rest, sent)
            if self._rest:
                self._blocked = True
                self._loop.call_soon_threadsafe(self._wait_to_write)
        # a thread that loads contents has taken them out of the queue, and puts them back before it unblocks
        if self._ending and not self._blocked and not self._closed and not self._rest and not self._items:
            self._ending, self._blocked = False, True  # for ever
            # what the other end still says is read: otherwise it loses our last words
            self._sock.shutdown(socket.SHUT_WR)

    def _gather(self) -> bool:
        """Puts together what goes into one call of the system."""
        small: list[bytes] = []
        found: list[Contents] = []
        size = number = 0
        while self._items and size < BATCH and number < MANY:
            first, contents, load = self._items[0]
            if load is not None:
                if not number:
                    self._blocked = True
                    _copying().submit(self._load_first)
                break
            self._items.popleft()
            small.append(first)
            if contents:
                found += [b"".join(small), contents]
                small = []
            size += len(first) + len(contents)
            number += 1
        if small:
            found.append(small[0] if len(small) == 1 else b"".join(small))
        if found:
            self.wrote(number, size)
            self._rest = found if self._tls is None else [self._tls.seal(b"".join(found))]
        return bool(found)

    def _wait_to_write(self) -> None:
        if not self._closed:
            self._loop.add_writer(self._sock.fileno(), self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._blocked = False
        self.flush()

    def _load_first(self) -> None:
        """Loads the contents of the first frame, in a copying thread, and goes on writing."""
        message, _, load = self._items.popleft()
        assert load is not None, "only such a frame blocks those behind it"
        try:
            contents = load()
        except Exception as error:  # the receiver refuses no bytes as contents
            log.warning("contents that were to be sent cannot be had: %s", error)
            contents = b""
        self._items.appendleft((framing.head(framing.PACKET, message, contents) + message, contents, None))
        self._blocked = False
        self.flush()

    # --- reading, in the loop -------------------------------------------------------------------------------------

    async def greeting(self, most: int = framing.GREETING) -> StreamFrame:
        """The next frame, before `start`; of at most so many bytes. Raises Unreadable, OSError."""
        self.reader.most = most
        while (frame := self.reader.next()) is None:
            if self._tls is not None and self._opened(self._tls):
                continue
            space = self.reader.space() if self._ciphered is None else self._ciphered
            count = await self._loop.sock_recv_into(self._sock, space)
            if not count:
                raise ConnectionError("the other end has closed the connection")
            self._count_in(count)
        return frame

    def start(self, arrived: Callable[[], None], unacknowledged: float = 0.0) -> None:
        """Begins to read. `arrived` is called when bytes have come: it takes frames with `next`. `unacknowledged`:
        seconds, see `sockets`; 0: as long as the system allows."""
        end_unacknowledged(self._sock, unacknowledged)
        self.reader.most = framing.MESSAGE
        self._arrived = arrived
        self.go_on()

    def next(self) -> StreamFrame | None:
        """The next frame, if all of it has come. Raises Unreadable."""
        while not self._closed and not self.hung:
            if (frame := self.reader.next()) is not None:
                return frame
            if self._tls is None:
                break
            try:
                if not self._opened(self._tls):
                    break
            except ssl.SSLError as error:
                raise Unreadable(f"TLS: {reason_of(error)}") from None
        return None

    def rest_for_others(self) -> None:
        """Lets others have a turn before this stream's next frames."""
        self.resting = not self._closed
        if self._reading:
            self._pause()
            self._loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Reads in the loop, from now on."""
        if not self._closed:
            self._read_on()
            self._take()

    def pause_for_another(self) -> bool:
        """Leaves it to another thread to call `read`, until `go_on`; whether that may be just now."""
        if self.over.is_set() or not self._reading:
            return False
        self._pause()
        return True

    def fileno(self) -> int:
        return -1 if self._closed else self._sock.fileno()

    def _take(self) -> None:
        self.resting = False
        self._arrived()

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self.read)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock.fileno())

    def read(self) -> None:
        """Receives what is there, and has it taken. Large contents are received in several calls of the system."""
        reader = self.reader
        try:
            if self.hung:  # the socket is closed when the other end closes it, too
                if not self._sock.recv(framing.ROOM):
                    self.close("the other end has closed the connection")
                return
            for _ in range(SLICE_READS):
                count = self._sock.recv_into(reader.space() if self._ciphered is None else self._ciphered)
                if not count:
                    self.close("the other end has closed the connection")
                    return
                self._count_in(count)
                if not reader.fills_contents or self._tls is not None:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(str(error))
            return
        self._take()

    def _count_in(self, count: int) -> None:
        if self._tls is None:
            self.reader.came(count)
        else:
            assert self._ciphered is not None
            with self._writing:
                self._tls.came(self._ciphered[:count])

    def _opened(self, tls: Tls) -> bool:
        """Deciphers more of what has come; whether there was any."""
        with self._writing:
            count = tls.open_into(self.reader.space())
        self.reader.came(count)
        return count > 0

    # --- the end --------------------------------------------------------------------------------------------------

    async def leave(self, seconds: float) -> None:
        """Ends a stream that was not started, and closes it when the other end has closed it, or after so long."""
        self.end()
        try:
            if not self._closed:
                await read_out(self._loop, self._sock, seconds)
        finally:
            self.close()

    def close(self, why: str = "") -> None:
        """Closes the connection: at once in the loop, as soon as possible in another thread."""
        if self.over.is_set():
            return
        known, self._closed, self.hung = self._closed, True, True
        # what is left is not taken any more: a thread that read on for it would never let go
        self.resting = False
        if threading.get_ident() != self._thread:
            if not known:
                self._loop.call_soon_threadsafe(self.close, why)
            return
        if not self.let_go():
            self._loop.call_later(LETTING_GO, self.close, why)
            return
        self.why = why
        self._pause()
        self._loop.remove_writer(self._sock.fileno())
        with self._writing:  # a thread that writes has the socket's number in its hands
            # While another thread waits for the socket in poll, close alone would not tell the other end.
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()
        self.over.set()
        self.ended()


async def read_out(loop: asyncio.AbstractEventLoop, sock: socket.socket, seconds: float) -> None:
    """Reads and forgets what the other end still sends: it loses our last words if bytes are unread at the close."""
    left = 2 * framing.MESSAGE
    with suppress(OSError):
        async with asyncio.timeout(seconds):
            while left > 0 and (data := await loop.sock_recv(sock, framing.ROOM)):
                left -= len(data)


def _after(buffers: Sequence[Contents], sent: int) -> list[Contents]:
    """What is left of these after so many bytes."""
    for number, each in enumerate(buffers):
        if sent < len(each):
            return [memoryview(each)[sent:] if sent else each, *buffers[number + 1 :]]
        sent -= len(each)
    return []


@cache
def _copying() -> ThreadPoolExecutor:
    """The threads that load contents, of all connections of this process."""
    return ThreadPoolExecutor(COPIERS, "contents")
